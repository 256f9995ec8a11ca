"""Demonstrations that run on this machine."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from counterfoil.errors import Exit

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from counterfoil.demo.places import Places
    from counterfoil.demo.tickets import Row
    from counterfoil.demo.unknown import Lost, Played


@click.group("demo")
def command() -> None:
    """Run a demonstration on this machine: no account, no cloud."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: rows, replay, versions and what is kept.")
@click.option(
    "--keep",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the databases in this folder, which must be new or empty.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Counterfoil's database, such as postgresql://me@localhost/scratch. Its rows stay there, under tenants of this"
    " run alone.",
)
@click.pass_context
def tickets(ctx: click.Context, *, as_json: bool, keep: Path | None, url: str | None) -> None:
    """Open tickets through kills, retries and resumes: plain LangGraph beside Counterfoil.

    Thirteen everyday situations against a real HTTP ticket server in a process of its own, with really killed
    processes. Both columns are the server's counts. Exit code 8 if one of Counterfoil's is not what it must be.

    Without --url everything is in files that are gone afterwards; plain LangGraph's checkpoints always are in files.
    """
    ctx.meta["counterfoil.json"] = as_json
    from counterfoil.demo.stage import DemoBroken
    from counterfoil.demo.tickets import check_extra, play_all

    if keep and url:
        raise click.BadParameter("what --url names is kept anyway; leave one of the two out.", param_hint="--keep")
    check_extra()
    with _folder(keep) as folder:
        places = _places(Path(folder), url, kept=keep is not None)
        if sys.stderr.isatty():
            click.echo("Playing thirteen situations in both columns, about fifteen seconds ...", err=True)
        try:
            rows = play_all(places)
        except DemoBroken as error:
            click.echo(f"error: the demo broke off: {error}. What it was about stands above.", err=True)
            ctx.exit(Exit.FAILED)
    click.echo(_as_json(rows, places) if as_json else _as_text(rows, places))
    ctx.exit(Exit.DONE if all(row.keeps_promise for row in rows) else Exit.CHECK_FOUND)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: mails_plain, mails_counterfoil, reviews.")
@click.option(
    "--url",
    metavar="URL",
    help="Counterfoil's database, such as postgresql://me@localhost/scratch. Its rows stay there, under a tenant of"
    " this run alone.",
)
@click.option("--ask", is_flag=True, help="On a terminal: give the verdict yourself.")
@click.pass_context
def unknown(ctx: click.Context, *, as_json: bool, url: str | None, ask: bool) -> None:
    """Lose a mail server's reply: two mails with plain LangGraph, with Counterfoil one and a review.

    A real SMTP server in a process of its own takes one invitation and its reply is lost. Then the review is shown and
    settled, and the workflow goes on. All mails are counted in the mailbox. Exit code 8 if a count is not what it must
    be.
    """
    ctx.meta["counterfoil.json"] = as_json
    from counterfoil.demo.tickets import check_extra

    check_extra(("aiosmtpd", "langgraph.graph", "langgraph.checkpoint.sqlite"))
    from counterfoil.demo.stage import DemoBroken

    with _folder(None) as folder:
        try:
            places = _places(Path(folder), url, kept=False)
            played = _play_unknown(places, ask=ask and not as_json and sys.stdin.isatty(), told=not as_json)
        except DemoBroken as error:
            click.echo(f"error: the demo broke off: {error}", err=True)
            ctx.exit(Exit.FAILED)
    if as_json:
        click.echo(json.dumps(played.counts()))
    ctx.exit(Exit.DONE if played.keeps_promise else Exit.CHECK_FOUND)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: cells, bad and what is kept.")
@click.option("--quick", is_flag=True, help="Only the first kill point of each kind: about 20 of 180.")
@click.option(
    "--engine",
    type=click.Choice(["embedded", "procrastinate"]),
    default="embedded",
    help="What wakes the workflows; with procrastinate three workers, of which one is killed at random.",
)
@click.option(
    "--url",
    metavar="URL",
    help="The database, such as postgresql://me@localhost/scratch. Its rows stay there, under tenants of this run"
    " alone.",
)
@click.pass_context
def hiring(ctx: click.Context, *, as_json: bool, quick: bool, engine: str, url: str | None) -> None:
    """Kill the worker of a hiring workflow at every commit and in every effect: one mail, one charge, the same end.

    A workflow of several days screens CVs, invites, waits for times and feedback, charges a fee and writes a report, on
    a clock that is moved. Its worker is a real process, its mails go to a real SMTP server and its charge through the
    real stripe client to a gateway, each in a process of its own, where they are counted. After each kill another
    worker goes on. A person reviews what nobody can know. Exit code 8 if a count is not what it must be.
    """
    ctx.meta["counterfoil.json"] = as_json
    from counterfoil.demo.tickets import check_extra

    check_extra(("aiosmtpd", "langgraph.graph", "stripe"))
    if engine != "embedded" and url is None:
        raise click.BadParameter(
            "procrastinate works in PostgreSQL: name a database with --url.", param_hint="--engine"
        )
    from counterfoil.demo.hiring.matrix import Plan, play_all
    from counterfoil.demo.stage import DemoBroken

    with _folder(None) as folder:
        places = _places(Path(folder), url, kept=False)
        try:
            matrix = play_all(Plan(places=places, engine=engine), quick=quick, tell=_progress)
        except DemoBroken as error:
            click.echo(f"error: the demo broke off: {error}.", err=True)
            ctx.exit(Exit.FAILED)
    from counterfoil.demo.hiring import showing

    shown = showing.as_json(matrix, places) if as_json else showing.as_text(matrix, places)
    click.echo(json.dumps(shown, indent=2) if as_json else shown)
    ctx.exit(Exit.DONE if matrix.keeps_promise else Exit.CHECK_FOUND)


def _progress(played: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{played} of {total} kills played", err=True, nl=played == total)


def _play_unknown(places: Places, *, ask: bool, told: bool) -> Played:
    """Tell the story while it is played: whoever gives the verdict must have seen the review."""
    from counterfoil.demo import telling
    from counterfoil.demo.unknown import Played, look, lose, settle
    from counterfoil.testing.mail_client import CountingMailServer

    with CountingMailServer() as server:
        lost = lose(server, places)
        _say(telling.until_lost(lost), told=told)
        settled = None
        if lost.cases:
            verdict = look(lost, happened=_asked(lost) if ask else None)
            settled = settle(server, places, lost, verdict)
            _say(telling.settled(lost, settled), told=told)
    played = Played(lost=lost, settled=settled)
    _say(telling.in_the_end(played, places), told=told)
    return played


def _say(text: str, *, told: bool) -> None:
    if told:
        click.echo(f"{text}\n")


def _asked(lost: Lost) -> bool:
    return click.confirm(f"Look at the mailbox above. Did {lost.case['operation_id']} happen?", default=True)


def _folder(keep: Path | None) -> AbstractContextManager[str | Path]:
    if keep is None:
        return TemporaryDirectory(prefix="counterfoil-demo-")
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        # with an earlier run's receipts there nothing would be sent
        raise click.BadParameter(f"{keep} is not empty.", param_hint="--keep")
    return nullcontext(keep)


def _places(folder: Path, url: str | None, *, kept: bool) -> Places:
    from counterfoil.demo.places import Places

    return Places.in_folder(folder, kept=kept) if url is None else Places.in_database(folder, url)


def _as_json(rows: list[Row], places: Places) -> str:
    from counterfoil.demo.showing import as_json

    return json.dumps(as_json(rows, places), indent=2)


def _as_text(rows: list[Row], places: Places) -> str:
    from counterfoil.demo.showing import as_text

    return as_text(rows, places)
