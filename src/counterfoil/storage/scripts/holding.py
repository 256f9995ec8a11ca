"""Scripts by which people hold intents back and let them go: pauses, dead letters that are tried again, cancelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.core.machine import advance
from counterfoil.core.states import OPERATION, OperationEvent, OperationState
from counterfoil.storage.script import Row, Script, all_rows, one_row
from counterfoil.storage.scripts.claims import LostRace
from counterfoil.storage.scripts.moves import key_params

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.model import OperationKey

REQUEUED = advance(OPERATION, OperationState.PARKED, OperationEvent.REQUEUED)


def pause(tenant: str, effect: str, stream: str, *, by: str, reason: str) -> Script[Row | None]:
    """Hold intents back: of a tenant, an effect, a stream; an empty name stands for any."""
    return (yield from one_row("put_pause", tenant=tenant, effect=effect, stream=stream, paused_by=by, reason=reason))


def resume(tenant: str, effect: str, stream: str) -> Script[Row | None]:
    """Let intents go again; None if nothing of this name was held back."""
    return (yield from one_row("delete_pause", tenant=tenant, effect=effect, stream=stream))


def pauses() -> Script[Sequence[Row]]:
    """Read what is held back."""
    return (yield from all_rows("list_pauses"))


def requeue_if_unmoved(key: OperationKey, version: int, *, more: int) -> Script[Row | LostRace]:
    """Let a dead letter be tried again, so many times more."""
    row = yield from one_row(
        "requeue_intent_if_unmoved",
        **key_params(key),
        version=version,
        more=more,
        state=REQUEUED,
        expected_state=OperationState.PARKED,
    )
    return row or LostRace()
