"""A server that answers nothing: every wait ends, with an error that says what is known."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from counterfoil.errors import CommitUnknown, OutcomeNotStored, StoreUnavailable
from counterfoil.testing.wire import Wire
from tests.conformance.subject import Background
from tests.faults.subject import Wired

pytestmark = pytest.mark.usefixtures("impatient")


@contextmanager
def lasting(*, less_than: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < less_than


def swallowing(wire: Wire) -> None:
    """Lose everything, and open no connection: nothing but the silence counts."""
    wire.black_hole()
    wire.refuse()


def test_a_claim_that_is_answered_by_nobody_sends_nothing(subject: Wired, wire: Wire) -> None:
    create = subject.ticket()
    swallowing(wire)
    with lasting(less_than=5), pytest.raises((StoreUnavailable, CommitUnknown)) as caught:
        subject.perform(create, title="a")
    assert len(subject.sent) == 0
    assert "postgres@127.0.0.1" in str(caught.value)
    wire.restore()
    assert subject.perform(create, title="a").value["id"] == 1
    assert len(subject.sent) == 1


def test_reads_end_too(subject: Wired, wire: Wire) -> None:
    swallowing(wire)
    with lasting(less_than=5), pytest.raises(StoreUnavailable):
        subject.settle(subject.cf.operations.counts(tenant="team-a"))
    wire.restore()
    assert subject.settle(subject.cf.operations.counts(tenant="team-a"))["unknown"] == 0


def test_an_outcome_is_stored_when_the_server_answers_again(subject: Wired, wire: Wire) -> None:
    def fall_silent() -> None:
        swallowing(wire)
        seen = wire.counts.swallowed

        def restore() -> None:
            wire.wait_for("swallowed", more_than=seen)
            wire.restore()

        restoring.append(Background(restore))

    restoring: list[Background] = []
    create = subject.ticket(fall_silent)
    assert subject.perform(create, title="a").value["id"] == 1
    assert (len(subject.sent), subject.state, subject.attempts()) == (1, "succeeded", ["succeeded"])
    restoring[0].result()


def test_an_outcome_that_cannot_be_stored_is_handed_out(subject: Wired, wire: Wire) -> None:
    create = subject.ticket(lambda: swallowing(wire))
    with lasting(less_than=10), pytest.raises(OutcomeNotStored) as caught:
        subject.perform(create, title="a")
    assert caught.value.facts["result"] == {"id": 1, "title": "a"}
    wire.restore()
    assert (len(subject.sent), subject.state) == (1, "in_flight")
