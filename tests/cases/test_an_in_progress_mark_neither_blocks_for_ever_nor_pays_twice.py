"""B28 and B37: a timed-out call blocked all retries, or its mark expired and the withdrawal was made again; and after a
crash every send in flight was called failed, which invites the caller to send again.

The processes are really killed in tests/processes/test_workers.py; here is what each way of asking again gets, at one
second and at a day after the deadline.

Sources: https://github.com/aws-powertools/powertools-lambda/issues/53,
https://github.com/aws-powertools/powertools-lambda-python/issues/8049,
https://github.com/Torutesu/ShogunAI-/issues/156, https://github.com/hexclave/hexclave/pull/1356
"""

from typing import Any

import pytest

from counterfoil import Counterfoil
from counterfoil.errors import OutcomeUnknown
from counterfoil.testing.clock import FakeClock
from tests.cases.counted import Counted


class Died(BaseException):
    """The process is gone: nothing after this runs, and nothing is recorded."""


def crashed(counted: Counted, url: str, clock: FakeClock, kind: str, *, accepted: bool) -> None:
    """Leave an operation as a process leaves it that dies after its claim, before or after the provider accepts."""

    def die(point: Any, name: str) -> None:
        if point == "before-commit" and counted.posted:
            raise Died

    counted.skip = not accepted
    cf = Counterfoil.open(url, clock=clock, probe=die)
    with pytest.raises(Died):
        counted.perform(cf, kind)
    counted.skip = counted.posted = False
    cf.close()


@pytest.mark.parametrize("after", ["1s", "1d"])
@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("kind", ["opaque", "keyed", "queryable", "both"])
def test_it_turns_into_unknown_and_is_settled_by_evidence(
    counted: Counted,
    url: str,
    kind: str,
    accepted: bool,  # noqa: FBT001 - a parameter of the test
    after: str,
) -> None:
    clock = FakeClock()
    crashed(counted, url, clock, kind, accepted=accepted)
    clock.advance("30s")
    clock.advance(after)
    with Counterfoil.open(url, clock=clock, wait="0s") as cf:
        resent = kind in {"keyed", "both"} and after == "1s"
        if kind == "opaque" or (kind == "keyed" and not resent):
            for _ in range(2):
                with pytest.raises(OutcomeUnknown) as caught:
                    counted.perform(cf, kind)
                assert caught.value.case_id is not None
            assert counted.provider.count() == accepted
            return
        receipt = counted.perform(cf, kind)
        assert receipt.answered_from == ("lookup" if accepted and kind != "keyed" else "effect")
        assert counted.perform(cf, kind).already_happened
    assert counted.provider.count() == 1
