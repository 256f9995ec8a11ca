"""Scripts that read for people: pages of operations and cases, one operation whole, and what an id belongs to.

Each takes a tenant. None stands for all tenants and is for the operator of the database (the command line), never for
a caller of the library.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.branches import MARK, plain_id
from counterfoil.core.provider_key import could_be_provider_key, provider_key
from counterfoil.core.states import TERMINAL, CaseState, OperationState, Sender
from counterfoil.model import OperationKey, Page
from counterfoil.shown import Case, Hit, Message, Operation, OperationDetail
from counterfoil.storage import rows
from counterfoil.storage.rows import NEWEST
from counterfoil.storage.script import Row, Script, all_rows, one_row

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS_AT_ONCE: Final = 1000
"""Operation ids read at once while looking for the one that a provider key was derived from."""
LONGEST_LINEAGE: Final = 100
"""Branches of one business action that are shown with it."""
_BEYOND: Final = "\U0010ffff"  # sorts after every character that may follow a prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a list of operations is narrowed to; times in milliseconds, `before` is where the page before ended."""

    state: OperationState | None = None
    sender: Sender | None = None
    effect: str | None = None
    request_id: str | None = None
    thread_id: str | None = None
    older_than: int | None = None
    newer_than: int | None = None
    before: int = NEWEST
    limit: int = 50

    def filters(self) -> dict[str, Any]:
        """Return the parameters that every list takes; one row more than the page tells whether it is the last."""
        names = ("state", "sender", "effect", "thread_id", "older_than", "newer_than", "before")
        return {**{name: getattr(self, name) for name in names}, "limit": self.limit + 1}


# --- lists -----------------------------------------------------------------------------------------------------------


def list_operations(tenant: str | None, wish: Wish) -> Script[Page[Operation]]:
    """Return one page of operations, the newest first."""
    found: list[Row] = []
    for each in (yield from tenants(tenant)):
        found += yield from _of_tenant(each, wish)
    found.sort(key=itemgetter("seq"), reverse=True)
    return _page([rows.operation(row) for row in found[: wish.limit]], more=len(found) > wish.limit)


def _of_tenant(tenant: str, wish: Wish) -> Script[Sequence[Row]]:
    """Read a page by the index that narrows it most; few operations are in another state than `succeeded`."""
    filters = {**wish.filters(), "tenant": tenant}
    if wish.request_id is not None:
        return (yield from all_rows("list_operations_of_request", **filters, request_id=wish.request_id))
    if wish.thread_id is not None:
        return (yield from all_rows("list_operations_of_thread", **filters))
    if wish.state not in {None, OperationState.SUCCEEDED}:
        return (yield from all_rows("list_operations_in_state", **filters, in_state=wish.state))
    return (yield from all_rows("list_operations", **filters))


def list_intents(tenant: str | None, wish: Wish, *, unsettled: bool, stream: str | None) -> Script[Page[Operation]]:
    """Return one page of what a dispatcher sends, the newest first: in one state, not settled, or all."""
    asked = replace(wish, sender=Sender.DISPATCHER)
    found: list[Row] = []
    for each in (yield from tenants(tenant)):
        if stream is not None:
            page = {**asked.filters(), "tenant": each, "stream": stream}
            found += yield from all_rows("list_operations_of_stream", **page)
        else:
            for state in _UNSETTLED if unsettled else (wish.state,):
                found += yield from _of_tenant(each, replace(asked, state=state))
    found.sort(key=itemgetter("seq"), reverse=True)
    return _page([rows.operation(row) for row in found[: wish.limit]], more=len(found) > wish.limit)


_UNSETTLED = tuple(state for state in OperationState if state not in TERMINAL)


def get_intent(tenant: str | None, operation_id: str) -> Script[tuple[Message, ...]]:
    """Return an intent with what holds it back: none, one, or without a tenant one for each that uses the id."""
    found = []
    for detail in (yield from get_operation(tenant, operation_id)):
        if detail.operation.sender == Sender.DISPATCHER:
            found.append((yield from _message(detail)))  # noqa: PERF401 - it yields
    return tuple(found)


def _message(detail: OperationDetail) -> Script[Message]:
    operation, head = detail.operation, None
    if operation.stream is not None and operation.settled_at is None:
        head = yield from one_row(
            "get_stream_head", tenant=operation.tenant, stream=operation.stream, before=operation.seq
        )
    pauses = [rows.pause(row) for row in (yield from all_rows("list_pauses"))]
    return Message(
        detail=detail,
        pauses=tuple(pause for pause in pauses if pause.holds(operation)),
        behind=None if head is None else head["operation_id"],
    )


def tenants(tenant: str | None) -> Script[Sequence[str]]:
    """Return the tenant that is asked about, or all of them."""
    if tenant is not None:
        return [tenant]
    return [row["tenant"] for row in (yield from all_rows("list_tenants_any_tenant"))]


def _page(items: Sequence[Operation], *, more: bool) -> Page[Operation]:
    return Page(items=tuple(items), next=items[-1].seq if more and items else None)


def count_operations(tenant: str | None) -> Script[dict[str, int]]:
    """Count operations by state; every state is there."""
    counts = {state.value: 0 for state in OperationState}
    for each in (yield from tenants(tenant)):
        for row in (yield from all_rows("count_operations", tenant=each)):
            counts[row["state"]] += row["n"]
    return counts


def list_cases(tenant: str | None, *, state: CaseState | None, after: int, limit: int) -> Script[Page[Case]]:
    """Return one page of cases, the oldest first: nobody's case waits for ever behind newer ones."""
    found: list[Row] = []
    for each in (yield from tenants(tenant)):
        page = {"tenant": each, "after": after, "limit": limit + 1}
        if state is None:
            found += yield from all_rows("list_cases", **page)
        else:
            found += yield from all_rows("list_cases_in_state", **page, state=state)
    found.sort(key=itemgetter("seq"))
    return rows.paged(found, limit, rows.case)


# --- one -------------------------------------------------------------------------------------------------------------


def payload(tenant: str, operation_id: str) -> Script[bytes | None]:
    """Read what an operation's effect is given, as long as it is stored."""
    row = yield from one_row("get_operation", tenant=tenant, operation_id=operation_id)
    stored: bytes | None = None if row is None else row["payload"]
    return stored


def get_operation(tenant: str | None, operation_id: str) -> Script[tuple[OperationDetail, ...]]:
    """Return the operation with this id, whole: none, one, or without a tenant one for each that uses the id."""
    found = []
    for each in (yield from tenants(tenant)):
        row = yield from one_row("get_operation", tenant=each, operation_id=operation_id)
        if row is not None:
            found.append((yield from _whole(row)))
    return tuple(found)


def _whole(row: Row) -> Script[OperationDetail]:
    key = {"tenant": row["tenant"], "operation_id": row["operation_id"]}
    attempts = yield from all_rows("list_attempts", **key)
    evidence = yield from all_rows("list_evidence", **key)
    cases = yield from all_rows("list_cases_of_operation", **key)
    asked = yield from all_rows("list_approvals_of_operation", **key)
    lineage = yield from _lineage(row)
    succeeded = row["state"] == OperationState.SUCCEEDED
    return OperationDetail(
        operation=rows.operation(row),
        attempts=tuple(map(rows.attempt, attempts)),
        evidence=tuple(map(rows.piece_of_evidence, evidence)),
        cases=tuple(map(rows.case, cases)),
        receipt=rows.receipt(row, "receipt") if succeeded else None,
        lineage=tuple(map(rows.operation, lineage)),
        approvals=tuple(map(rows.approval, asked)),
    )


def _lineage(row: Row) -> Script[list[Row]]:
    """Read what else was performed of a business action, the main line first, a branch before those that leave it."""
    tenant, plain = row["tenant"], plain_id(row["operation_id"])
    main = yield from all_rows("get_operation", tenant=tenant, operation_id=plain)
    prefix = plain + MARK
    page = {"prefix": prefix, "beyond": prefix + _BEYOND, "limit": LONGEST_LINEAGE}
    branches = yield from all_rows("find_operations_by_prefix", tenant=tenant, **page)
    return [one for one in (*main, *branches) if one["operation_id"] != row["operation_id"]]


def get_case(tenant: str | None, case_id: str) -> Script[tuple[Case, OperationDetail] | None]:
    """Return a case with its operation."""
    seq = rows.case_seq(case_id)
    for each in (yield from tenants(tenant)):
        row = None if seq is None else (yield from one_row("get_case", tenant=each, seq=seq))
        if row is not None:
            (detail,) = yield from get_operation(each, row["operation_id"])
            return rows.case(row), detail
    return None


# --- find ------------------------------------------------------------------------------------------------------------


def find(tenant: str | None, text: str, *, limit: int) -> Script[tuple[Hit, ...]]:
    """Return the operations that an id of any kind leads to; the last resorts are tried only if nothing else fits.

    Exact ids come first: an operation's, that of a case, an approval or a grant about one, or one of the request,
    workflow, thread, checkpoint, run or trace. Then the beginning of an operation's id. Then a provider key, which is
    derived and not stored: each operation's is computed and compared, about a second for a million of them.
    """
    hits: list[Hit] = []
    if not text:
        return ()
    for each in (yield from tenants(tenant)):
        for row in (yield from all_rows("find_operations", tenant=each, id=text, limit=limit)):
            hits.append(Hit(found_by=row["found_by"], operation=rows.operation(row)))  # noqa: PERF401 - it yields
    hits += yield from _by_number(tenant, text)
    for last_resort in (_by_prefix, _by_provider_key):
        if not hits:
            for each in (yield from tenants(tenant)):
                hits += yield from last_resort(each, text, limit)
    return tuple(islice(hits, limit))


def _by_number(tenant: str | None, text: str) -> Script[list[Hit]]:
    """Find by the id of a case, an approval or a grant; what a grant permits need not have been asked for."""
    numbers = {"case": rows.case_seq(text), "approval": rows.approval_seq(text), "grant": rows.grant_seq(text)}
    found = []
    for kind, seq in numbers.items():
        for each in [] if seq is None else (yield from tenants(tenant)):
            about = yield from _about(kind, each, seq)
            if about is not None:
                found.append(Hit(found_by=kind, operation=rows.operation(about)))
    return found


def _about(kind: str, tenant: str, seq: int | None) -> Script[Row | None]:
    """Read the operation that a case, an approval or a grant is about."""
    if kind == "grant":
        page = yield from all_rows("list_grants", tenant=tenant, before=(seq or 0) + 1, limit=1)
        row = next((one for one in page if one["seq"] == seq), None)
    else:
        row = yield from one_row(f"get_{kind}", tenant=tenant, seq=seq)
    if row is None:
        return None
    return (yield from one_row("get_operation", tenant=tenant, operation_id=row["operation_id"]))


def _by_prefix(tenant: str, text: str, limit: int) -> Script[list[Hit]]:
    found = yield from all_rows(
        "find_operations_by_prefix", tenant=tenant, prefix=text, beyond=text + _BEYOND, limit=limit
    )
    return [Hit(found_by="beginning of the operation id", operation=rows.operation(row)) for row in found]


def _by_provider_key(tenant: str, text: str, _limit: int) -> Script[list[Hit]]:
    after = 0
    while could_be_provider_key(text):
        ids = yield from all_rows("list_operation_ids", tenant=tenant, after=after, limit=KEYS_AT_ONCE)
        for row in ids:
            if provider_key(OperationKey(tenant=tenant, operation_id=row["operation_id"])).startswith(text):
                whole = yield from one_row("get_operation", tenant=tenant, operation_id=row["operation_id"])
                return [Hit(found_by="provider key", operation=rows.operation(whole))] if whole is not None else []
        if len(ids) < KEYS_AT_ONCE:
            break
        after = ids[-1]["seq"]
    return []
