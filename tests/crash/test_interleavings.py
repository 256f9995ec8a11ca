"""Two workers may meet at any of their steps, on every store: one effect, one receipt, one owner, and true answers."""

from functools import partial

import pytest

from counterfoil.testing.crash_report import ScenarioViolated
from counterfoil.testing.grounds import FILES, Ground
from counterfoil.testing.interleave import Interleavings, interleave, interleave_on
from counterfoil.testing.invariants import one_effect_each
from tests.crash.conftest import POSTGRES, SQLITE
from tests.crash.decision_pairs import DECISION_PAIRS
from tests.crash.naive import check_then_send, contended, counted_right, one_more, read_then_write
from tests.crash.pairs import PAIRS, RETURNED, Pair
from tests.crash.scenarios import SUCCEEDED
from tests.strides import NEAR

# In every change: these on PostgreSQL, where writers run beside each other, and some on SQLite, where they stand in
# line; on PostgreSQL some also in every order in which both are held. All the rest belongs to the full matrices.
CLOSE = {"opaque/opaque", "take-over/take-over, keyed", "overtaken-keyed", "booking/booking", "outlasted/run"}
OVER_A_DECISION = {"approve/reject", "edit/send", "cancel/send, awaiting", "time/send", "send/revoke"}
MET, IN_LINE, BOTH_HELD = CLOSE | OVER_A_DECISION, CLOSE | {"approve/reject"}, CLOSE | {"approve/reject", "send/revoke"}


def pairs(*always: tuple[str, set[str]]) -> list[object]:
    """Return every pair on every store, soaking but those that are named for one."""
    return [
        pytest.param(
            pair,
            store,
            id=f"{pair.name}-{store}",
            marks=[] if any(store == one and pair.name in names for one, names in always) else [pytest.mark.soak],
        )
        for store in (SQLITE, POSTGRES)
        for pair in (*PAIRS, *DECISION_PAIRS)
    ]


@pytest.mark.parametrize(("pair", "server"), pairs((SQLITE, IN_LINE), (POSTGRES, MET)), indirect=["server"])
def test_one_acts_between_any_two_steps_of_the_other(pair: Pair, ground: Ground) -> None:
    judge(pair, interleave_on(ground, pair.scenario, pair.second))


@pytest.mark.parametrize(("pair", "server"), pairs((POSTGRES, BOTH_HELD)), indirect=["server"])
def test_each_acts_between_any_two_steps_of_the_other(pair: Pair, ground: Ground) -> None:
    judge(pair, interleave_on(ground, pair.scenario, pair.second, changes=2, every=NEAR))


def judge(pair: Pair, found: Interleavings) -> None:
    found.raise_if_violated()
    assert {first for first, _ in found.outcomes} <= pair.first_ends
    assert {second for _, second in found.outcomes} <= pair.second_ends
    if pair.one_wins:
        assert all(ends.count(RETURNED) == 1 for ends in found.outcomes)
    if pair.scenario.may_end == SUCCEEDED:
        assert all(RETURNED in ends for ends in found.outcomes)


# --- the kit finds what it is made to find ---------------------------------------------------------------------------


def test_looking_before_sending_sends_twice(ground: Ground) -> None:
    scenario = contended(check_then_send, one_effect_each)
    found = interleave_on(ground, scenario, check_then_send)
    assert any("the provider accepted 2 of ('team-A', 'ticket-1')" in run.violations for run in found.violating)
    with pytest.raises(ScenarioViolated, match=r"the first goes \d steps, the second all; then the first goes on"):
        found.raise_if_violated()


def test_counting_with_a_number_read_before_loses_one_where_writers_run_beside_each_other(ground: Ground) -> None:
    found = interleave_on(ground, contended(read_then_write, counted_right), read_then_write)
    assert found.waited > 0
    assert {each for run in found.violating for each in run.violations} == (
        set() if ground is FILES else {"1 was counted, 2 happened", "before recovery: 1 was counted, 2 happened"}
    )


def test_locks_in_two_orders_make_two_workers_wait_for_each_other(ground: Ground) -> None:
    found = interleave_on(ground, contended(partial(one_more, names="ab")), partial(one_more, names="ba"), changes=2)
    told = {each for run in found.violating for each in run.violations}
    assert told == (set() if ground is FILES else {"the two waited for each other"})


def test_a_pair_says_what_it_saw() -> None:
    found = interleave(contended(partial(one_more, names="a")), partial(one_more, names="b"))
    assert str(found).startswith(f"contended: {len(found.runs)} orders, {found.waited} with a wait, 0 violated; ends: ")
    assert found.outcomes.keys() == {(RETURNED, RETURNED)}
    assert str(found.runs[0]).startswith(
        "the first goes 0 steps, the second all; then the first goes on, at the beginn"
    )
