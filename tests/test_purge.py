"""What is kept no longer goes, class by class, and what is unsettled, judged or waited for stays."""

from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from counterfoil import Counterfoil, Retention, codec, effect, purging
from counterfoil.core.durations import milliseconds
from counterfoil.core.retention import Drop, Kept, Periods, decide_purge
from counterfoil.core.states import CLOSED_UNSENT, AttemptOutcome, OperationState
from counterfoil.errors import (
    ContradictoryDeclaration,
    InvalidArguments,
    InvalidDuration,
    OperationExpired,
    OutcomeUnknown,
)
from counterfoil.langgraph import perform
from counterfoil.model import PURGED, Origin, Trusted
from counterfoil.shown import Purged
from counterfoil.storage.scripts import claims, moves, settling
from counterfoil.storage.scripts.moves import Outcome
from counterfoil.storage.scripts.settling import Late
from counterfoil.testing.clock import FakeClock
from tests import stores
from tests.colours import COLOURS, Coloured

ALL = Retention(payload="10d", receipt="400d", tombstone="4000d")
ASKED: dict[str, Any] = {"tenant": "t", "request_id": "r-1"}


class Sent:
    """What the effects did, and how the next one ends."""

    count = 0
    error: BaseException | None = None


@effect("purge.send", key="{request_id}/send")
def send(call: Any) -> str:
    Sent.count += 1
    if Sent.error is not None:
        raise Sent.error
    return f"sent {call.operation_id}"


@effect("purge.brief", key="{request_id}/brief", retention=Retention(receipt="20d"))
def brief(call: Any) -> str:
    return "brief"


@pytest.fixture(params=COLOURS)
def place(request: pytest.FixtureRequest, url: str) -> Iterator[Coloured]:
    Sent.count, Sent.error = 0, None
    made = Coloured(request.param, url, retention=ALL)
    yield made
    made.close()


def lost(place: Coloured) -> Any:
    """Lose an outcome, and return the case about it."""
    Sent.error = TimeoutError()
    with pytest.raises(OutcomeUnknown):
        place.call("perform", send, **ASKED)
    Sent.error = None
    return place.call("review.list", tenant="t").items[0]


def judged(place: Coloured, case: Any) -> None:
    given = {"verdict": "happened", "value": "told", "evidence": '"slip 4711"', "by": "ada"}
    place.call("review.resolve", case.case_id, tenant="t", expect_version=case.version, **given)


# --- class by class ---------------------------------------------------------------------------------------------------


def test_each_class_goes_in_its_time(place: Coloured, url: str) -> None:
    judged(place, lost(place))
    place.clock.advance("10d")
    assert place.call("purge") == Purged(payloads=1)
    detail = place.call("operations.get", "r-1/send", tenant="t")
    assert [(each.answer, each.given_by, each.value) for each in detail.evidence] == [("happened", "ada", None)]
    assert detail.receipt.value == "told"
    place.clock.advance("390d")
    assert place.call("purge") == Purged(receipts=1)
    with pytest.raises(OperationExpired):
        place.call("perform", send, **ASKED)
    place.clock.advance("3600d")
    assert place.call("purge") == Purged(tombstones=1)
    for table in ("operation", "attempt", "evidence", "case"):
        assert stores.execute(url, f"select * from counterfoil_{table}") == []  # noqa: S608 - ours
    assert place.call("perform", send, **ASKED).answered_from == "effect"  # the risk that a tombstone's end is
    assert Sent.count == 2


def test_an_effects_own_retention_goes_before_that_of_all(place: Coloured) -> None:
    place.call("perform", brief, **ASKED)
    place.call("perform", send, **ASKED)
    place.clock.advance("20d")
    assert place.call("purge") == Purged(receipts=1)
    with pytest.raises(OperationExpired):
        place.call("perform", brief, **ASKED)
    assert place.call("perform", send, **ASKED).already_happened


def test_it_goes_page_by_page_and_ends_with_what_is_too_young(place: Coloured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "PAGE", 3)
    for number in range(7):
        place.call("perform", brief, **{**ASKED, "request_id": f"r-{number}"})
    place.clock.advance("20d")
    for number in range(7, 12):
        place.call("perform", brief, **{**ASKED, "request_id": f"r-{number}"})
    assert place.call("purge") == Purged(receipts=7)
    assert place.call("purge") == Purged()


def test_one_tenant_is_purged_alone(place: Coloured) -> None:
    for tenant in ("t", "u"):
        place.call("perform", brief, **{**ASKED, "tenant": tenant})
    place.clock.advance("20d")
    assert place.call("purge", tenant="u") == Purged(receipts=1)
    assert place.call("perform", brief, **ASKED).already_happened
    assert place.call("purge") == Purged(receipts=1)


def test_without_a_retention_nothing_goes(url: str) -> None:
    clock = FakeClock()
    with Counterfoil.open(url, clock=clock) as cf:
        cf.perform(send, **ASKED)
        clock.advance("36000d")
        assert cf.purge() == Purged()
        assert cf.perform(send, **ASKED).already_happened


def test_what_is_left_is_explained(place: Coloured) -> None:
    place.call("perform", send, **ASKED)
    place.clock.advance("400d")
    place.call("purge")
    detail = place.call("operations.get", "r-1/send", tenant="t")
    told = place.call("operations.explain", "r-1/send", tenant="t")
    assert told.answer == "It happened once."
    assert "operation-expired" in told.next
    assert told.command.startswith("counterfoil ops show")
    assert detail.operation.is_purged
    assert detail.receipt.marker == PURGED


# --- what stays -------------------------------------------------------------------------------------------------------


def test_what_is_unsettled_stays(place: Coloured) -> None:
    case = lost(place)
    place.clock.advance("5000d")
    assert place.call("purge") == Purged()
    judged(place, case)
    place.clock.advance("9d")
    assert place.call("purge") == Purged()  # counted from when it was settled


def test_what_a_case_is_open_about_stays(place: Coloured, url: str) -> None:
    place.call("perform", send, **ASKED)
    columns = "(seq, tenant, operation_id, kind, state, attempt, reason, opened_at)"
    if stores.is_postgres(url):
        columns = columns.replace("seq, ", "")
    values = ("1, " if "seq" in columns else "") + "'t', 'r-1/send', 'contradicting_receipts', 'open', 1, 'look', 1"
    stores.execute(url, f"insert into counterfoil_case {columns} values ({values})")  # noqa: S608 - ours
    place.clock.advance("5000d")
    assert place.call("purge") == Purged(held=1)
    (case,) = place.call("review.list", tenant="t").items
    place.call("review.resolve", case.case_id, tenant="t", verdict="noted", by="ada", expect_version=case.version)
    assert place.call("purge") == Purged(tombstones=1)


def test_a_late_reply_to_what_was_purged_is_kept_and_changes_nothing(place: Coloured) -> None:
    operation = place.abandon(send, **ASKED)
    job = place.desk.job(send, {}, Trusted(tenant="t", request_id="r-1"), Origin())
    place.clock.advance("1h")
    case = place.call("review.open", operation, tenant="t")
    judged(place, case)
    place.clock.advance("400d")
    assert place.call("purge") == Purged(receipts=1)
    row = place.desk.store.read(lambda: moves.existing(job.key))
    granted = claims.begun(job.request, row["claimed_at"])
    late = place.desk.store.write(lambda: settling.settle(job.request, granted, _returned()))
    assert isinstance(late, Late)
    assert place.call("review.list", tenant="t").items == ()
    assert place.call("purge") == Purged(payloads=1)  # what came in late goes at once: its time is over


def _returned() -> Outcome:
    return Outcome(outcome=AttemptOutcome.SUCCEEDED, receipt=codec.encode("late"))


class State(TypedDict, total=False):
    answer: str


def test_what_a_waiting_run_will_ask_for_stays_until_it_has_gone_on(url: str) -> None:
    Sent.count, Sent.error = 0, None
    clock = FakeClock()

    def node(state: State) -> State:
        receipt = perform(send)
        return {"answer": f"{interrupt('?')}: {receipt.value}"}

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node").add_edge("node", END)
    with Counterfoil.open(url, retention=ALL, clock=clock) as cf:
        graph = cf.compile(builder)
        cf.run(graph, {}, **ASKED, thread_id="t-1")
        clock.advance("5000d")
        assert cf.purge() == Purged(held=1)
        state = cf.run(graph, Command(resume="yes"), tenant="t", thread_id="t-1")
        assert state["answer"] == "yes: sent r-1/send"
        assert cf.purge() == Purged(tombstones=1)
    assert Sent.count == 1


def test_what_a_failed_run_will_ask_for_stays(url: str) -> None:
    Sent.count, Sent.error = 0, None
    clock, works = FakeClock(), [False, True]

    def node(state: State) -> State:
        receipt = perform(send)
        if not works.pop(0):
            raise ValueError("afterwards")
        return {"answer": str(receipt.value)}

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node").add_edge("node", END)
    with Counterfoil.open(url, retention=ALL, clock=clock) as cf:
        graph = cf.compile(builder)
        with pytest.raises(ValueError, match="afterwards"):
            cf.run(graph, {}, **ASKED, thread_id="t-1")
        clock.advance("5000d")
        assert cf.purge() == Purged(held=1)
        assert cf.run(graph, None, tenant="t", thread_id="t-1")["answer"] == "sent r-1/send"
    assert Sent.count == 1


# --- deciding, and declaring ------------------------------------------------------------------------------------------

DAY = milliseconds("1d")


def kept(**more: Any) -> Kept:
    plain: dict[str, Any] = {"settled_at": 0, "first_attempt_at": 0, "key_lifetime": None, "has_payload": True}
    return Kept(**{**plain, "state": OperationState.SUCCEEDED, "is_purged": False, **more})


@pytest.mark.parametrize(
    ("now", "drop"),
    [(0, "nothing"), (DAY - 1, "nothing"), (DAY, "payload"), (2 * DAY - 1, "payload"), (2 * DAY, "receipt"),
     (3 * DAY - 1, "receipt"), (3 * DAY, "tombstone"), (9 * DAY, "tombstone")],
)  # fmt: skip
def test_the_strongest_class_that_is_over_goes(now: int, drop: str) -> None:
    assert decide_purge(kept(), Periods(payload=DAY, receipt=2 * DAY, tombstone=3 * DAY), now) == drop


def test_a_receipt_outlives_the_key_that_its_operation_was_sent_under() -> None:
    periods = Periods(receipt=DAY, tombstone=DAY)
    assert decide_purge(kept(key_lifetime=3 * DAY, has_payload=False), periods, 3 * DAY - 1) is Drop.NOTHING
    assert decide_purge(kept(key_lifetime=3 * DAY), periods, 3 * DAY) is Drop.TOMBSTONE


@pytest.mark.parametrize("state", sorted(CLOSED_UNSENT))
def test_what_was_never_sent_has_no_receipt_to_lose(state: OperationState) -> None:
    assert decide_purge(kept(state=state, has_payload=False), Periods(receipt=DAY), 9 * DAY) is Drop.NOTHING


def test_what_is_purged_is_not_purged_again() -> None:
    assert decide_purge(kept(is_purged=True, has_payload=False), Periods(receipt=DAY), 9 * DAY) is Drop.NOTHING


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        (Periods(), Periods(payload=3, receipt=6, tombstone=9)),
        (Periods(payload=7), Periods(payload=7, receipt=7, tombstone=9)),
        (Periods(receipt=2), Periods(payload=2, receipt=2, tombstone=9)),
        (Periods(receipt=12), Periods(payload=3, receipt=12, tombstone=12)),
        (Periods(tombstone=1), Periods(payload=1, receipt=1, tombstone=1)),
        (Periods(payload=1, tombstone=20), Periods(payload=1, receipt=6, tombstone=20)),
    ],
)
def test_an_effects_own_periods_bound_those_that_it_leaves_to_all(own: Periods, merged: Periods) -> None:
    assert own.over(Periods(payload=3, receipt=6, tombstone=9)) == merged
    assert own.over(Periods()) == own


@pytest.mark.parametrize(
    "given",
    [{"payload": "2d", "receipt": "1d"}, {"receipt": "2d", "tombstone": "1d"}, {"payload": "2d", "tombstone": "1d"}],
)
def test_a_class_cannot_outlast_the_one_that_takes_it_along(given: dict[str, str]) -> None:
    with pytest.raises(ContradictoryDeclaration, match="at least as long"):
        Retention(**given)


def test_a_counterfoil_takes_a_retention_and_nothing_else() -> None:
    with pytest.raises(InvalidArguments, match="write retention=Retention"):
        Counterfoil.open("sqlite:///:memory:", retention="1d")  # type: ignore[arg-type]


def test_a_number_is_no_duration() -> None:
    with pytest.raises(InvalidDuration, match=r"Retention\(receipt=...\)"):
        Retention(receipt=30)  # type: ignore[arg-type]


def test_an_effect_takes_a_retention_and_nothing_else() -> None:
    with pytest.raises(ContradictoryDeclaration, match="write retention=Retention"):
        effect("purge.wrong", key="{request_id}", retention="1d")(lambda call: None)  # type: ignore[arg-type]
