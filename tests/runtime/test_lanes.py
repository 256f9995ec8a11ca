"""How much of which effect may be sent: places, rates, breaks and fair shares, as functions of a given time."""

from typing import Any

import pytest

from counterfoil import Effect, Provider, effect
from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import ContradictoryDeclaration
from counterfoil.runtime.lanes import BREAKS_AFTER, FIRST_BREAK_S, FOREVER, RESCAN_S, Breaker, Gate, Lanes

NOT_SENT, SUCCEEDED, REFUSED = AttemptOutcome.NOT_SENT, AttemptOutcome.SUCCEEDED, AttemptOutcome.REFUSED
LIMITED = Provider(concurrency=3)


def made(name: str, provider: Provider | None = None) -> Effect[Any]:
    return effect(f"lanes.{name}", key="{request_id}", provider=provider or Provider())(lambda call: None)


def test_effects_of_one_provider_share_its_places() -> None:
    lanes = Lanes([made("one", LIMITED), made("other", LIMITED)])
    searches = {lane.effect.name: search.limit for lane, search in lanes.searches(10, 0.0)}
    assert sum(searches.values()) == 3
    for lane, _ in lanes.searches(10, 0.0)[:1]:
        for _ in range(3):
            lane.enter()
    assert lanes.searches(10, 0.0) == []
    assert lanes.next_poll(0.0) == FOREVER


def test_a_rate_lets_through_a_seconds_worth_at_the_most() -> None:
    gate = Gate.of(Provider(rate="10/s"))
    assert gate.room(0.0) == 1
    gate.enter()
    assert gate.room(0.0) == 0
    assert gate.ready_at(0.0) == pytest.approx(0.1)
    assert gate.room(0.55) == 5
    assert gate.room(100.0) == 10


@pytest.mark.parametrize("rate", ["10", "s", "ten/s", "0/s", "-1/s", "1/0s", "1/fortnight", ""])
def test_a_rate_that_means_nothing_is_refused_at_import(rate: str) -> None:
    with pytest.raises(Exception, match=r"rate|empty|duration") as caught:
        Provider(rate=rate)
    assert caught.type.__module__ == ContradictoryDeclaration.__module__


def test_a_provider_that_keeps_failing_is_left_alone_and_then_tried_once() -> None:
    breaker = Breaker()
    for _ in range(BREAKS_AFTER - 1):
        breaker.hear(NOT_SENT, 0.0)
    assert breaker.room(0.0, 0) == FOREVER
    breaker.hear(NOT_SENT, 0.0)
    assert breaker.room(FIRST_BREAK_S / 2, 0) == 0
    assert breaker.room(FIRST_BREAK_S, 0) == 1
    assert breaker.room(FIRST_BREAK_S, 1) == 0
    breaker.hear(NOT_SENT, FIRST_BREAK_S)
    assert breaker.ready_at(FIRST_BREAK_S, 0) == 3 * FIRST_BREAK_S  # the second break is twice as long
    breaker.hear(SUCCEEDED, 9.0)
    assert breaker.room(9.0, 5) == FOREVER


def test_a_refusal_is_an_answer() -> None:
    breaker = Breaker()
    for _ in range(BREAKS_AFTER):
        breaker.hear(NOT_SENT, 0.0)
        breaker.hear(REFUSED, 0.0)
    assert breaker.room(0.0, 0) == FOREVER


def test_lanes_with_work_share_the_places_and_none_is_forgotten() -> None:
    lanes = Lanes([made(f"fair-{n}") for n in range(4)])
    first = lanes.searches(8, 0.0)
    assert [search.limit for _, search in first] == [2, 2, 2, 2]
    begins = {lanes.searches(1, 0.0)[0][0].effect.name for _ in range(4)}
    assert len(begins) == 4


def test_an_empty_lane_is_searched_ever_more_seldom_until_it_is_woken() -> None:
    lanes = Lanes([made("idle")])
    polls = []
    now = 0.0
    for _ in range(8):
        ((lane, _),) = lanes.searches(10, now)
        lane.found([], now)
        polls.append(lane.poll_at - now)
        now = lane.poll_at
    assert polls == sorted(polls)
    assert polls[-1] == 1.0
    assert lanes.all_idle(now)
    lanes.wake()
    assert lanes.next_poll(now) == now


def test_a_search_goes_on_where_the_last_one_ended_and_begins_anew_now_and_then() -> None:
    lanes = Lanes([made("hint")])
    ((lane, search),) = lanes.searches(10, 0.0)
    assert search.since == 0
    lane.found([{"due_at": 5}, {"due_at": 9}], 0.0)
    assert lane.search(10, 0.1).since == 9
    assert lane.search(10, 0.1 + RESCAN_S).since == 0


def test_a_lane_on_a_break_counts_as_idle_so_that_a_drain_ends() -> None:
    lanes = Lanes([made("broken")])
    ((lane, _),) = lanes.searches(1, 0.0)
    assert not lanes.all_idle(0.0)
    for _ in range(BREAKS_AFTER):
        lane.breaker.hear(NOT_SENT, 0.0)
    assert lanes.all_idle(0.0)
    assert not lanes.all_idle(FIRST_BREAK_S)
