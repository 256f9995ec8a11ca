"""The crash kit catches what it is made to catch, and says so."""

import asyncio
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest

from counterfoil import EffectCall, Provider, effect
from counterfoil.core.states import OperationState
from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.crash import Recorder, SimulatedCrash, Strike, crash_at_each_point
from counterfoil.testing.crash_report import CrashPoint, Manner, Report, ScenarioViolated
from counterfoil.testing.kills import kill_at_each_commit
from counterfoil.testing.scenario import Scenario
from counterfoil.testing.world import CountingProvider, ProviderPoint, ProviderTraits, World
from tests.crash.naive import TICKET, mark_then_send, naive, retry_on_time_out, send, send_then_mark
from tests.crash.scenarios import BY_NAME


def at(report: Report, kind: str, manner: Manner = Manner.CRASH) -> list[str]:
    return [
        violation
        for run in report.runs
        if run.manner is manner and run.point is not None and run.point.kind == kind
        for violation in run.violations
    ]


def test_marking_first_loses_the_effect() -> None:
    report = crash_at_each_point(naive(mark_then_send))
    assert report.runs[0].violations == ()
    assert at(report, ProviderPoint.BEFORE_ACCEPT) == ["the provider knows 0 operations, not 1"]
    assert at(report, ProviderPoint.AFTER_ACCEPT) == []
    with pytest.raises(ScenarioViolated, match="crash at #5 before-accept ticket-1"):
        report.raise_if_violated()


def test_sending_first_sends_twice() -> None:
    report = crash_at_each_point(naive(send_then_mark))
    assert report.runs[0].violations == ()
    assert at(report, ProviderPoint.BEFORE_ACCEPT) == []
    assert at(report, ProviderPoint.AFTER_ACCEPT) == ["the provider accepted 2 of ('team-A', 'ticket-1')"]
    assert at(report, Point.BEFORE_COMMIT) == ["the provider accepted 2 of ('team-A', 'ticket-1')"]


def test_trying_again_after_a_time_out_sends_twice_even_undisturbed() -> None:
    report = crash_at_each_point(naive(retry_on_time_out))
    assert report.runs[0].violations == ("the provider accepted 2 of ('team-A', 'ticket-1')",)


@pytest.mark.parametrize("run", [mark_then_send, send_then_mark])
def test_a_real_kill_finds_the_same_holes(run: Callable[[World], None]) -> None:
    report = kill_at_each_commit(naive(run))
    assert [point.kind for point in report.points] == [Point.BEFORE_COMMIT, Point.AFTER_COMMIT]
    assert [each.outcome for each in report.runs] == ["returned", "killed", "killed"]
    assert len(report.violating) == 1


def test_a_wrong_declaration_about_the_provider_is_found() -> None:
    honest = BY_NAME["keyed"]
    forgetful = Scenario(name="forgetful", run=honest.run, traits=ProviderTraits())
    violations = crash_at_each_point(forgetful).violations
    assert set(violations) == {"operation r-1/keyed (succeeded): the provider accepted it 2 times"}


def test_ending_where_the_scenario_does_not_allow_it_is_found() -> None:
    honest = BY_NAME["opaque"]
    strict = Scenario(name="strict", run=honest.run, may_end=frozenset({OperationState.SUCCEEDED}))
    assert any("may only end in succeeded" in each for each in crash_at_each_point(strict).violations)


def test_no_operation_at_all_is_found() -> None:
    report = crash_at_each_point(Scenario(name="idle", run=lambda world: world.open()))
    assert set(report.violations) == {"there are 0 operations, not 1"}


def test_an_effect_behind_the_ledgers_back_is_found() -> None:
    report = crash_at_each_point(Scenario(name="bypass", run=send, operations=0))
    assert [point.kind for point in report.points] == [ProviderPoint.BEFORE_ACCEPT, ProviderPoint.AFTER_ACCEPT]
    assert all("which no operation knows of" in each for each in report.violations)


def test_an_error_that_is_not_ours_is_found() -> None:
    def defect(world: World) -> None:
        raise ZeroDivisionError("a defect")

    report = crash_at_each_point(Scenario(name="defect", run=defect, operations=0))
    assert set(report.violations) == {"ZeroDivisionError reached the caller: a defect"}


def test_a_scenario_that_takes_another_way_each_time_is_found() -> None:
    turns = iter(range(1_000))

    def fickle(world: World) -> None:
        world.probe(ProviderPoint.BEFORE_ACCEPT, f"turn-{next(turns)}")

    report = crash_at_each_point(Scenario(name="fickle", run=fickle, operations=0))
    assert report.violations == ("it took another way there than undisturbed",)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_scenario_may_say_that_its_points_come_in_no_order(*, ordered: bool) -> None:
    orders = cycle(["ab", "ba"])

    def swapping(world: World) -> None:
        for name in next(orders):
            world.probe(ProviderPoint.BEFORE_ACCEPT, name)

    scenario = Scenario(name="swapping", run=swapping, recover=lambda world: None, operations=0, ordered=ordered)
    report = crash_at_each_point(scenario)
    assert [run.outcome for run in report.runs] == ["returned", "crashed", "crashed"]
    assert report.violations == (("it took another way there than undisturbed",) if ordered else ())


@effect("crash-kit/dying", key="{request_id}/dying", provider=Provider())
def dying(call: EffectCall) -> None:
    call.resource(CountingProvider).accept(call)


def test_a_dead_process_runs_no_statement_and_settles_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, FakeClock(), ProviderTraits())
    strike = Strike(CrashPoint(0, ProviderPoint.AFTER_ACCEPT, "r/dying"), Manner.CRASH)
    world.open()
    dead = World(tmp_path, world.clock, world.traits, strike)
    with pytest.raises(SimulatedCrash):
        dead.open().perform(dying, tenant="t", request_id="r")
    (struck,) = (point for point in strike.points if point.is_same(strike.target))
    after = strike.points[struck.number :]
    assert [point.kind for point in after] == [Point.BEFORE_STATEMENT]  # its settle, refused at once
    assert world.provider.counts() == {("t", "r/dying"): 1}
    dead.close()
    world.close()


def test_a_lost_commit_took_effect_and_its_caller_goes_on(tmp_path: Path) -> None:
    lost = Strike(CrashPoint(2, Point.AFTER_COMMIT, "x"), Manner.COMMIT_LOST)
    lost(Point.BEFORE_COMMIT, "x")
    with pytest.raises(CommitUnknown):
        lost(Point.AFTER_COMMIT, "x")
    lost(Point.BEFORE_STATEMENT, "y")
    assert [point.number for point in lost.points] == [1, 2, 3]


def test_a_commit_goes_by_the_statement_before_it() -> None:
    recorder = Recorder()
    recorder(Point.BEFORE_STATEMENT, "archive_attempt")
    recorder(Point.BEFORE_COMMIT, "")
    assert str(recorder.points[-1]) == "#2 before-commit archive_attempt"


async def test_tasks_that_take_turns_have_commits_of_their_own() -> None:
    recorder = Recorder()

    async def write(statement: str) -> None:
        recorder(Point.BEFORE_STATEMENT, statement)
        await asyncio.sleep(0)
        recorder(Point.AFTER_COMMIT, "")

    await asyncio.gather(write("put_checkpoint"), write("put_writes"))
    assert [point.name for point in recorder.points] == ["put_checkpoint", "put_writes"] * 2


def test_a_report_reads_well() -> None:
    report = crash_at_each_point(naive(mark_then_send))
    head, where, what = str(report).splitlines()[:3]
    assert head == "mark_then_send: 6 points, 8 runs, 3 violated"
    assert where == "  crash at #4 after-commit ddl: crashed, then returned, returned, returned; ends -"
    assert what == "    the provider knows 0 operations, not 1"


def test_the_provider_recognises_a_repeat_inside_its_lifetime_only(tmp_path: Path) -> None:
    world = World(tmp_path, FakeClock(), ProviderTraits(key_lifetime="1h"))
    assert world.provider.accept(TICKET) == 1
    world.clock.advance("1h")
    assert world.provider.accept(TICKET) == 1
    world.clock.advance("1s")
    assert world.provider.accept(TICKET) == 2
    assert world.provider.count(TICKET) == 2


def test_the_provider_shows_an_effect_only_after_its_lag(tmp_path: Path) -> None:
    world = World(tmp_path, FakeClock(), ProviderTraits(lag="30s"))
    world.provider.accept(TICKET)
    assert world.provider.find(TICKET) is None
    world.clock.advance("30s")
    found = world.provider.find(TICKET)
    assert found is not None
    assert found.number == 1
