"""B45: a failed message was set aside, later ones for the same object went through, and sending it then undid them.

Sources: https://github.com/rebus-org/Rebus/issues/1067, https://github.com/MassTransit/MassTransit/issues/3512
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from counterfoil import Counterfoil, Delivery, Effect, Found, NotSent, Provider, effect
from counterfoil.testing.clock import FakeClock

STEPS = ("create", "comment", "close")
sent: list[tuple[int, str]] = []
ends: dict[tuple[int, str], Callable[[], Any]] = {}


def post(call: Any, *, ticket: int, step: str) -> str:
    sent.append((ticket, step))
    return str(ends.get((ticket, step), lambda: "done")())


def fail() -> Any:
    raise NotSent("no such customer")


def lose() -> Any:
    raise TimeoutError


TERMS = Delivery(stream="ticket/{ticket}", max_attempts=2)
change: Effect[str] = effect("cases.ticket-step", key="{ticket}/{step}", delivery=TERMS)(post)
asked: Effect[str] = effect(
    "cases.ticket-asked",
    key="asked/{ticket}/{step}",
    delivery=TERMS,
    provider=Provider(lookup=lambda _call, **_more: Found("seen"), lookup_lag="0s"),
)(post)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cf(url: str, clock: FakeClock) -> Iterator[Counterfoil]:
    sent.clear()
    ends.clear()
    with Counterfoil.open(url, clock=clock) as opened:
        yield opened


def enqueue(cf: Counterfoil, made: Effect[str] = change) -> None:
    for ticket, step in [*((5, step) for step in STEPS), (6, "create")]:
        cf.enqueue(made, tenant="t", ticket=ticket, step=step)


def passes(cf: Counterfoil, clock: FakeClock, times: int = 4) -> None:
    for _ in range(times):
        cf.drain(change, asked)
        clock.advance("1h")


def steps(ticket: int) -> list[str]:
    return [step for number, step in sent if number == ticket]


WHO: dict[str, Any] = {"tenant": "t", "by": "ann", "reason": "the customer is known now"}


def requeue(cf: Counterfoil) -> None:
    cf.outbox.requeue("5/create", **WHO)


def retry(cf: Counterfoil) -> None:
    (case,) = cf.review.list(tenant="t").items
    cf.review.resolve(case.case_id, verdict="did_not_happen_retry", expect_version=case.version, **WHO)


@pytest.mark.parametrize("repair", [requeue, retry])
def test_the_whole_object_waits_and_goes_on_in_order_after_the_repair(
    cf: Counterfoil, clock: FakeClock, repair: Callable[[Counterfoil], None]
) -> None:
    ends[5, "create"] = fail
    enqueue(cf)
    passes(cf, clock)
    assert (steps(5), steps(6)) == (["create", "create"], ["create"])
    assert [one.operation_id for one in cf.outbox.list(tenant="t", stream="ticket/5").items] == [
        "5/close",
        "5/comment",
        "5/create",
    ]
    ends.clear()
    repair(cf)
    cf.drain(change)
    assert steps(5) == ["create", "create", "create", "comment", "close"]
    assert (cf.outbox.list(tenant="t").items, cf.review.list(tenant="t").items) == ((), ())


def skip(cf: Counterfoil) -> None:
    cf.outbox.skip("5/create", **WHO)


def close(cf: Counterfoil) -> None:
    (case,) = cf.review.list(tenant="t").items
    cf.review.resolve(case.case_id, verdict="did_not_happen_close", expect_version=case.version, **WHO)


@pytest.mark.parametrize("give_up", [skip, close])
def test_skipping_is_recorded_with_who_and_why_and_the_rest_goes_in_order(
    cf: Counterfoil, clock: FakeClock, give_up: Callable[[Counterfoil], None]
) -> None:
    ends[5, "create"] = fail
    enqueue(cf)
    passes(cf, clock)
    give_up(cf)
    cf.drain(change)
    assert steps(5) == ["create", "create", "comment", "close"]
    detail = cf.operations.get("5/create", tenant="t")
    (said,), (case,) = detail.evidence, detail.cases
    assert (detail.operation.state, detail.operation.settled_by) == ("failed", "verdict")
    assert (said.given_by, said.answer) == ("ann", "did_not_happen_close: the customer is known now")
    assert (case.state, case.verdict_by, case.verdict_reason) == ("resolved", "ann", "the customer is known now")


def test_while_it_backs_off_nothing_overtakes_it(cf: Counterfoil, clock: FakeClock) -> None:
    ends[5, "create"] = fail
    enqueue(cf)
    cf.drain(change)
    cf.drain(change)
    assert steps(5) == ["create"]
    ends.clear()
    passes(cf, clock)
    assert steps(5) == ["create", "create", "comment", "close"]


def test_an_unknown_outcome_holds_its_object_until_it_is_settled(cf: Counterfoil, clock: FakeClock) -> None:
    ends[5, "create"] = lose
    enqueue(cf)
    passes(cf, clock)
    assert (steps(5), steps(6)) == (["create"], ["create"])
    (case,) = cf.review.list(tenant="t").items
    cf.review.resolve(case.case_id, tenant="t", verdict="happened", value="T-5", by="ann", expect_version=1)
    cf.drain(change)
    assert steps(5) == ["create", "comment", "close"]


def test_a_look_up_that_settles_it_lets_its_object_go_on(cf: Counterfoil, clock: FakeClock) -> None:
    ends[5, "create"] = lose
    enqueue(cf, asked)
    passes(cf, clock)
    assert steps(5) == ["create", "comment", "close"]


def test_a_cancelled_step_lets_its_object_go_on(cf: Counterfoil, clock: FakeClock) -> None:
    ends[5, "create"] = fail
    enqueue(cf)
    cf.drain(change)
    cf.outbox.cancel("5/create", **WHO)
    cf.outbox.cancel("5/comment", **WHO)
    passes(cf, clock)
    assert steps(5) == ["create", "close"]


def test_the_same_object_of_another_tenant_waits_for_nothing(cf: Counterfoil, clock: FakeClock) -> None:
    ends[5, "create"] = fail
    cf.enqueue(change, tenant="t", ticket=5, step="create")
    cf.enqueue(change, tenant="u", ticket=5, step="comment")
    passes(cf, clock, 1)
    assert steps(5) == ["create", "comment"]
