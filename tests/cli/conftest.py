"""A database with an operation in each of the states that a caller can bring about, and the command line on it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result

from counterfoil import Counterfoil, CounterfoilError, NotSent, Refused, effect
from counterfoil.cli.main import cli

RESOLVE = "review resolve case-1 --happened --value 1 --expect-version 1"


@effect("cli.ticket", key="{request_id}/ticket")
def ticket(call: Any, *, title: str) -> Any:
    if title == "lost":
        raise OSError("the wire broke")
    if title == "refused":
        raise Refused("no such queue")
    if title == "later":
        raise NotSent("closed on Sundays")
    return {"id": 981, "title": title}


@dataclass
class Line:
    """`line("ops list --json")` runs a command; `line.json(...)` also reads what it prints."""

    url: str

    def __call__(self, command: str, *more: str, exit_code: int = 0, **env: str) -> Result:
        result = CliRunner().invoke(cli, [*command.split(), *more], env={"COUNTERFOIL_URL": self.url, **env})
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result

    def json(self, command: str, *more: str) -> Any:
        result = self(command, *more, "--json")
        assert result.stderr == ""
        return json.loads(result.stdout)

    def error(self, command: str, *more: str, exit_code: int) -> dict[str, str]:
        result = self(command, *more, "--json", exit_code=exit_code)
        assert result.stdout == ""
        found: dict[str, str] = json.loads(result.stderr)["error"]
        return found


@pytest.fixture
def empty(url: str) -> Line:
    Counterfoil.open(url).close()
    return Line(url)


@pytest.fixture
def line(empty: Line) -> Iterator[Line]:
    with Counterfoil.open(empty.url) as cf:
        for title in ("done", "lost", "refused", "later"):
            with suppress(CounterfoilError):
                cf.perform(ticket, tenant="team-A", request_id=title, title=title)
        cf.perform(ticket, tenant="team-B", request_id="done", title="other")
        yield empty


def perform(line: Line, request_id: str, title: str) -> Any:
    with Counterfoil.open(line.url) as cf:
        return cf.perform(ticket, tenant="team-A", request_id=request_id, title=title)
