"""`counterfoil review`: the cases that a person must look at, and the verdicts on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import Session, integer, names_operation, verb, verb_to

if TYPE_CHECKING:
    from counterfoil.model import Receipt
    from counterfoil.shown import Case, OperationDetail

EMPTY = "Nothing waits for a person."


@click.group()
def command() -> None:
    """List the cases a person must look at, show one, give a verdict."""


@command.command("list")
@click.option(
    "--state", type=click.Choice(["open", "resolved", "settled", "all"]), default="open", show_default=True,
    help="open: waits; resolved: a person gave a verdict; settled: evidence answered it.",
)  # fmt: skip
@click.option("--after", type=integer, metavar="N", help="Go on after this case's number.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Cases to show, at most 1000.")
@verb
def list_(session: Session, state: str, after: int | None, limit: int) -> None:
    """List cases, the oldest first."""
    from counterfoil.cli.output import case_json, note, say, show_json, table, when
    from counterfoil.operations import check_limit
    from counterfoil.reviews import case_state
    from counterfoil.storage.scripts import reads

    wanted, rows = case_state(None if state == "all" else state), check_limit(limit)
    page = session.read(
        lambda: reads.list_cases(session.tenant, state=wanted, after=after or 0, limit=rows), tenant=session.tenant
    )
    if session.as_json:
        show_json([case_json(each) for each in page.items])
        return
    if not page.items:
        say(EMPTY)
        return
    lines = [(c.case_id, c.tenant, c.operation_id, c.kind, c.state, when(c.opened_at), c.reason) for c in page.items]
    table(["CASE", "TENANT", "OPERATION", "KIND", "STATE", "OPENED", "REASON"], lines)
    if page.next is not None:
        note(f"More: add --after {page.next}")


@command.command()
@click.argument("case", metavar="CASE")
@click.option("--arguments", is_flag=True, help="Also print what the effect was asked for, as long as it is stored.")
@click.option("--reveal", is_flag=True, help="Print of it what looks like a credential, too; brings --arguments.")
@verb
def show(session: Session, case: str, *, arguments: bool, reveal: bool) -> None:
    """Show a case with its operation, attempts and evidence, and the verdicts that it takes."""
    from counterfoil.cli.ops import detail_json, show_history, show_operation
    from counterfoil.cli.output import case_json, clean, say, show_json
    from counterfoil.core.choices import choices, provider_can

    found, detail = _case(session, case)
    if session.as_json:
        options = choices(found, detail)
        told = {"provider_can": provider_can(detail.operation), "choices": options}
        permitted = [each.verdict for each in options]
        asked = _arguments_json(session, detail, reveal=reveal) if arguments or reveal else {}
        show_json({**case_json(found), "permitted": permitted, **told, "operation": detail_json(detail), **asked})
        return
    say(clean(f"{found.case_id} is {found.state} (version {found.version}): {found.kind}; {found.reason}"))
    if found.verdict is not None:
        say(clean(f"{found.verdict_by} said {found.verdict}: {found.verdict_reason or 'no reason given'}"))
    say()
    show_operation(detail.operation)
    show_history(detail)
    if arguments or reveal:
        _show_arguments(session, found, detail, reveal=reveal)
    _show_choices(found, detail)
    say()
    say(clean(_closing_line(found, detail)))


def _arguments(session: Session, detail: OperationDetail) -> dict[str, Any] | None:
    """Return the stored arguments of an operation; None once they are dropped."""
    from counterfoil import codec
    from counterfoil.storage.scripts import reads

    operation = detail.operation
    payload = session.read(lambda: reads.payload(operation.tenant, operation.operation_id), tenant=operation.tenant)
    return None if payload is None else codec.decode(payload)


def _arguments_json(session: Session, detail: OperationDetail, *, reveal: bool) -> dict[str, Any]:
    from counterfoil.cli.output import hidden, readable

    given = _arguments(session, detail)
    shown = None if given is None else readable(given, reveal=reveal)
    return {"arguments": shown, "hidden": hidden(given, shown)}


def _show_arguments(session: Session, case: Case, detail: OperationDetail, *, reveal: bool) -> None:
    from counterfoil.cli.output import say, show_arguments

    found = _arguments_json(session, detail, reveal=reveal)
    say("\nAsked for:")
    command = f"counterfoil review show {case.case_id} --tenant {case.tenant} --reveal"
    show_arguments(found["arguments"], found["hidden"], command)


def _show_choices(case: Case, detail: OperationDetail) -> None:
    from counterfoil.cli.output import clean, say, table
    from counterfoil.core.choices import choices, provider_can, without_verdict

    say()
    say(clean(f"The provider {provider_can(detail.operation)}."))
    if not (options := choices(case, detail)):
        return
    say(clean(f"Without a verdict: {without_verdict(detail)}"))
    say()
    table(["VERDICT", "WHAT IT DOES"], [(each.verdict, each.does) for each in options])
    say()
    for each in options:
        say(clean(each.command))


def _closing_line(case: Case, detail: OperationDetail) -> str:
    from counterfoil.core.explain import resolve_command, value_command
    from counterfoil.core.reconcile import case_without_value
    from counterfoil.core.states import CaseState, OperationState

    if case_without_value(detail) == case:
        return f"Run: {value_command(case)}"
    if CaseState(case.state) is not CaseState.OPEN:
        return f"Run: counterfoil explain {detail.operation.operation_id} --tenant {detail.operation.tenant}"
    return f"Run: {resolve_command(case, OperationState(detail.operation.state))}"


@command.command("open")
@verb_to("verdict")
@names_operation()
def open_(session: Session, operation: str) -> None:
    """Open the case of an operation whose claim ran out before anybody noticed, so that it can be judged."""
    from counterfoil.cli.output import case_json, say, show_json
    from counterfoil.reviews import Reviews

    detail = session.one(operation)
    case = Reviews(session.store).open(operation, tenant=detail.operation.tenant)
    if session.as_json:
        show_json(case_json(case))
        return
    say(f"{case.case_id} is open (version {case.version}). Run: counterfoil review show {case.case_id}")


@command.command()
@click.argument("case", metavar="CASE")
@click.option("--happened", is_flag=True, help="The effect happened; needs --value, --evidence or both.")
@click.option("--did-not-happen", "did_not", is_flag=True, help="It did not; needs --retry or --close, and --reason.")
@click.option("--noted", is_flag=True, help="Seen, for a case about an operation that is settled.")
@click.option("--retry", is_flag=True, help="The next perform sends it again.")
@click.option("--close", is_flag=True, help="It is never sent again.")
@click.option("--value", metavar="JSON", help="What the effect would have returned; becomes the receipt's value.")
@click.option("--evidence", metavar="TEXT", help="What shows it; as a JSON object, array or string also the value.")
@click.option("--reason", default="", metavar="TEXT", help="How it is known.")
@click.option("--by", metavar="NAME", help="Who gives the verdict; by default the operating-system user.")
@click.option("--expect-version", type=integer, metavar="N", help="The version of the case that you saw: review show.")
@verb_to("verdict")
def resolve(session: Session, case: str, **given: Any) -> None:
    """Give a verdict on a case. One verdict wins; whoever comes second is told who was first.

    A verdict "happened" that gave no value takes one later: the same command once more, with --value.
    """
    from counterfoil.reviewing import json_value
    from counterfoil.reviews import Reviews

    verdict = _verdict(case, given)
    found, _ = _case(session, case)
    after = Reviews(session.store).resolve(
        case,
        tenant=found.tenant,
        verdict=verdict,
        by=session.by(given["by"]),
        reason=given["reason"],
        evidence=given["evidence"],
        value=... if given["value"] is None else json_value(given["value"], case_id=case, tenant=found.tenant),
        expect_version=given["expect_version"],
    )
    _, detail = _case(session, case)
    _show_recorded(session, after, detail)


def _show_recorded(session: Session, case: Case, detail: OperationDetail) -> None:
    from counterfoil.cli.output import case_json, clean, receipt_json, say, show_json

    if session.as_json:
        receipt = None if detail.receipt is None else receipt_json(detail.receipt)
        show_json({**case_json(case), "receipt": receipt, "next": _what_next(case, detail)})
        return
    say(clean(f"recorded  {case.case_id}  verdict={case.verdict}  by={case.verdict_by}"))
    if detail.receipt is not None:
        say(clean(_value_line(detail.receipt)))
    say(clean(_what_next(case, detail)))


def _value_line(receipt: Receipt[Any]) -> str:
    """Say what the code that asked will get, and of which type."""
    import json

    from counterfoil.cli.output import plain

    if receipt.marker is not None:
        return f"receipt.value raises ReceiptUnreadable: {receipt.marker}."
    return f"receipt.value is {json.dumps(plain(receipt.stored), ensure_ascii=False)} ({type(receipt.stored).__name__})"


def _what_next(case: Case, detail: OperationDetail) -> str:
    from counterfoil.core.explain import goes_on, value_command
    from counterfoil.core.reconcile import case_without_value
    from counterfoil.core.states import Verdict

    if (lacking := case_without_value(detail)) is not None:
        return f"Give what the effect would have returned. Run: {value_command(lacking)}"
    told = None if case.verdict == Verdict.NOTED else goes_on(detail.operation)
    return told or f"Run: counterfoil explain {case.operation_id} --tenant {case.tenant}"


def _verdict(case: str, given: dict[str, Any]) -> str:
    """Return the verdict that the flags spell, once it is clear which version of the case was seen."""
    if given["expect_version"] is None:
        raise click.UsageError(
            "Missing option '--expect-version': the version of the case that you saw. It is printed by: counterfoil"
            f" review show {case}"
        )
    chosen = tuple(name for name in ("happened", "did_not", "noted", "retry", "close") if given[name])
    verdicts = {
        ("happened",): "happened",
        ("did_not", "retry"): "did_not_happen_retry",
        ("did_not", "close"): "did_not_happen_close",
        ("noted",): "noted",
    }
    if chosen not in verdicts:
        raise click.UsageError(
            "Give one verdict: --happened, --did-not-happen --retry, --did-not-happen --close, --noted."
        )
    return verdicts[chosen]


def _case(session: Session, case_id: str) -> tuple[Case, OperationDetail]:
    from counterfoil.reviewing import case_not_found
    from counterfoil.storage.scripts import reads

    found = session.read(lambda: reads.get_case(session.tenant, case_id), tenant=session.tenant)
    if found is None:
        raise case_not_found(case_id, session.tenant)
    return found
