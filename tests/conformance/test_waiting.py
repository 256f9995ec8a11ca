"""Two callers of one operation: the loser waits a bounded time; a heartbeat keeps a healthy holder's claim."""

import asyncio
import threading
import time
from typing import Any

import pytest

from counterfoil import CannotTell, Provider
from counterfoil.errors import FenceLost, OperationInProgress, OutcomeUnknown
from counterfoil.storage.scripts import leases
from tests.conformance.subject import ASYNC, Background, Gate, Subject
from tests.patience import until_sent


def test_a_loser_gets_the_winners_receipt(patient: Subject) -> None:
    gate = Gate()
    ticket = patient.ticket(gate)
    winner = Background(lambda: patient.perform(ticket, title="a"))
    gate.wait()
    losers = [Background(lambda: patient.perform(ticket, title="a")) for _ in range(3)]
    gate.open()
    assert winner.result().answered_from == "effect"
    assert {loser.result().answered_from for loser in losers} == {"receipt"}
    assert len(patient.sent) == 1


def test_a_loser_that_waited_long_enough_is_told_who_holds_it_since_when_and_until_when(subject: Subject) -> None:
    gate = Gate()
    ticket = subject.ticket(gate, time_limit="30s")
    winner = Background(lambda: subject.perform(ticket, title="a"))
    gate.wait()
    began = subject.clock.now_ms()
    subject.clock.advance("7s")
    with pytest.raises(OperationInProgress) as caught:
        subject.perform(ticket, title="a")
    error = caught.value
    assert (error.age_ms, error.until, error.retry) == (7000, began + 30_000, "safe")
    assert error.holder == subject.operation["holder"]
    assert error.holder in str(error)
    gate.open()
    winner.result()
    assert len(subject.sent) == 1


def test_a_loser_with_other_arguments_does_not_wait(patient: Subject) -> None:
    from counterfoil.errors import FingerprintMismatch

    gate = Gate()
    ticket = patient.ticket(gate)
    winner = Background(lambda: patient.perform(ticket, title="a"))
    gate.wait()
    with pytest.raises(FingerprintMismatch):
        patient.perform(ticket, title="b")
    gate.open()
    winner.result()


def test_the_wait_is_bounded_by_real_time_whatever_the_holder_does(url: str, colour: str, tmp_path: Any) -> None:
    from tests.conformance.conftest import make

    subject = make(url, colour, tmp_path, wait="100ms")
    gate = Gate()
    ticket = subject.ticket(gate)
    winner = Background(lambda: subject.perform(ticket, title="a"))
    gate.wait()
    began = time.monotonic()
    with pytest.raises(OperationInProgress):
        subject.perform(ticket, title="a")
    assert 0.1 <= time.monotonic() - began < 5
    gate.open()
    winner.result()
    subject.close()


@pytest.mark.parametrize("callers", [32])
def test_many_callers_at_once_make_one_effect(patient: Subject, callers: int) -> None:
    ticket = patient.ticket()
    receipts = patient.at_once(lambda: patient.perform(ticket, title="a"), callers)
    assert [r for r in receipts if isinstance(r, BaseException)] == []
    assert [r.value for r in receipts] == [{"id": 1, "title": "a"}] * callers  # type: ignore[union-attr]
    assert len(patient.sent) == 1
    assert patient.attempts() == ["succeeded"]


def test_sixteen_coroutines_make_one_effect(url: str, tmp_path: Any) -> None:
    from tests.conformance.conftest import make

    subject = make(url, ASYNC, tmp_path, wait="20s")

    async def together() -> list[Any]:
        calls = (subject.cf.perform(ticket, tenant="t", request_id="r", title="a") for _ in range(16))
        return await asyncio.gather(*calls)

    ticket = subject.ticket()
    receipts = subject.loop.run(together())
    assert {r.value["id"] for r in receipts} == {1}
    assert [r.answered_from for r in receipts].count("effect") == 1
    assert len(subject.sent) == 1
    subject.close()


def test_many_operations_at_once_do_not_hinder_each_other(patient: Subject) -> None:
    ticket, numbers = patient.ticket(), iter(range(24))
    mutex = threading.Lock()

    def one() -> Any:
        with mutex:
            number = next(numbers)
        return patient.perform(ticket, request_id=f"r-{number % 8}", title="a")

    results = patient.at_once(one, 24)
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert len(patient.sent) == 8
    assert len(set(patient.sent.keys)) == 8


# --- heartbeats -------------------------------------------------------------------------------------------------------


def beat(subject: Subject, *, lease: int = 10_000) -> bool:
    """Renew the subject's one claim, as its heartbeat does."""
    from counterfoil import OperationKey

    row = subject.operation
    key = OperationKey(tenant=row["tenant"], operation_id=row["operation_id"])
    store = subject.cf.desk.store
    goes_on: bool = store.write(lambda: leases.renew(key, fence=row["fence"], lease=lease), tenant=key.tenant)
    return goes_on


def test_a_heartbeat_keeps_a_long_effects_claim_and_stops_at_its_time_limit(subject: Subject) -> None:
    gate = Gate()
    ticket = subject.ticket(gate, time_limit="60s", lease="10s")
    worker = Background(lambda: subject.perform(ticket, title="a"))
    gate.wait()
    began = subject.clock.now_ms()
    for seconds in (9, 18, 27, 36, 45):
        subject.clock.advance("9s")
        assert beat(subject)
        assert subject.operation["lease_until"] == began + seconds * 1000 + 10_000
        with pytest.raises(OperationInProgress):
            subject.perform(ticket, title="a")
    subject.clock.advance("9s")
    assert not beat(subject)  # the deadline of 60 s is nearer than another lease
    assert subject.operation["lease_until"] == began + 60_000
    subject.clock.advance("6s")
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")  # hung: unknown, and not held for ever
    assert not beat(subject)
    gate.open()
    assert worker.result().value["id"] == 1
    assert len(subject.sent) == 1


def test_without_a_beat_the_lease_runs_out(subject: Subject) -> None:
    gate = Gate()
    answers = CannotTell("the line is down")
    provider = subject.provider(lookup=lambda call, *, title: answers, lookup_lag="0s")
    ticket = subject.ticket(gate, time_limit="60s", lease="10s", provider=provider)
    worker = Background(lambda: subject.perform(ticket, title="a"))
    gate.wait()
    subject.clock.advance("10s")
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    gate.open()
    assert worker.result().value["id"] == 1
    assert subject.operation["settled_by"] == "late_reply"


def test_the_real_heartbeat_beats_while_the_effect_runs(subject: Subject) -> None:
    from counterfoil.clock import SystemClock

    beaten = threading.Semaphore(0)

    def watch(point: Any, name: str) -> None:
        if point == "after-statement" and name == "renew_lease_if_fenced":
            beaten.release()

    cf = subject.cf if subject.url.endswith(":memory:") else subject.open(clock=SystemClock())
    gate = Gate()
    ticket = subject.ticket(gate, time_limit="20s", lease="60ms")
    with subject.probe.during(watch):
        worker = Background(lambda: until_sent(lambda: subject.perform(ticket, cf=cf, title="a")))
        gate.wait()
        for _ in range(3):
            assert beaten.acquire(timeout=10)
        gate.open()
        worker.result()
    assert len(subject.sent) == 1


def test_a_blocked_event_loop_does_not_stop_the_heartbeat(url: str, tmp_path: Any) -> None:
    from tests.conformance.conftest import make

    subject = make(url, ASYNC, tmp_path)
    beaten = threading.Semaphore(0)

    def watch(point: Any, name: str) -> None:
        if point == "after-statement" and name == "renew_lease_if_fenced":
            beaten.release()

    async def block(call: Any, *, title: str) -> dict[str, int]:
        beats = 0
        while beats < 3 and beaten.acquire(timeout=10):  # blocks the loop itself
            beats += 1
        return {"beats": beats}

    made = subject.effect(block, time_limit="20s", lease="60ms")
    with subject.probe.during(watch):
        assert until_sent(lambda: subject.perform(made, title="a")).value == {"beats": 3}
    subject.close()


def test_a_beat_that_fails_in_any_way_does_not_end_the_others(subject: Subject) -> None:
    beaten, failures = threading.Semaphore(0), [RuntimeError("first beat"), OSError("second beat")]

    def watch(point: Any, name: str) -> None:
        if point == "before-statement" and name == "renew_lease_if_fenced" and failures:
            raise failures.pop()
        if point == "after-statement" and name == "renew_lease_if_fenced":
            beaten.release()

    gate = Gate()
    ticket = subject.ticket(gate, time_limit="20s", lease="60ms")
    with subject.probe.during(watch):
        worker = Background(lambda: until_sent(lambda: subject.perform(ticket, title="a")))
        assert beaten.acquire(timeout=10)
        gate.open()
        worker.result()


def test_a_stale_holders_beat_changes_nothing(subject: Subject) -> None:
    from counterfoil import OperationKey

    gates = [Gate(), Gate()]

    def effect(call: Any, *, title: str) -> int:
        gates[call.attempt - 1]()
        return int(call.attempt)

    made = subject.effect(effect, time_limit="30s", provider=Provider(key_lifetime="1h"))
    first = Background(lambda: subject.perform(made, title="a"))
    gates[0].wait()
    subject.clock.advance("31s")
    second = Background(lambda: subject.perform(made, title="a"))
    gates[1].wait()
    before = subject.operation
    key = OperationKey(tenant="team-a", operation_id="ticket:r-1")
    assert not subject.cf.desk.store.write(lambda: leases.renew(key, fence=1, lease=10_000), tenant="team-a")
    assert subject.operation["lease_until"] == before["lease_until"]
    for gate in gates:
        gate.open()
    assert second.result().value == 2
    with pytest.raises(FenceLost):
        first.result()


def test_a_claim_whose_lease_ran_out_before_the_effect_began_is_not_sent(subject: Subject) -> None:
    """As after a stop of the process or a sleep of the machine between the claim and the send."""
    from counterfoil.errors import EffectNotSent

    claimed = threading.Event()

    def stall(point: Any, name: str) -> None:
        if point == "after-statement" and name in {"insert_claimed_operation", "look_or_claim_operation"}:
            claimed.set()
        if point == "after-commit" and claimed.is_set():
            claimed.clear()
            threading.Event().wait(0.03)  # longer than the lease: the pause itself is what is tested

    ticket = subject.ticket(lease="20ms", time_limit="20s")
    with subject.probe.during(stall), pytest.raises(EffectNotSent):
        subject.perform(ticket, title="a")
    assert len(subject.sent) == 0
    assert subject.state == "pending"
