"""The line that installs what is missing works as it is typed."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil import extras
from counterfoil.extras import install_line


def test_it_names_the_python_that_runs() -> None:
    line = install_line("counterfoil[postgres]", "psycopg[binary]")
    python, *rest = shlex.split(line)
    assert python == extras.shown(sys.executable)
    assert rest == ["-m", "pip", "install", "counterfoil[postgres]", "psycopg[binary]"]
    assert "'counterfoil[postgres]'" in line, "some shells take brackets for a pattern"


def test_an_environment_in_the_working_folder_is_named_shortly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make demo` makes it; its python is a link, and not what that leads to."""
    program = tmp_path / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(program))
    assert install_line("counterfoil[demo]") == ".venv/bin/python -m pip install 'counterfoil[demo]'"


def test_a_folder_with_a_space_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my tools" / "python"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    typed = ["sh", "-c", install_line("counterfoil[demo]")]
    done = subprocess.run(typed, capture_output=True, text=True, check=True)
    assert done.stdout == "-m pip install counterfoil[demo]\n"


def test_an_environment_without_pip_is_served_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    assert install_line("httpx").startswith("uv pip install --python ")
