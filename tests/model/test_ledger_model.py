"""A model of the ledger: workers that stall, die, come back late, and a provider that is the judge of what happened.

Workers are driven step by step, so that any number of them can stand still inside their effects while others come.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from counterfoil import Absent, CannotTell, Counterfoil, Effect, Found, NotSent, Provider, Refused, effect
from counterfoil.core.durations import milliseconds
from counterfoil.desk import NOWHERE
from counterfoil.drivers.probes import no_probe
from counterfoil.errors import (
    CounterfoilError,
    EffectNotSent,
    EffectRefused,
    FenceLost,
    FingerprintMismatch,
    OperationInProgress,
    OutcomeUnknown,
    Retry,
)
from counterfoil.model import OperationKey, Trusted
from counterfoil.performing import AskLiveness, Look, Pause, Read, RunEffect, RunLookup, Write
from counterfoil.performing import perform as perform_protocol
from counterfoil.results import Raised, Result, Returned
from counterfoil.storage.script import Ddl, Script
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.grounds import ground_at
from tests.postgres.servers import Server

KINDS = ("opaque", "keyed", "queryable", "both", "reviewed")
LIFETIME = "1h"
TENANT = "team-a"
DID_NOT_HAPPEN = ("did_not_happen_retry", "did_not_happen_close")


@dataclass(slots=True, kw_only=True)
class Accepted:
    """One effect at the provider; `timely` if it came before the deadline of its attempt."""

    at: int
    timely: bool


@dataclass(slots=True)
class World:
    """The provider: it honours keys where the kind says so, and can be asked."""

    clock: FakeClock
    accepted: dict[str, list[Accepted]] = field(default_factory=dict)
    telling: bool = True

    def effects(self, operation_id: str) -> list[Accepted]:
        return self.accepted.setdefault(operation_id, [])

    def remembers(self, operation_id: str) -> bool:
        """Say whether a repeat under the key would be recognised now."""
        if operation_id.partition(":")[0] not in {"keyed", "both"}:
            return False
        since = self.clock.now_ms() - milliseconds(LIFETIME, "lifetime")
        return any(one.at > since for one in self.effects(operation_id))

    def accept(self, operation_id: str, *, timely: bool) -> bool:
        """Accept an effect; False if it was recognised and nothing new happened."""
        if self.remembers(operation_id):
            return False
        self.effects(operation_id).append(Accepted(at=self.clock.now_ms(), timely=timely))
        return True

    def find(self, call: Any) -> Found | Absent | CannotTell:
        if not self.telling:
            return CannotTell()
        return Found({"of": call.operation_id}) if self.effects(call.operation_id) else Absent()


def body(call: Any, *, title: str) -> None:
    raise AssertionError("the model runs the effect itself")


def declared(kind: str, world: World) -> Effect[Any]:
    def lookup(call: Any, *, title: str) -> Any:
        return world.find(call)

    providers = {
        "opaque": Provider(),
        "keyed": Provider(key_lifetime=LIFETIME),
        "queryable": Provider(lookup=lookup, lookup_lag="0s"),
        "both": Provider(key_lifetime=LIFETIME, lookup=lookup, lookup_lag="0s"),
        "reviewed": Provider(lookup=lookup, on_absent="review"),
    }
    return effect(f"model.{kind}", key=f"{kind}:{{request_id}}", provider=providers[kind], time_limit="30s")(body)


class Worker:
    """One entry into perform, which stands still when its effect would run."""

    def __init__(self, cf: Counterfoil, made: Effect[Any], request_id: str) -> None:
        trusted = Trusted(tenant=TENANT, request_id=request_id)
        self.store = cf.desk.store
        self.job = cf.desk.job(made, {"title": "Printer offline"}, trusted, NOWHERE)
        self.protocol = perform_protocol(self.job)
        self.running: RunEffect | None = None
        self.outcome: Any = None
        self.go(None)

    @property
    def operation_id(self) -> str:
        return self.job.key.operation_id

    def go(self, answer: Any) -> None:
        """Go on until the effect would run, or to the end."""
        self.running = None
        try:
            step = self.protocol.send(answer)
            while not isinstance(step, RunEffect):
                step = self.protocol.send(self.do(step))
            self.running = step
        except StopIteration as stop:
            self.outcome = stop.value
        except CounterfoilError as error:
            self.outcome = error

    def do(self, step: Any) -> Any:
        match step:
            case Look(maker=maker, in_turn=claiming) if not self.store.claims_at_once:
                return self.store.look(maker, claiming)
            case Read(maker):
                return self.store.read(maker)
            case Look(at_once=maker) | Write(maker):
                return self.store.write(maker)
            case RunLookup():
                return step.function(step.call, **step.arguments)
            case AskLiveness():
                return False
            case Pause():
                return True
            case _:
                raise TypeError(step)


def in_memory(clock: FakeClock) -> Counterfoil:
    return Counterfoil.open("sqlite:///:memory:", clock=clock, wait="0s")


class Ledger(RuleBasedStateMachine):
    """What can happen, and what must hold after each of it."""

    workers: Bundle[Worker] = Bundle("workers")

    def __init__(self, opened: Callable[[FakeClock], Counterfoil] = in_memory) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.world = World(self.clock)
        self.cf = opened(self.clock)
        self.made = {kind: declared(kind, self.world) for kind in KINDS}
        self.before: dict[str, Any] = {}

    def teardown(self) -> None:
        self.cf.close()

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(target=workers, kind=st.sampled_from(KINDS), request=st.sampled_from(["r-1", "r-2"]))
    def a_worker_comes(self, kind: str, request: str) -> Any:
        worker = Worker(self.cf, self.made[kind], request)
        self.judge(worker)
        return worker

    @rule(worker=consumes(workers), ending=st.sampled_from(["returned", "lost", "lost-before", "not-sent", "refused"]))
    def its_effect_ends(self, worker: Worker, ending: str) -> None:
        if worker.running is None:
            return
        operation_id, new = worker.operation_id, False
        if ending in {"returned", "lost"} or (ending == "refused" and self.world.remembers(operation_id)):
            # a provider that honours the key answers a repeat as it answered the first time
            new = self.send(worker)
            ending = "returned" if ending == "refused" else ending
        late = self.is_late(worker)
        worker.go(self.result(operation_id, ending))
        self.judge(worker)
        if ending == "returned" and late and new and len(self.world.effects(operation_id)) > 1:
            assert "possible_double_effect" in self.cases(operation_id, any_state=True)

    @rule(worker=consumes(workers), sent=st.booleans())
    def it_dies(self, worker: Worker, sent: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        if worker.running is not None and sent:
            self.send(worker)

    @rule(by=st.sampled_from(["1s", "29s", "31s", "20m", "2h"]))
    def time_passes(self, by: str) -> None:
        self.clock.advance(by)

    @rule()
    def the_look_up_breaks_or_works_again(self) -> None:
        self.world.telling = not self.world.telling

    @rule(kind=st.sampled_from(KINDS))
    def somebody_asks_with_other_arguments(self, kind: str) -> None:
        if f"{kind}:r-1" not in self.rows():
            return
        with pytest.raises(FingerprintMismatch) as caught:
            self.cf.perform(self.made[kind], tenant=TENANT, request_id="r-1", title="Another")
        assert caught.value.fields == ("title",)

    @precondition(lambda self: self.open_cases())
    @rule(data=st.data())
    def a_person_tells_the_truth(self, data: st.DataObject) -> None:
        case = data.draw(st.sampled_from(self.open_cases()))
        happened = bool(self.world.effects(case["operation_id"]))
        verdict = "noted"
        if case["kind"] == "unknown_outcome":
            verdict = "happened" if happened else data.draw(st.sampled_from(DID_NOT_HAPPEN))
        self.cf.review.resolve(
            f"case-{case['seq']}",
            tenant=TENANT,
            verdict=verdict,
            by="ada",
            expect_version=case["version"],
            reason="asked the provider by telephone",
            evidence='"by telephone"' if happened else None,
        )

    # --- the world ----------------------------------------------------------------------------------------------------

    def send(self, worker: Worker) -> bool:
        assert worker.running is not None
        timely = self.clock.now_ms() < worker.running.granted.deadline  # at the deadline, its lease is over
        return self.world.accept(worker.operation_id, timely=timely)

    def is_late(self, worker: Worker) -> bool:
        row = self.rows()[worker.operation_id]
        return worker.running is None or (row["fence"], row["state"]) != (worker.running.granted.fence, "in_flight")

    @staticmethod
    def result(operation_id: str, ending: str) -> Result:
        match ending:
            case "returned":
                return Returned({"of": operation_id})
            case "not-sent":
                return Raised(NotSent("the line is down"))
            case "refused":
                return Raised(Refused("402"))
            case _:
                return Raised(ConnectionResetError())

    def judge(self, worker: Worker) -> None:
        """Every answer that a caller gets must be true."""
        happened = bool(self.world.effects(worker.operation_id))
        match worker.outcome:
            case None:
                assert worker.running is not None
            case EffectNotSent() | EffectRefused():
                assert not any(one.timely for one in self.world.effects(worker.operation_id))
            case FenceLost() | OutcomeUnknown() | OperationInProgress():
                assert worker.outcome.retry is not Retry.NEVER
            case CounterfoilError():
                raise worker.outcome
            case receipt:
                assert happened
                assert receipt.value in ({"of": worker.operation_id}, "by telephone")

    # --- what is stored -----------------------------------------------------------------------------------------------

    def table(self, name: str) -> list[dict[str, Any]]:
        def script() -> Script[Any]:
            return (yield Ddl(f"select * from counterfoil_{name}"))  # noqa: S608 - a test's own table name

        found: list[dict[str, Any]] = self.cf.desk.store.read(script)
        return found

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["operation_id"]: row for row in self.table("operation")}

    def open_cases(self) -> list[dict[str, Any]]:
        return [row for row in self.table("case") if row["state"] == "open"]

    def cases(self, operation_id: str, *, any_state: bool = False) -> list[str]:
        rows = self.table("case") if any_state else self.open_cases()
        return [row["kind"] for row in rows if row["operation_id"] == operation_id]

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def no_operation_has_two_timely_effects(self) -> None:
        for operation_id, effects in self.world.accepted.items():
            assert sum(one.timely for one in effects) <= 1, operation_id

    @invariant()
    def what_is_known_is_true(self) -> None:
        for operation_id, row in self.rows().items():
            effects = self.world.effects(operation_id)
            if row["state"] == "succeeded":
                assert effects
            if row["state"] in {"pending", "failed"}:
                assert not any(one.timely for one in effects)

    @invariant()
    def an_operation_is_unknown_if_and_only_if_a_case_says_so(self) -> None:
        unknown = {operation_id for operation_id, row in self.rows().items() if row["state"] == "unknown"}
        assert unknown == {case["operation_id"] for case in self.open_cases() if case["kind"] == "unknown_outcome"}

    @invariant()
    def an_attempt_that_succeeded_is_an_operation_that_did_or_may_still_be_told(self) -> None:
        rows = self.rows()
        for attempt in self.table("attempt"):
            row = rows[attempt["operation_id"]]
            assert attempt["outcome"] != "running"  # the one under way is in the operation's row alone
            assert attempt["attempt"] <= row["attempt"]
            if attempt["outcome"] == "succeeded":  # proof that came late: the attempt after it may still be under way
                assert row["state"] in {"succeeded", "in_flight"}, attempt

    @invariant()
    def receipts_never_change_and_versions_only_grow(self) -> None:
        rows = self.rows()
        for operation_id, old in self.before.items():
            new = rows[operation_id]
            assert new["fence"] >= old["fence"]
            assert new["version"] >= old["version"]
            assert (new["version"] > old["version"]) or new["state"] == old["state"]
            if old["state"] == "succeeded":
                assert [new[name] for name in ("state", "receipt", "settled_at", "version")] == [
                    old[name] for name in ("state", "receipt", "settled_at", "version")
                ]
        self.before = rows

    @invariant()
    def a_terminal_row_keeps_no_payload_and_an_open_one_does(self) -> None:
        for row in self.rows().values():
            assert (row["payload"] is None) == (row["state"] in {"succeeded", "failed"})


SETTINGS = settings(max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
Ledger.TestCase.settings = SETTINGS
TestLedger = Ledger.TestCase


def test_the_same_holds_on_postgresql(postgres_server: Server, tmp_path: Path) -> None:
    with ground_at(postgres_server.root) as ground:

        def emptied(clock: FakeClock) -> Counterfoil:
            ground.clear(fresh=False)
            return Counterfoil(ground.desk(tmp_path, wait="0s", clock=clock, probe=no_probe))

        few = settings(SETTINGS, max_examples=40)
        run_state_machine_as_test(lambda: Ledger(emptied), settings=few)  # type: ignore[arg-type]  # a maker will do


def test_the_model_sends_under_the_same_key_as_the_ledger() -> None:
    key = OperationKey(tenant=TENANT, operation_id="keyed:r-1")
    assert Provider(key_lifetime=LIFETIME).key_for(key) == Provider().key_for(key)
