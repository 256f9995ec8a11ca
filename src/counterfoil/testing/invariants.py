"""What must be true of a ledger and its provider after any crash and recovery."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from counterfoil.core.leases import is_over
from counterfoil.core.states import TERMINAL, AttemptOutcome, CaseKind, CaseState, OperationState
from counterfoil.storage import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from counterfoil.storage.script import Row
    from counterfoil.testing.scenario import Aftermath

_UNSENT = frozenset({OperationState.PENDING, OperationState.AWAITING_APPROVAL})
_NOTHING_HAPPENED = _UNSENT | TERMINAL - {OperationState.SUCCEEDED}


def ledger_invariants(aftermath: Aftermath) -> Iterator[str]:
    """Judge every operation by itself, then the ledger as a whole."""
    contents, counts = aftermath.contents, aftermath.world.provider.counts()
    for row in contents.operations:
        key = (row["tenant"], row["operation_id"])
        attempts = [each for each in contents.attempts if _belongs(each, key)]
        cases = [each for each in contents.cases if _belongs(each, key) and each["state"] == CaseState.OPEN]
        found = [
            *_state(row, aftermath.scenario.may_end),
            *_provider(row, counts.pop(key, 0)),
            *_case(row, cases),
            *_attempts(row, attempts),
        ]
        yield from (f"operation {row['operation_id']} ({row['state']}): {each}" for each in found)
    yield from (f"the provider accepted {n} of {key}, which no operation knows of" for key, n in counts.items())
    if (found_rows := len(contents.operations)) != aftermath.scenario.operations:
        yield f"there are {found_rows} operations, not {aftermath.scenario.operations}"


def one_effect_each(aftermath: Aftermath) -> Iterator[str]:
    """Judge a protocol without a ledger of ours: the provider accepted each operation once."""
    counts = aftermath.world.provider.counts()
    if len(counts) != aftermath.scenario.operations:
        yield f"the provider knows {len(counts)} operations, not {aftermath.scenario.operations}"
    yield from (f"the provider accepted {n} of {key}" for key, n in counts.items() if n != 1)


def _belongs(row: Row, key: tuple[str, str]) -> bool:
    return (row["tenant"], row["operation_id"]) == key


def _state(row: Row, may_end: frozenset[OperationState]) -> Iterator[str]:
    if row["state"] not in may_end:
        yield f"may only end in {', '.join(sorted(may_end))}"
    if (row["receipt"] is not None) != (row["state"] == OperationState.SUCCEEDED):
        yield "a receipt is there if and only if it succeeded"
    if row["state"] == OperationState.IN_FLIGHT and is_over(row["lease_until"], row["now"]):
        yield "its claim is in flight past its lease"
    if (row["payload"] is not None) and row["state"] in TERMINAL:
        yield "a settled operation still holds its payload"


def _provider(row: Row, count: int) -> Iterator[str]:
    if count > 1:
        yield f"the provider accepted it {count} times"
    if rows.facts_from(row["provider"]).transactional:
        return
    if row["state"] == OperationState.SUCCEEDED and not count:
        yield "it has a receipt, but the provider accepted nothing"
    if row["state"] in _NOTHING_HAPPENED and count:
        yield "it counts as not happened, but the provider accepted it"


def _case(row: Row, cases: Sequence[Row]) -> Iterator[str]:
    asks = any(each["kind"] == CaseKind.UNKNOWN_OUTCOME for each in cases)
    if asks != (row["state"] == OperationState.UNKNOWN):
        yield "a case of an unknown outcome is open if and only if it is unknown"


def _attempts(row: Row, attempts: Sequence[Row]) -> Iterator[str]:
    if rows.facts_from(row["provider"]).transactional:
        return
    if [each["attempt"] for each in attempts] != list(range(1, row["attempt"] + 1)):
        yield f"attempt {row['attempt']} of it has the attempts {[each['attempt'] for each in attempts]}"
    if any(one["fence"] >= other["fence"] for one, other in pairwise(attempts)):
        yield "the fences do not grow"
    outcomes = [each["outcome"] for each in attempts]
    if AttemptOutcome.RUNNING in outcomes and row["state"] != OperationState.IN_FLIGHT:
        yield f"an attempt of it still runs: {outcomes}"
    if (AttemptOutcome.SUCCEEDED in outcomes) != (row["state"] == OperationState.SUCCEEDED):
        yield f"an attempt succeeded if and only if it did: {outcomes}"
    if row["state"] == OperationState.UNKNOWN and outcomes[-1:] != [AttemptOutcome.UNKNOWN]:
        yield f"its last attempt is known: {outcomes}"
