"""The root of the command line: groups that are imported on use, and the one place that turns errors into exits."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from counterfoil.errors import CounterfoilError, Exit, InvalidCommand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("counterfoil.cli.demo", "Run a demonstration on this machine: no account, no cloud."),
    "ops": ("counterfoil.cli.ops", "List operations, show one, retry or cancel one."),
    "find": ("counterfoil.cli.find", "Say what an id of any kind belongs to."),
    "explain": (
        "counterfoil.cli.explain",
        "Say why an operation ran, did not run, or waits; or print an error's page.",
    ),
    "approvals": (
        "counterfoil.cli.approvals",
        "List what waits for a decision before it is sent, show it, approve, reject, edit or cancel it.",
    ),
    "outbox": ("counterfoil.cli.outbox", "List what waits to be sent, pause it, requeue or skip dead letters."),
    "workflows": (
        "counterfoil.cli.workflows",
        "List workflows, show one and its steps, deliver an event, cancel, resume or delete one.",
    ),
    "worker": ("counterfoil.cli.worker", "Send what is due, and settle what nobody knows, until it is told to stop."),
    "receipts": ("counterfoil.cli.receipts", "Show the receipt of an operation."),
    "review": ("counterfoil.cli.review", "List the cases a person must look at, show one, give a verdict."),
    "tokens": ("counterfoil.cli.tokens", "Issue tokens that stand for principals, list, rotate and revoke them."),
    "tenants": ("counterfoil.cli.tenants", "Create tenants, list, suspend and resume them."),
    "audit": ("counterfoil.cli.audit", "List who did what to what, and why; export it."),
    "db": (
        "counterfoil.cli.db",
        "Check the database's schema, upgrade it, print its SQL, or remove what is kept no longer.",
    ),
}
"""Each command: the module that holds it as `command`, imported on first use, and its line in the list of commands.

To add a group, write `cli/NAME.py` with `command = click.Group(...)` (or a decorated function named `command`) and
enter it here with the first line of its help. Import nothing heavy at the top of that module: `counterfoil NAME
--help` and shell completion load it.
"""

INTERRUPTED: Final = 130
"""What shells report for a program that was interrupted from the keyboard."""

EPILOG = """For scripts and agents: every verb takes --json and then prints one JSON object or array on standard
output and nothing else; an error is one JSON object on standard error. Exit codes: 0 done, 1 failed, 2 usage, 3 not
found, 4 not allowed, 5 conflict, 6 outcome unknown, 7 timed out, 8 check found something, 130 interrupted."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, and listed without that."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands in the order of the table."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command line; a wrong one is reported as JSON where JSON is asked for."""
        given = [*(sys.argv[1:] if args is None else args)]
        if "--json" not in given or not options.get("standalone_mode", True):
            return super().main(given, *rest, **options)
        try:
            sys.exit(super().main(given, *rest, **{**options, "standalone_mode": False}) or Exit.DONE)
        except click.ClickException as wrong:
            report(InvalidCommand(wrong.format_message()), as_json=True)
            sys.exit(Exit.USAGE)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        """Read the command line, once every word of it is known to be text."""
        if not extra.get("resilient_parsing"):  # a shell that completes words is told nothing
            refuse_undecoded(args)
        return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and turn what it raises into a message on standard error and an exit code."""
        try:
            return super().invoke(ctx)
        except CounterfoilError as error:
            report(error, as_json=bool(ctx.meta.get("counterfoil.json")))
            sys.exit(error.exit)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)


def refuse_undecoded(words: Sequence[str]) -> None:
    """Refuse bytes that are not UTF-8, which Python passes on as lone surrogates: no id and no database holds one.

    Raises:
        UsageError: a word has one; it is not shown, as a terminal could not print it.
    """
    for place, word in enumerate(words, start=1):
        if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
            raise click.UsageError(f"Word {place} after the command's name is not UTF-8. Nothing was done.")


def report(error: CounterfoilError, *, as_json: bool) -> None:
    """Print an error on standard error: what, why and what next, and what prints its page."""
    if as_json:
        import json

        shown = {"code": error.code, "message": error.message, "retry": error.retry, "docs": error.docs}
        click.echo(json.dumps({"error": shown}, ensure_ascii=False), err=True)
        return
    click.echo(f"error[{error.code}]: {error.message}", err=True)
    click.echo(f"docs: counterfoil explain {error.code}", err=True)


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("counterfoil")
    except PackageNotFoundError:  # run from a checkout
        number = "(not installed)"
    click.echo(f"counterfoil {number}")
    ctx.exit()


@click.command(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def cli() -> None:
    """Look at operations and their receipts, and settle what only a person can.

    The database is named by --url, or by COUNTERFOIL_URL, or by [tool.counterfoil] in pyproject.toml.
    """


def main() -> None:
    """Run the command line: the entry point of the `counterfoil` script."""
    cli(prog_name="counterfoil")
