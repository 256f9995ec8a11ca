"""Plain output: aligned tables, one JSON document, times and ages. Control characters are shown, never sent."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Final
from unicodedata import east_asian_width

import click

from counterfoil.core.durations import utc_text
from counterfoil.core.explain import age_text
from counterfoil.core.provider_key import provider_key
from counterfoil.core.states import AttemptOutcome, OperationState
from counterfoil.model import OperationKey

if TYPE_CHECKING:
    from counterfoil.model import Receipt
    from counterfoil.shown import Approval, Case, Operation

GAP: Final = "  "
COLORS: Final[Mapping[str, str]] = {
    OperationState.SUCCEEDED: "green",
    OperationState.FAILED: "red",
    OperationState.UNKNOWN: "yellow",
    OperationState.PARKED: "yellow",
    AttemptOutcome.REFUSED: "red",
}
"""Colours of words that stand alone in a cell; only on a terminal, and never the only sign of anything."""


def say(text: str = "") -> None:
    """Print a line."""
    click.echo(text)


def note(text: str) -> None:
    """Print a remark on standard error, where it cannot get into a pipe."""
    click.echo(text, err=True)


def show_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; what JSON has no form for becomes text."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return {"base64": b64encode(value).decode()}
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Sequence() | AbstractSet():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return plain(asdict(value))
        case _:
            return str(value)


def table(headers: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    """Print rows under headers, each column as wide as its widest cell."""
    cells = [[clean(str(cell)) for cell in line] for line in lines]
    widths = [max(map(_width, column)) for column in zip(headers, *cells, strict=True)]
    click.echo(_line(headers, widths, style={"bold": True}))
    for line in cells:
        click.echo(_line(line, widths))


def _line(cells: Sequence[str], widths: Sequence[int], style: Mapping[str, Any] | None = None) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
    padded[-1] = cells[-1]
    return GAP.join(_styled(cell, text, style) for cell, text in zip(cells, padded, strict=True))


def _styled(cell: str, text: str, style: Mapping[str, Any] | None) -> str:
    if style is not None:
        return click.style(text, **style)
    return click.style(text, fg=COLORS[cell]) if cell in COLORS else text


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def clean(text: str) -> str:
    """Show control characters and lone surrogates as escapes: a stored id must not drive the reader's terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def when(ms: int | None) -> str:
    """Return a time as people read it."""
    return "-" if ms is None else utc_text(ms)


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values in two columns, leaving out what is empty."""
    shown = [(name, value) for name, value in pairs if value not in {None, "", "-"}]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{width}}{GAP}{clean(str(value))}")


def operation_json(operation: Operation) -> dict[str, Any]:
    """Return an operation as JSON shows it: flat, times in milliseconds."""
    found = asdict(operation)
    trusted, origin, facts = found.pop("trusted"), found.pop("origin"), found.pop("facts")
    trusted.pop("thread_id")
    found["attempts"], found["age_ms"] = found.pop("attempt"), operation.age
    return {**found, **trusted, **origin, "provider": facts, "provider_key": key_given(operation)}


def key_given(operation: Operation) -> str | None:
    """Return the idempotency key that the provider is given, to search by over there; a local effect has none."""
    if operation.facts.transactional:
        return None
    key = OperationKey(tenant=operation.tenant, operation_id=operation.operation_id)
    return provider_key(key, operation.facts.key_length)


def readable(arguments: Mapping[str, Any], *, reveal: bool) -> dict[str, Any]:
    """Return an effect's arguments as people may see them: credentials made unreadable, unless they are to be revealed.

    One rule, at any depth: by the name that a value has, and by the shape of a text.
    """
    return {**arguments} if reveal else {name: _readable(name, value) for name, value in arguments.items()}


def _readable(name: object, value: Any) -> Any:
    from counterfoil.credentials import REDACTED, is_secret_name, redact_text

    named = isinstance(name, str) and (is_secret_name(name) or name.lower() == "token")
    if named and value not in (None, "", False, True):
        return REDACTED
    match value:
        case str():
            return redact_text(value)
        case Mapping():
            return {key: _readable(key, item) for key, item in value.items()}
        case list() | tuple():
            return [_readable(None, item) for item in value]
        case _:
            return value


def hidden(arguments: Mapping[str, Any] | None, shown: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the arguments of which something is not shown."""
    if arguments is None or shown is None:
        return []
    return [name for name, value in arguments.items() if plain(shown[name]) != plain(value)]


def show_arguments(shown: Mapping[str, Any] | None, unseen: Sequence[str], command: str) -> None:
    """Print arguments, and in one line how to see what of them is hidden."""
    if shown is None:
        say("  its arguments are not stored any more")
        return
    fields([(f"  {name}", repr(value)) for name, value in shown.items()])
    if unseen:
        say(clean(f"Hidden, as it looks like a credential: something of {', '.join(unseen)}. See it with: {command}"))


def approval_json(approval: Approval) -> dict[str, Any]:
    """Return an approval as JSON shows it."""
    return {**asdict(approval), "ran_out": approval.ran_out}


def approval_state(approval: Approval) -> str:
    """Return the state of an approval as people read it."""
    return f"{approval.state}, ran out" if approval.ran_out else approval.state


def case_json(case: Case) -> dict[str, Any]:
    """Return a case as JSON shows it."""
    return asdict(case)


def receipt_json(receipt: Receipt[Any]) -> dict[str, Any]:
    """Return a receipt as JSON shows it; a value that could not be stored is null and `marker` says why."""
    found = asdict(receipt)
    found["value"] = found.pop("stored")
    return found


def age(operation: Operation) -> str:
    """Return how long ago an operation was first asked for."""
    return age_text(operation.age)
