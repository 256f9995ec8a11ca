"""B90: ids were remembered for as long as contents, or for minutes; a later repeat began a second run.

Sources: https://github.com/temporalio/documentation/pull/3014, https://github.com/nats-io/nats-server/issues/7302,
https://github.com/aws-powertools/powertools-lambda-python/issues/2023
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import psycopg
import pytest
from langgraph.graph import END, START, StateGraph

from counterfoil import (
    Absent,
    CannotTell,
    Counterfoil,
    Delivery,
    Effect,
    Found,
    NotSent,
    Provider,
    Refused,
    Retention,
    effect,
)
from counterfoil import langgraph as graphs
from counterfoil.core.durations import milliseconds
from counterfoil.effects import REGISTRY
from counterfoil.errors import (
    ContradictoryDeclaration,
    CounterfoilError,
    FingerprintMismatch,
    OperationExpired,
    OutcomeUnknown,
    VerdictConflict,
)
from counterfoil.model import Origin, Trusted
from counterfoil.shown import Purged
from counterfoil.testing.clock import FakeClock
from tests import stores
from tests.colours import COLOURS, Coloured

DAY = Retention(receipt="1d")
KEY = "24h"


class Forgetful:
    """A provider that honours a key for 24 hours, and counts what it did; `mood` is what happens to its next answer."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = lambda: 0
        self.known: dict[str, list[int]] = {}
        self.sends = 0
        self.asked = 0
        self.mood = ""
        self.is_blind = False

    def accept(self, call: Any) -> str:
        mood, self.mood = self.mood, self.mood if self.mood == "down" else ""
        if mood == "down":
            raise NotSent("it is down")
        self.sends += 1
        if mood == "refuse":
            raise Refused("no")
        done = self.known.setdefault(call.provider_key, [])
        if mood != "lose before" and not (done and self.now() < done[-1] + milliseconds(KEY)):
            done.append(self.now())
        if mood.startswith("lose"):
            raise TimeoutError
        return f"paid {call.operation_id}"

    def find(self, call: Any, **_: Any) -> Found | Absent | CannotTell:
        self.asked += 1
        if self.is_blind:
            return CannotTell()
        return Found(f"paid {call.operation_id}") if self.known.get(call.provider_key) else Absent()

    @property
    def effects(self) -> int:
        return sum(map(len, self.known.values()))


PROVIDER = Forgetful()


def pay(call: Any, *, amount: int) -> str:
    return PROVIDER.accept(call)


def declared(name: str, provider: Provider, **more: Any) -> Effect[str]:
    return effect(f"keeping.{name}", key="{request_id}/pay", provider=provider, retention=DAY, **more)(pay)


KEYED = declared("keyed", Provider(key_lifetime=KEY), delivery=Delivery(max_attempts=2))
BOTH = declared("both", Provider(key_lifetime=KEY, lookup=PROVIDER.find, lookup_lag="0s"))
ASKED: dict[str, Any] = {"tenant": "t", "request_id": "r-1", "amount": 5}


@effect("keeping.row", key="{request_id}/row", provider=Provider.transactional(), retention=DAY)
def write_row(tx: Any, *, amount: int) -> str:
    PROVIDER.known["row"] = [*PROVIDER.known.get("row", []), amount]
    return "written"


@pytest.fixture(params=COLOURS)
def place(request: pytest.FixtureRequest, url: str) -> Iterator[Coloured]:
    PROVIDER.__init__()  # type: ignore[misc]
    made = Coloured(request.param, url)
    PROVIDER.now = made.clock.now_ms
    yield made
    made.close()


def expired(place: Coloured, name: str, *arguments: Any, outcome: str = "succeeded", **asked: Any) -> OperationExpired:
    with pytest.raises(OperationExpired) as caught:
        place.call(name, *arguments, **asked)
    assert caught.value.outcome == outcome
    return caught.value


# --- what was done and is forgotten but for its id --------------------------------------------------------------------


def test_a_repeat_after_two_days_is_refused_with_the_date_and_never_executed(place: Coloured) -> None:
    first = place.call("perform", KEYED, **ASKED)
    place.clock.advance("2d")
    assert place.call("perform", KEYED, **ASKED).value == first.value  # nothing goes by itself
    assert place.call("purge") == Purged(receipts=1)
    several = [{"amount": 5}]
    whose = {"tenant": "t", "request_id": "r-1"}
    told = [
        expired(place, "perform", KEYED, **ASKED),
        expired(place, "enqueue", KEYED, **ASKED),
        expired(place, "enqueue", KEYED, **ASKED, delivery=Delivery(delay="1h")),
        expired(place, "enqueue_all", KEYED, several, **whose),
    ]
    assert {each.settled_at for each in told} == {first.settled_at}
    assert "2026-01-01 00:00:00 UTC" in told[0].message
    place.call("drain")
    assert (PROVIDER.effects, PROVIDER.sends) == (1, 1)
    assert place.call("purge") == Purged()


def test_the_digest_outlives_the_content(place: Coloured) -> None:
    place.call("perform", KEYED, **ASKED)
    place.clock.advance("2d")
    place.call("purge")
    for name in ("perform", "enqueue"):
        with pytest.raises(FingerprintMismatch) as caught:
            place.call(name, KEYED, **{**ASKED, "amount": 6})
        assert caught.value.fields == ("amount",)
    assert PROVIDER.effects == 1


def test_at_the_border_it_is_kept_until_the_last_millisecond(place: Coloured) -> None:
    place.call("perform", KEYED, **ASKED)
    place.clock.advance("23h59m59s999ms")
    assert place.call("purge") == Purged()
    assert place.call("perform", KEYED, **ASKED).already_happened
    place.clock.advance("1ms")
    assert place.call("purge") == Purged(receipts=1)
    expired(place, "perform", KEYED, **ASKED)
    assert PROVIDER.effects == 1


def test_a_refusal_is_not_tried_again_once_its_words_are_gone(place: Coloured, url: str) -> None:
    PROVIDER.mood = "refuse"
    with pytest.raises(CounterfoilError):
        place.call("perform", KEYED, **ASKED)
    place.clock.advance("2d")
    assert place.call("purge") == Purged(receipts=1)
    expired(place, "perform", KEYED, **ASKED, outcome="failed")
    expired(place, "enqueue", KEYED, **ASKED, outcome="failed")
    assert (PROVIDER.effects, PROVIDER.sends) == (0, 1)
    words = "select error_text from counterfoil_operation union all select error_text from counterfoil_attempt"
    assert stores.execute(url, words) == [(None,), (None,)]


def test_in_a_branch_an_id_is_remembered_like_any_other(place: Coloured) -> None:
    trusted = Trusted(tenant="t", request_id="r-1", branch="what-if")
    asked = KEYED, {"amount": 5}, trusted, Origin()
    place.call("perform", KEYED, **ASKED)
    place.clock.advance("2d")
    place.call("purge")
    assert place.call("perform_as", *asked).operation_id == "r-1/pay~branch-what-if"  # asked for: another operation
    place.clock.advance("2d")
    assert place.call("purge") == Purged(receipts=1)
    told = expired(place, "perform_as", *asked)
    assert told.operation_id == "r-1/pay~branch-what-if"
    assert PROVIDER.effects == 2


def test_in_the_callers_transaction_it_is_refused_and_writes_nothing(url: str) -> None:
    PROVIDER.__init__()  # type: ignore[misc]
    place = Coloured("sync", url)
    try:
        place.call("perform", write_row, **ASKED)
        place.call("perform", KEYED, **ASKED)
        place.clock.advance("2d")
        assert place.call("purge") == Purged(receipts=2)
        expired(place, "perform", write_row, **ASKED)
        with connected(url) as connection:
            joined = place.cf.join(connection)
            for call, each in ((joined.perform, write_row), (joined.enqueue, KEYED)):
                with pytest.raises(OperationExpired):
                    call(each, **ASKED)
    finally:
        place.close()
    assert PROVIDER.known["row"] == [5]
    assert stores.execute(url, "select count(*) from counterfoil_operation") == [(2,)]


def connected(url: str) -> Any:
    if stores.is_postgres(url):
        return psycopg.connect(url)
    connection = sqlite3.connect(stores.file_of(url), isolation_level=None)
    connection.execute("begin immediate")
    return connection


def test_another_counterfoil_on_the_same_database_remembers_it_too(url: str) -> None:
    PROVIDER.__init__()  # type: ignore[misc]
    first, second = Coloured("sync", url), Coloured("async", url)
    try:
        first.call("perform", KEYED, **ASKED)
        first.clock.advance("2d")
        second.clock.advance("2d")
        assert second.call("purge") == Purged(receipts=1)
        expired(first, "perform", KEYED, **ASKED)
    finally:
        second.close()
        first.close()
    assert PROVIDER.effects == 1


class State(TypedDict, total=False):
    paid: bool


def test_in_a_graph_a_later_run_of_the_same_request_is_refused(url: str) -> None:
    PROVIDER.__init__()  # type: ignore[misc]
    clock, by = FakeClock(), ["perform"]
    asking: dict[str, Any] = {"perform": graphs.perform, "enqueue": graphs.enqueue}

    def node(state: State) -> State:
        asking[by[0]](KEYED, amount=5)
        return {"paid": True}

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node").add_edge("node", END)
    with Counterfoil.open(url, clock=clock) as cf:
        graph = cf.compile(builder)
        cf.run(graph, {}, tenant="t", request_id="r-1", thread_id="first")
        clock.advance("2d")
        assert cf.purge() == Purged(receipts=1)
        for by[0] in ("perform", "enqueue"):
            with pytest.raises(OperationExpired):
                cf.run(graph, {}, tenant="t", request_id="r-1", thread_id=f"again-{by[0]}")
        cf.drain()
    assert (PROVIDER.effects, PROVIDER.sends) == (1, 1)


# --- a dead letter that is tried again after forty days ---------------------------------------------------------------


def dead_letter(place: Coloured) -> Any:
    PROVIDER.mood = "down"
    place.call("enqueue", KEYED, **ASKED)
    for _ in range(2):
        place.call("drain")
        place.clock.advance("10m")
    PROVIDER.mood = ""
    (case,) = place.call("review.list", tenant="t").items
    assert (case.kind, PROVIDER.sends) == ("dead_letter", 0)
    return case


def again(place: Coloured, case: Any, by: str = "verdict") -> None:
    who = {"tenant": "t", "by": "ada", "reason": "it was down"}
    if by == "verdict":
        seen = {"verdict": "did_not_happen_retry", "expect_version": case.version}
        place.call("review.resolve", case.case_id, **who, **seen)
    else:
        place.call(f"outbox.{by}", "r-1/pay", **who)
    place.clock.advance("2h")
    place.call("drain")


@pytest.mark.parametrize("by", ["verdict", "requeue"])
def test_a_dead_letter_of_forty_days_is_sent_once_however_often_it_is_requeued(place: Coloured, by: str) -> None:
    case = dead_letter(place)
    place.clock.advance("40d")
    assert place.call("purge") == Purged()  # nothing is settled
    again(place, case, by)
    assert PROVIDER.effects == 1
    for _ in range(2):
        for other in ("verdict", "requeue", "retry"):
            with pytest.raises(VerdictConflict):
                again(place, case, other)
        place.clock.advance("2d")
        place.call("purge")
    expired(place, "enqueue", KEYED, **ASKED)
    place.call("drain")
    assert (PROVIDER.effects, PROVIDER.sends) == (1, 1)


def test_a_dead_letter_that_was_given_up_is_not_revived(place: Coloured) -> None:
    case = dead_letter(place)
    seen = {"tenant": "t", "by": "ada", "reason": "not wanted", "expect_version": case.version}
    place.call("review.resolve", case.case_id, verdict="did_not_happen_close", **seen)
    place.clock.advance("40d")
    assert place.call("purge") == Purged(receipts=1)
    for other in ("verdict", "requeue", "retry"):
        with pytest.raises(VerdictConflict):
            again(place, case, other)
    expired(place, "enqueue", KEYED, **ASKED, outcome="failed")
    place.call("drain")
    assert PROVIDER.sends == 0


# --- an unknown entry that is older than the provider's key -----------------------------------------------------------


@pytest.mark.parametrize("how", ["perform", "enqueue"])
def test_an_unknown_entry_beyond_the_key_is_not_sent_again_without_a_look_up(place: Coloured, how: str) -> None:
    lose(place, KEYED, how)
    place.clock.advance("25h")
    with pytest.raises(OutcomeUnknown):
        place.call("perform", KEYED, **ASKED)
    place.call("drain")
    assert (PROVIDER.effects, PROVIDER.sends) == (1, 1)
    place.clock.advance("40d")
    assert place.call("purge") == Purged()
    with pytest.raises(OutcomeUnknown):
        place.call("perform", KEYED, **ASKED)
    assert PROVIDER.sends == 1


@pytest.mark.parametrize("how", ["perform", "enqueue"])
@pytest.mark.parametrize(("lost", "sends"), [("lose after", 1), ("lose before", 2)])
def test_with_a_look_up_it_is_asked_for_first(place: Coloured, how: str, lost: str, sends: int) -> None:
    lose(place, BOTH, how, lost)
    place.clock.advance("25h")
    asked = PROVIDER.asked
    place.call("drain")
    receipt = place.call("perform", BOTH, **ASKED) if how == "perform" else drained(place)
    assert receipt.value == "paid r-1/pay"
    assert PROVIDER.asked > asked
    assert (PROVIDER.effects, PROVIDER.sends) == (1, sends)


def lose(place: Coloured, made: Effect[str], how: str, mood: str = "lose after") -> None:
    """Lose the reply, while the provider cannot tell either."""
    PROVIDER.mood, PROVIDER.is_blind = mood, True
    if how == "perform":
        with pytest.raises(OutcomeUnknown):
            place.call("perform", made, **ASKED)
    else:
        place.call("enqueue", made, **ASKED)
        place.call("drain")
    PROVIDER.is_blind = False


def drained(place: Coloured) -> Any:
    place.clock.advance("2h")
    place.call("drain")
    return place.call("operations.get", "r-1/pay", tenant="t").receipt


# --- what is too short is refused -------------------------------------------------------------------------------------


@pytest.fixture
def undeclared() -> Iterator[None]:
    """Forget what a test declares, or no other test could open a database with a short retention."""
    before = dict(REGISTRY.effects)
    yield
    REGISTRY.effects.clear()
    REGISTRY.effects.update(before)


def short(**more: Any) -> Effect[str]:
    return effect("keeping.short", key="{request_id}/pay", **more)(pay)


@pytest.mark.parametrize("kept", ["receipt", "tombstone"])
def test_shorter_than_the_key_is_refused_where_it_is_declared(undeclared: None, kept: str) -> None:
    with pytest.raises(ContradictoryDeclaration, match=r"their \w+ 23h59m59s after .* kept for 1d: so long its pro"):
        short(provider=Provider(key_lifetime=KEY), retention=Retention(**{kept: "23h59m59s"}))
    short(provider=Provider(key_lifetime=KEY), retention=Retention(**{kept: KEY}))


@pytest.mark.parametrize(
    ("delivery", "needed"),
    [
        (Delivery(max_attempts=1000), "5w6d12h28m15s"),
        (Delivery(time_to_live="30d"), "4w2d30s"),
        (Delivery(), "8h18m15s"),
    ],
)
def test_shorter_than_the_longest_retry_is_refused(undeclared: None, delivery: Delivery, needed: str) -> None:
    with pytest.raises(ContradictoryDeclaration, match=f"kept for {needed}.*: its retries may take so long"):
        short(delivery=delivery, retention=Retention(receipt="8h"))


def test_it_is_refused_at_start_and_for_an_effect_that_is_declared_later(undeclared: None, url: str) -> None:
    REGISTRY.effects.clear()
    short(provider=Provider(key_lifetime="14d"))
    with pytest.raises(ContradictoryDeclaration, match="must be kept for 2w"):
        Counterfoil.open(url, retention=Retention(receipt="1w"))
    short()
    with Counterfoil.open(url, retention=Retention(receipt="1w")) as cf:
        assert cf.retention == Retention(receipt="1w")
        later = short(provider=Provider(key_lifetime="14d"))
        for ask in (cf.perform, cf.enqueue):
            with pytest.raises(ContradictoryDeclaration):
                ask(later, **ASKED)
        fitting = short(provider=Provider(key_lifetime="14d"), retention=Retention(receipt="15d"))
        assert cf.enqueue(fitting, **ASKED).is_new
        asked = {**ASKED, "request_id": "r-2"}
        with pytest.raises(ContradictoryDeclaration, match="its retries may take so long"):
            cf.enqueue(fitting, **asked, delivery=Delivery(time_to_live="20d"))
    assert json.dumps(stores.execute(url, "select operation_id from counterfoil_operation")) == '[["r-1/pay"]]'
