"""The command line as a process: quick to start, quiet when its reader goes away, complete in a shell."""

import os
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from counterfoil.cli.main import COMMANDS
from tests.cli.conftest import Line

COMMAND = [sys.executable, "-m", "counterfoil"]
HEAVY = {
    "sqlite3",
    "asyncio",
    "orjson",
    "rfc8785",
    "tomllib",
    "json",
    "langgraph",
    "langchain_core",
    "httpx",
    "pydantic",
}
BUDGET_S = 0.2


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: PLW1510 - the exit code is what the tests look at
        [*COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **env}, timeout=60
    )


def cpu(*arguments: str) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    assert run(*arguments).returncode == 0
    after = getrusage(RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["review", "--help"]])
def test_help_is_quick(arguments: list[str]) -> None:
    cpu(*arguments)  # writes the byte code
    assert min(cpu(*arguments) for _ in range(5)) < BUDGET_S


@pytest.mark.parametrize("arguments", [["--help"], *([noun, "--help"] for noun in COMMANDS if noun != "demo")])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom counterfoil.cli.main import cli\n"
        f"try: cli({arguments!r})\nexcept SystemExit: pass\nprint(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage:")
    assert [name for name in sorted(HEAVY) if f"'{name}'" in done.stderr] == []


@pytest.mark.parametrize("noun", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(noun: str) -> None:
    done = run(noun, "--help")
    assert done.returncode == 0
    assert COMMANDS[noun][1] in " ".join(done.stdout.split())


UNDECODED = [
    ["explain", b"\xff"],
    ["ops", "show", b"\xff"],
    ["ops", "list", "--effect", b"\xff"],
    ["find", b"caf\xe9"],
    ["receipts", "show", b"\xff"],
    ["review", "open", b"\xff"],
    ["review", "list", "--tenant", b"\xff"],
    ["db", "status", "--url", b"sqlite:///a\xff.db"],
    [b"\xff"],
]


@pytest.mark.parametrize("words", UNDECODED)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_bytes_that_are_no_text_are_a_usage_error(line: Line, words: list[str | bytes], as_json: list[str]) -> None:
    done = subprocess.run(  # noqa: PLW1510 - the exit code is what is looked at
        [*COMMAND, *words, *as_json], capture_output=True, text=True, env={**os.environ, "COUNTERFOIL_URL": line.url}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(line: Line) -> None:
    process = subprocess.Popen(
        [*COMMAND, "ops", "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "COUNTERFOIL_URL": line.url},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait()
    process.stderr.close()


def test_the_shell_completes_commands() -> None:
    env = {"_COUNTERFOIL_COMPLETE": "bash_complete", "COMP_WORDS": "counterfoil review re", "COMP_CWORD": "2"}
    assert run(**env).stdout.split() == ["plain,resolve"]


def test_the_exit_code_reaches_the_shell(line: Line) -> None:
    done = run("receipts", "show", "lost/ticket", "--json", COUNTERFOIL_URL=line.url)
    assert (done.returncode, done.stdout) == (6, "")
    assert run("--version").stdout.startswith("counterfoil ")
