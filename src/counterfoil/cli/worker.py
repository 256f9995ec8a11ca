"""`counterfoil worker`: sends what is due and settles what nobody knows, with the effects of the user's own program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import JSON, integer

if TYPE_CHECKING:
    from counterfoil.cli.running import Told


@click.command()
@click.option(
    "--app", required=True, metavar="MODULE:NAME", help="An opened Counterfoil, or a function that returns one."
)
@click.option("--effects", multiple=True, metavar="NAME", help="Only these: several times, or with commas between.")
@click.option(
    "--batch", type=integer, metavar="N", help="Intents that are claimed and recorded together, 10 unless given."
)
@click.option("--concurrency", type=integer, metavar="N", help="Effects that run at once, two batches unless given.")
@click.option(
    "--engine",
    type=click.Choice(["embedded", "procrastinate"]),
    help="What wakes workflows; the app's own unless given.",
)
@click.option("--drain", is_flag=True, help="End when nothing is due any more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end and nothing else.")
@click.pass_context
def command(ctx: click.Context, /, *, as_json: bool, **asked: Any) -> None:
    """Send what is due, and settle what nobody knows, until it is told to stop.

    The module is imported from the current folder or the path, so that it declares its effects and provides their
    resources. On SIGTERM or SIGINT it claims nothing more, finishes what is under way, and exits with 0; a second one
    ends it at once.
    """
    ctx.meta[JSON] = as_json
    from counterfoil.cli.output import clean, note, say
    from counterfoil.cli.running import work

    _show(work(**asked, tell=lambda line: (note if as_json else say)(clean(line))), as_json=as_json)


def _show(told: Told, *, as_json: bool) -> None:
    from counterfoil.cli.output import say, show_json

    if as_json:
        show_json(told)
    else:
        say(told.line)
