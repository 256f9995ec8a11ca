"""The reference names every command, option and exit code, and the diagrams are those of the tables."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from counterfoil.cli.main import COMMANDS, INTERRUPTED, cli
from counterfoil.core import states
from counterfoil.core.machine import diagram
from counterfoil.core.reconcile import MOVES
from counterfoil.errors import Exit

DOCS = Path(__file__).parents[2] / "docs"
CLI = (DOCS / "reference" / "cli.md").read_text("utf-8")
EXITS = (DOCS / "reference" / "exit-codes.md").read_text("utf-8")
STATES = (DOCS / "explanation" / "states.md").read_text("utf-8")


def verbs() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for noun in COMMANDS:
        command = cli.get_command(context, noun)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{noun} {name}", verb) for name, verb in command.commands.items())
        else:
            yield noun, command


VERBS = dict(verbs())


def section(verb: str) -> str:
    found = re.search(rf"^### `counterfoil {verb}[^`]*`\n(.*?)(?=^##|\Z)", CLI, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section on {verb}"
    return found[1]


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_command_and_its_options_are_described(verb: str) -> None:
    text = section(verb) + CLI.split("## Operations")[0]
    options = [p.opts[0] for p in VERBS[verb].params if isinstance(p, click.Option)]
    assert [option for option in options if option not in text] == []


def test_no_command_is_described_that_does_not_exist() -> None:
    described = re.findall(r"^### `counterfoil ([a-z]+(?: [a-z-]+)?)", CLI, re.MULTILINE)
    assert sorted(each for each in described if not each.startswith("demo")) == sorted(
        verb for verb in VERBS if not verb.startswith("demo")
    )


def test_exit_codes_are_the_ones_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([a-z ]+) \|", EXITS, re.MULTILINE)
    expected = [(str(int(each)), each.name.lower().replace("_", " ")) for each in Exit]
    assert rows == [*expected, (str(INTERRUPTED), "interrupted")]


@pytest.mark.parametrize(
    "name", ["OPERATION", "ATTEMPT", "CASE", "THREAD", "WORKFLOW", "WAIT", "INBOX", "APPROVAL", "TENANT"]
)
def test_diagrams_are_made_from_the_tables(name: str) -> None:
    assert f"```mermaid\n{diagram(getattr(states, name))}\n```" in STATES


def test_the_moves_of_operations_are_listed_with_their_notes() -> None:
    for row in states.OPERATION:
        assert f"| {row.state} | {row.event.replace('_', ' ')} | {row.next} | {row.note} |" in STATES


def test_the_verdicts_are_listed_with_the_states_they_lead_to() -> None:
    for verdict in MOVES[states.OperationState.UNKNOWN]:
        found = re.search(rf"^\| `{verdict}`[^|]*\| (\w+)[^|]*\| (\w+)", STATES, re.MULTILINE)
        assert found is not None
        for state, told in zip(
            (states.OperationState.UNKNOWN, states.OperationState.PARKED), found.groups(), strict=True
        ):
            event = MOVES[state][verdict]
            assert [row.next for row in states.OPERATION if row.state == state and row.event == event] == [told]
