"""Show a run of the thirteen situations: as a table for people, as plain data for programs."""

import platform
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from counterfoil.demo.places import Places
from counterfoil.demo.steps import Report
from counterfoil.demo.tickets import Row

PLAIN, MANAGED = "plain LangGraph", "with Counterfoil"
TOTALS: Final = (
    "The ticket server's own counts: where {requests} tickets are right, plain LangGraph opened {plain}, Counterfoil"
    " {managed}{unknown}."
)
GRAPH: Final = Path(__file__).with_name("graph.py")
_PACKAGES: Final = (
    "counterfoil",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "httpx",
    "psycopg",
)


# --- for people -------------------------------------------------------------------------------------------------------


def as_text(rows: Sequence[Row], places: Places) -> str:
    """Return the table, the totals, the replay lines, what broke its promise, and what to do next."""
    broken = [_broken(row) for row in rows if not row.keeps_promise]
    kept = [where(places)] if places.is_named else []
    return "\n\n".join([table(rows), totals(rows), replay_lines(rows), *broken, *kept, what_next(places)])


def table(rows: Sequence[Row]) -> str:
    """Return the aligned table."""
    width = max(len(row.situation.title) for row in rows)
    head = f"{'tickets opened, as the server counted':{width}}   {PLAIN}   {MANAGED}"
    lines = [
        f"{row.situation.title:{width}}   {row.plain.tickets:^{len(PLAIN)}}   {_cell(row):^{len(MANAGED)}}".rstrip()
        for row in rows
    ]
    return "\n".join([head, "-" * len(head), *lines])


def _cell(row: Row) -> str:
    played = row.counterfoil
    if row.situation.asks_again:
        return f"{played.before}, then {played.tickets}"
    return f"{played.tickets} ({played.unknown} unknown)" if played.unknown else str(played.tickets)


def totals(rows: Sequence[Row]) -> str:
    """Return the totals as one sentence."""
    unknown = sum(row.counterfoil.unknown for row in rows)
    return TOTALS.format(
        requests=sum(row.situation.requests for row in rows),
        plain=sum(row.plain.tickets for row in rows),
        managed=sum(row.counterfoil.tickets for row in rows),
        unknown=f", with {unknown} outcome reported as unknown and never guessed" if unknown else "",
    )


def replay_lines(rows: Iterable[Row]) -> str:
    """Return what happened in the node that asks a person after its POST."""
    plain, managed = _replay_row(rows).replays().values()
    return (
        "A person is asked after the POST: node calls/tickets before/tickets after [ticket ids the node saw]\n"
        f"  {PLAIN} {plain}, {MANAGED} {managed}"
    )


def where(places: Places) -> str:
    """Say what was written into a database that is not the demo's own."""
    return (
        f"Counterfoil's rows stay in {places.shown}\n  under the tenants {' and '.join(places.tenants)}, which are this"
        " run's alone; no other row was touched.\n  Plain LangGraph kept its checkpoints in SQLite files, which are"
        " gone."
    )


def what_next(places: Places) -> str:
    """Return what to do with the databases, and where the graph is."""
    command = name_of_command()
    if places.kept:
        tenant = f"--tenant {places.tenants[0]} " if places.is_named else ""
        look = f"{command} ops list {tenant}--url {shlex.quote(places.shown)}"
    else:
        look = f"{command} demo tickets --keep FOLDER && {command} ops list --url sqlite:///FOLDER/counterfoil.db"
    return (
        f"Next: the operations and their receipts\n  {look}\nand the graph, with the one line that differs\n  {GRAPH}"
    )


def name_of_command() -> str:
    """Return what to type for `counterfoil`, also where it is not on the path."""
    return "counterfoil" if shutil.which("counterfoil") else f"{shlex.quote(sys.executable)} -m counterfoil"


def _broken(row: Row) -> str:
    return (
        f"NOT AS IT MUST BE: {row.situation.slug} must leave {row.situation.requests} and {row.situation.unknown}"
        f" unknown, with runs that end {', '.join(row.situation.ends)}; its runs: {note(row.counterfoil.reports)}."
    )


# --- for programs -----------------------------------------------------------------------------------------------------


def as_json(rows: Sequence[Row], places: Places) -> dict[str, Any]:
    """Return the whole run as plain data."""
    return {
        "kept": {"database": places.shown, "tenants": places.tenants} if places.kept else None,
        "rows": [_row(row) for row in rows],
        "replay": {column: asdict(details) for column, details in _replay_row(rows).replays().items()},
        "versions": versions(),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "situation": row.situation.slug,
        "plain": row.plain.tickets,
        "counterfoil": row.counterfoil.before if row.situation.asks_again else row.counterfoil.tickets,
        "approved_again": row.counterfoil.tickets if row.situation.asks_again else None,
        "unknown": row.counterfoil.unknown,
        "note": note(row.counterfoil.reports),
    }


def _replay_row(rows: Iterable[Row]) -> Row:
    return next(row for row in rows if row.situation.slug == "interrupt-after-post")


_SOURCES: Final[Mapping[str, str]] = {
    "effect": "posted",
    "lookup": "found by look-up",
    "receipt": "answered from the receipt",
}


def note(reports: Iterable[Report]) -> str:
    """Say in a few words how Counterfoil's runs went, one after another."""
    return "; ".join(_told(report) for report in reports)


def _told(report: Report) -> str:
    case = f" on case {report.detail}" if report.end == "parked" and report.detail else ""
    return ", ".join([*(_SOURCES.get(source, source) for source in report.sources), report.end + case])


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a checkout
        return "(not installed)"
