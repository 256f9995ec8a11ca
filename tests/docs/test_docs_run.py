"""What the documentation shows to run does run, in the order in which a reader meets it.

A block counts if the line above it is `<!-- run -->`. A `python` block whose first line is `# name.py` is saved under
that name; others are one program, run where the page shows a command or ends. In a `console` block each line after `$`
is run, and what it prints is compared with the lines below it; `...` stands for anything.

A page that opens the database of the examples is run on PostgreSQL, too, with that one URL replaced.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores import FILE, POSTGRES, SHARED

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^<!-- run -->\n```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text("utf-8"))]
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LIMIT_S = 60

ON_FILE, ON_POSTGRES = "sqlite:///agent.db", "postgresql://me@localhost/agents"
"""The databases that the pages open."""


def stores_of(page: Path) -> tuple[str, ...]:
    """Return where a page is run: what it shows of one database cannot be run on the other."""
    code = "".join(block[1] for block in BLOCK.findall(page.read_text("utf-8")))
    if ON_POSTGRES in code:
        return (POSTGRES,)
    is_general = 'sqlite3.connect("agent.db"' not in code and (ON_FILE in code or "Counterfoil.open()" in code)
    return SHARED if is_general and page.parent.name != "explanation" else (FILE,)


CASES = [pytest.param(page, s, id=f"{page.relative_to(ROOT / 'docs')}-{s}") for page in PAGES for s in stores_of(page)]


def run(command: list[str], folder: Path, url: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COUNTERFOIL_URL": url, "NO_COLOR": "1"}
    known = {"python": [sys.executable], "counterfoil": [sys.executable, "-m", "counterfoil"]}
    argv = [*known[command[0]], *command[1:]]
    done = subprocess.run(
        argv, cwd=folder, env=env, input="", capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    return done.stdout + done.stderr if done.returncode == 0 else f"{done.stdout}{done.stderr}exit {done.returncode}\n"


def run_program(program: str, folder: Path, url: str) -> None:
    """Run what is left of a page: its lines stand where the page has them, so that a traceback names them."""
    if program.strip():
        (folder / "page.py").write_text(program, "utf-8")
        done = run(["python", "-W", "error", "page.py"], folder, url)
        assert not re.search(r"^(exit \d+|Exception ignored)", done, re.MULTILINE), done


@pytest.mark.slow
@pytest.mark.parametrize(("page", "store"), CASES)
def test_a_page_does_what_it_shows(page: Path, store: str, url: str, tmp_path: Path) -> None:
    url = ON_FILE if store == FILE else url
    text, program = page.read_text("utf-8").replace(ON_FILE, url).replace(ON_POSTGRES, url), ""
    for block in BLOCK.finditer(text):
        kind, code = block.groups()
        if kind == "python" and (name := NAMED.match(code)):
            (tmp_path / name[1]).write_text(code, "utf-8")
        elif kind == "python":
            lines = text.count("\n", 0, block.start(2)) - program.count("\n")
            program += "\n" * lines + code
        else:
            run_program(program, tmp_path, url)
            program = ""
            for command, want in COMMAND.findall(code):
                got = run(shlex.split(command), tmp_path, url)
                assert doctest.OutputChecker().check_output(want, got, LOOSELY), f"$ {command}\n{got}"
    run_program(program, tmp_path, url)
