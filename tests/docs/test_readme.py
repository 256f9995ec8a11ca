"""The README's lines do what they claim on either database, at a server that counts; so do the examples."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.cli.demo import tickets
from counterfoil.demo.situations import SITUATIONS
from counterfoil.drivers.urls import PostgresUrl, parse_url
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.stores import FILE, on_each

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = sorted([*(ROOT / "examples").glob("*.py"), ROOT / "examples" / "hiring" / "play.py"])
LIMIT_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[CountingProvider]:
    with CountingProvider() as running:
        yield running


def run(arguments: list[str], folder: Path, url: str = "") -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COUNTERFOIL_URL": url}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines(server: CountingProvider, url: str) -> str:
    """Return the README's program, pointed at a running server and at a database."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert program.count("http://localhost:8000") == program.count("sqlite:///agent.db") == 1
    return str(program).replace("http://localhost:8000", server.url).replace("sqlite:///agent.db", url)


def commands() -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^counterfoil ((?!demo ).*)$", README, re.MULTILINE)]


def test_the_few_lines_open_one_ticket_through_an_interrupt(server: CountingProvider, url: str, tmp_path: Path) -> None:
    run(["-c", lines(server, url)], tmp_path)
    assert (server.count("tickets"), server.received()) == (1, 1)


@on_each(FILE)
def test_the_few_lines_open_one_ticket_although_the_reply_is_lost(
    server: CountingProvider, url: str, tmp_path: Path
) -> None:
    server.order("drop-reply")
    run(["-c", lines(server, url)], tmp_path)
    assert (server.count("tickets"), server.received()) == (1, 1)


def test_the_commands_answer_and_settle_what_the_few_lines_left_open(
    server: CountingProvider, url: str, tmp_path: Path
) -> None:
    run(["-c", lines(server, url)], tmp_path)
    server.order("drop-reply")
    server.configure(Settings(lookup=False))
    opening = lines(server, url).partition("cf.run(graph, Command(")[0]
    run(["-c", opening.replace("request-42", "request-43").replace('"t-1"', '"t-2"')], tmp_path)
    listed, explained, waiting, resolved = (run(["-m", "counterfoil", *each], tmp_path, url) for each in commands())
    assert re.search(r"request-43/create-ticket +unknown", listed)
    assert explained.startswith("It happened once. request-42/create-ticket")
    assert re.search(r"case-1 .* request-43/create-ticket", waiting)
    assert "verdict=happened" in resolved


def test_the_lines_for_postgresql_are_those_of_the_extras_and_the_demo() -> None:
    (block,) = re.findall(r"^## On PostgreSQL\n.*?^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    install, export, demo = (shlex.split(line, comments=True) for line in block.splitlines())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"\w+", install[2].partition("[")[2])) <= extras.keys()
    assert isinstance(parse_url(export[1].partition("=")[2]), PostgresUrl)
    assert demo[:-1] == ["counterfoil", "demo", "tickets", "--url"]
    assert "--url" in [option for parameter in tickets.params for option in parameter.opts]


def test_the_table_has_the_situations_of_the_demo_in_their_order() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| \d \| \*\*\d\*\*", README, re.MULTILINE)
    assert len(rows) == len(SITUATIONS)
    for row, situation in zip(rows, SITUATIONS, strict=True):
        assert set(row.split()) & set(situation.title.split()), (row, situation.title)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(example: Path, tmp_path: Path) -> None:
    run(["-W", "error", str(example)], tmp_path)
