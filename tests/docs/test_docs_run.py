"""What the documentation shows to run does run, in the order in which a reader meets it.

A block counts if the line above it is `<!-- run -->`. A `python` block whose first line is `# name.py` is saved under
that name; others are one program, run where the page shows a command or ends. In a `console` block each line after `$`
is run, and what it prints is compared with the lines below it; `...` stands for anything.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^<!-- run -->\n```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text("utf-8"))]
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LIMIT_S = 60


def run(command: list[str], folder: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COUNTERFOIL_URL": "sqlite:///agent.db", "NO_COLOR": "1"}
    known = {"python": [sys.executable], "counterfoil": [sys.executable, "-m", "counterfoil"]}
    argv = [*known[command[0]], *command[1:]]
    done = subprocess.run(
        argv, cwd=folder, env=env, input="", capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    return done.stdout + done.stderr if done.returncode == 0 else f"{done.stdout}{done.stderr}exit {done.returncode}\n"


def run_program(program: str, folder: Path) -> None:
    """Run what is left of a page: its lines stand where the page has them, so that a traceback names them."""
    if program.strip():
        (folder / "page.py").write_text(program, "utf-8")
        done = run(["python", "-W", "error", "page.py"], folder)
        assert not re.search(r"^(exit \d+|Exception ignored)", done, re.MULTILINE), done


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    text, program = page.read_text("utf-8"), ""
    for block in BLOCK.finditer(text):
        kind, code = block.groups()
        if kind == "python" and (name := NAMED.match(code)):
            (tmp_path / name[1]).write_text(code, "utf-8")
        elif kind == "python":
            lines = text.count("\n", 0, block.start(2)) - program.count("\n")
            program += "\n" * lines + code
        else:
            run_program(program, tmp_path)
            program = ""
            for command, want in COMMAND.findall(code):
                got = run(shlex.split(command), tmp_path)
                assert doctest.OutputChecker().check_output(want, got, LOOSELY), f"$ {command}\n{got}"
    run_program(program, tmp_path)
