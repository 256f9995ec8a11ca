"""`counterfoil receipts`: the proof that an operation's effect happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from counterfoil.cli.session import Session, names_operation, verb

if TYPE_CHECKING:
    from counterfoil.errors import OperationError
    from counterfoil.shown import OperationDetail


@click.group()
def command() -> None:
    """Show the receipt of an operation."""


@command.command()
@verb
@names_operation()
def show(session: Session, operation: str) -> None:
    """Show the receipt of an operation; the exit code tells failed (1), running (7) and unknown (6) apart."""
    import json

    from counterfoil.cli.output import fields, plain, receipt_json, show_json, when

    detail = session.one(operation)
    if (receipt := detail.receipt) is None:
        raise no_receipt(detail)
    if session.as_json:
        show_json(receipt_json(receipt))
        return
    fields(
        (
            ("operation", receipt.operation_id),
            ("tenant", receipt.tenant),
            ("effect", f"{receipt.effect} v{receipt.effect_version}"),
            ("fingerprint", receipt.fingerprint),
            ("attempt", receipt.attempt),
            ("settled", when(receipt.settled_at)),
            ("settled by", detail.operation.settled_by),
            ("value", None if receipt.marker else json.dumps(plain(receipt.stored), ensure_ascii=False)),
            ("unreadable", receipt.marker),
            ("evidence", json.dumps(plain(receipt.evidence), ensure_ascii=False) if receipt.evidence else None),
        )
    )


def no_receipt(detail: OperationDetail) -> OperationError:
    """Say why there is no receipt."""
    from counterfoil.core.reconcile import open_case
    from counterfoil.core.states import OperationState
    from counterfoil.errors import (
        EffectNotSent,
        EffectRefused,
        NoReceipt,
        OperationExpired,
        OperationInProgress,
        OutcomeUnknown,
    )
    from counterfoil.exits import Retry
    from counterfoil.operations import explained

    operation, told, case = detail.operation, explained(detail), open_case(detail.cases)
    if operation.is_purged:
        return OperationExpired(
            " ".join(told.lines),
            tenant=operation.tenant,
            operation_id=operation.operation_id,
            settled_at=operation.settled_at,
            outcome=operation.state,
        )
    kinds: dict[OperationState, type[OperationError]] = {
        OperationState.FAILED: EffectRefused,
        OperationState.UNKNOWN: OutcomeUnknown,
        OperationState.IN_FLIGHT: OperationInProgress,
        OperationState.PENDING: EffectNotSent,
    }
    state = OperationState(operation.state)
    error = kinds.get(state, NoReceipt)(
        " ".join(told.lines),
        tenant=operation.tenant,
        operation_id=operation.operation_id,
        case_id=None if case is None else case.case_id,
    )
    if state in {OperationState.AWAITING_APPROVAL, OperationState.PARKED}:
        error.retry = Retry.AFTER_RECONCILE  # a person may let it happen yet
    return error
