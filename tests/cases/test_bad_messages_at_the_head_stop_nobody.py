"""B42: always-failing old rows filled each batch, so that new rows were never tried.

Sources: https://github.com/MarcosRabadan/Agendia/issues/260, https://github.com/Particular/ServiceControl/issues/2148
"""

from collections.abc import Iterator
from typing import Any

import pytest

from counterfoil import Counterfoil, Delivery, Effect, NotSent, Refused, effect
from counterfoil.testing.clock import FakeClock

BATCH = 10
BAD = [f"bad-{number}" for number in range(10)]
GOOD = [f"good-{number}" for number in range(5)]
ATTEMPTS = 3
sent: list[tuple[str, str]] = []
mended: set[str] = set()


def post(call: Any, *, text: str) -> str:
    sent.append((call.tenant, text))
    if text.startswith("bad") and text not in mended:
        raise NotSent("no such channel")
    if text.startswith("refused"):
        raise Refused("never")
    if text.startswith("lost"):
        raise TimeoutError
    return text


message: Effect[str] = effect("cases.head", key="message/{text}", delivery=Delivery(max_attempts=ATTEMPTS))(post)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cf(url: str, clock: FakeClock) -> Iterator[Counterfoil]:
    sent.clear()
    mended.clear()
    with Counterfoil.open(url, clock=clock) as opened:
        yield opened


def enqueue(cf: Counterfoil, *texts: str, tenant: str = "t") -> None:
    for text in texts:
        cf.enqueue(message, tenant=tenant, text=text)


def one_pass(cf: Counterfoil) -> None:
    cf.drain(message, batch=BATCH, concurrency=BATCH)


def tried(text: str, tenant: str = "t") -> int:
    return sent.count((tenant, text))


def test_good_rows_behind_a_batch_of_bad_ones_go_in_the_first_pass(cf: Counterfoil, clock: FakeClock) -> None:
    enqueue(cf, *BAD, *GOOD)
    enqueue(cf, *GOOD, tenant="other")
    one_pass(cf)
    assert {tried(text) for text in GOOD} == {tried(text, "other") for text in GOOD} == {1}
    assert {tried(text) for text in BAD} == {1}
    for _ in range(ATTEMPTS):
        clock.advance("1h")
        one_pass(cf)
    assert {tried(text) for text in BAD} == {ATTEMPTS}
    assert {tried(text) for text in GOOD} == {1}
    parked = cf.outbox.list(tenant="t", state="parked").items
    assert sorted(one.operation_id for one in parked) == [f"message/{text}" for text in BAD]
    assert {one.error_text for one in parked} == {"no such channel"}
    reasons = {case.reason for case in cf.review.list(tenant="t").items}
    assert reasons == {"its tries are used up; the last one: no such channel"}


def test_dead_letters_are_requeued_and_go_once(cf: Counterfoil, clock: FakeClock) -> None:
    enqueue(cf, *BAD)
    for _ in range(ATTEMPTS):
        one_pass(cf)
        clock.advance("1h")
    mended.update(BAD)
    for one in cf.outbox.list(tenant="t", state="parked").items:
        cf.outbox.requeue(one.operation_id, tenant="t", by="ann", reason="the channel is back")
    one_pass(cf)
    assert {tried(text) for text in BAD} == {ATTEMPTS + 1}
    assert cf.operations.counts(tenant="t")["succeeded"] == len(BAD)
    assert (cf.review.list(tenant="t").items, cf.outbox.list(tenant="t").items) == ((), ())


@pytest.mark.parametrize("kind", ["refused", "lost"])
def test_rows_that_are_refused_or_lost_stop_nobody_either(cf: Counterfoil, clock: FakeClock, kind: str) -> None:
    bad = [f"{kind}-{number}" for number in range(2 * BATCH)]
    enqueue(cf, *bad, *GOOD)
    for _ in range(3):
        one_pass(cf)
        clock.advance("1h")
    assert {tried(text) for text in (*bad, *GOOD)} == {1}


def test_bad_rows_that_are_due_again_leave_room_for_new_ones(cf: Counterfoil, clock: FakeClock) -> None:
    enqueue(cf, *BAD)
    one_pass(cf)
    for number, text in enumerate(GOOD):
        clock.advance("1m")  # all bad ones are due again, and older
        enqueue(cf, text)
        one_pass(cf)
        assert tried(text) == 1, number


def test_a_paused_effect_at_the_head_stops_no_other(cf: Counterfoil) -> None:
    other: Effect[str] = effect("cases.head-other", key="other/{text}")(post)
    cf.outbox.pause(effect="cases.head", by="ann", reason="maintenance")
    enqueue(cf, *(f"waiting-{number}" for number in range(3 * BATCH)))
    cf.enqueue(other, tenant="t", text="good")
    cf.drain(message, other, batch=BATCH, concurrency=BATCH)
    assert sent == [("t", "good")]
