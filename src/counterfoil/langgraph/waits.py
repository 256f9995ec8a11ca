"""Wait inside a node: for an event, or until a time. A run that waits holds no process, thread, connection or claim."""

from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from counterfoil import codec
from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.arguments import CALLED
from counterfoil.core.durations import milliseconds, utc_text
from counterfoil.core.schedules import Daily, Last, Missed, Schedule, is_over_for_good
from counterfoil.core.templates import validate_id
from counterfoil.errors import (
    EffectInCachedNode,
    IntentWouldBeLost,
    NoActiveCounterfoil,
    NotInWorkflow,
    VersionConflict,
)
from counterfoil.langgraph.context import CACHED, Here, locate
from counterfoil.langgraph.intents import CURRENT, Collector
from counterfoil.langgraph.parking import MARK, WAIT
from counterfoil.langgraph.skipping import astore_held, store_held
from counterfoil.langgraph.timing import missed_policy, moment, scheduled
from counterfoil.records import Event
from counterfoil.runners import Waiting
from counterfoil.storage.scripts import waits
from counterfoil.storage.scripts.checkpoints import NotOwner
from counterfoil.storage.scripts.threads import NotStored, ThreadKey
from counterfoil.storage.scripts.waits import Came, NoInbox, Open, Question, TimedOut
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from counterfoil.core.durations import Duration

STORED_WITHIN_MS = 5_000
"""How long a wait waits for the checkpoint that its step runs on: the runtime may store it beside the step."""


def wait_for(
    event: str,
    *,
    subject: str | None = None,
    match: Mapping[str, Any] | None = None,
    timeout: Duration | None = None,
    name: str | None = None,
) -> Event | None:
    """Return the event that this step waits for, or None when its time is over; until then the workflow is parked.

    A step that is entered again gets the same answer again. An event that came before anybody waited is taken at once;
    each event answers one wait. It must have come before the time-out by the database's clock, whoever looks when.

    Args:
        event: The event's name.
        subject: What it must be about.
        match: Fields that its payload must have, with these very values.
        timeout: How long to wait, from the first time on that this step asks; without it, without end.
        name: What to call this wait; by default the event's name. The first, second, ... wait of one name in a step
            are different waits.

    Raises:
        NotInWorkflow: the thread is no workflow, so that nobody would wake it.
        NoActiveCounterfoil: there is no run here that owns its thread.
        IntentWouldBeLost: the step enqueued something, which would not leave before it ends.
    """
    refuse_nested("wait_for")
    refuse_on_loop("wait_for", f"await await_for({event!r}, ...)")
    return _event(*_answered(_question(event, subject, match, timeout, name)))


async def await_for(
    event: str,
    *,
    subject: str | None = None,
    match: Mapping[str, Any] | None = None,
    timeout: Duration | None = None,  # noqa: ASYNC109 - of days, kept in a row
    name: str | None = None,
) -> Event | None:
    """Return the event that this step waits for, in an async node; see `wait_for`."""
    refuse_nested("await_for")
    return _event(*(await _aanswered(_question(event, subject, match, timeout, name))))


def sleep_until(when: datetime, *, name: str = "timer") -> None:
    """Park the workflow until a time, by the database's clock.

    Args:
        when: A time with its zone.
        name: What to call this wait.

    Raises:
        InvalidArguments: the time has no zone.
        NotInWorkflow: the thread is no workflow, so that nobody would wake it.
    """
    refuse_nested("sleep_until")
    refuse_on_loop("sleep_until", "await asleep_until(...)")
    _over(*_answered(_timer(name, until=_moment(when))))


async def asleep_until(when: datetime, *, name: str = "timer") -> None:
    """Park the workflow until a time, in an async node; see `sleep_until`."""
    refuse_nested("asleep_until")
    _over(*(await _aanswered(_timer(name, until=_moment(when)))))


def sleep_for(duration: Duration, *, name: str = "timer") -> None:
    """Park the workflow for a while, from the first time on that this step asks; see `sleep_until`."""
    refuse_nested("sleep_for")
    refuse_on_loop("sleep_for", "await asleep_for(...)")
    _over(*_answered(_timer(name, timeout=milliseconds(duration, "duration"))))


async def asleep_for(duration: Duration, *, name: str = "timer") -> None:
    """Park the workflow for a while, in an async node; see `sleep_for`."""
    refuse_nested("asleep_for")
    _over(*(await _aanswered(_timer(name, timeout=milliseconds(duration, "duration")))))


def sleep_until_next(
    *,
    every: Duration | None = None,
    at: str | None = None,
    zone: str | None = None,
    days: Sequence[str] | None = None,
    start: datetime | None = None,
    missed: str = "once",
    name: str | None = None,
) -> datetime:
    """Park the workflow until a recurring time, and return which one it is; the next visit waits for the one after.

    Args:
        every: A period, counted from `start`, or else from when the step first asked.
        at: A local time of day such as `"09:00"` instead, in `zone`.
        zone: Its zone, such as `"Europe/Berlin"`: nine o'clock stays nine o'clock in summer.
        days: Only on these weekdays: `"mon"` to `"sun"`.
        start: The first time, or when to begin.
        missed: What becomes of times that nobody was there for: `"once"` stands for all of them, with `"all"` each
            comes, one after the other, with `"skip"` none does.
        name: What to call this timer; by default its schedule. Two with one name in a workflow are one.

    Raises:
        InvalidArguments: the schedule makes no sense.
        NotInWorkflow: the thread is no workflow, so that nobody would wake it.
    """
    refuse_nested("sleep_until_next")
    refuse_on_loop("sleep_until_next", "await asleep_until_next(...)")
    schedule, policy = scheduled(every=every, at=at, zone=zone, days=days, start=start), missed_policy(missed)
    while True:
        asked, answer = _answered(_recurring(schedule, policy, name))
        if (found := _tick(asked, answer, schedule, policy)) is not None:
            return found


async def asleep_until_next(
    *,
    every: Duration | None = None,
    at: str | None = None,
    zone: str | None = None,
    days: Sequence[str] | None = None,
    start: datetime | None = None,
    missed: str = "once",
    name: str | None = None,
) -> datetime:
    """Park the workflow until a recurring time, in an async node; see `sleep_until_next`."""
    refuse_nested("asleep_until_next")
    schedule, policy = scheduled(every=every, at=at, zone=zone, days=days, start=start), missed_policy(missed)
    while True:
        asked, answer = await _aanswered(_recurring(schedule, policy, name))
        if (found := _tick(asked, answer, schedule, policy)) is not None:
            return found


# --- asking ----------------------------------------------------------------------------------------------------------

_Asked = tuple["Here", Question]
_Answer = Came | TimedOut | Open


def _answered(asked: _Asked) -> tuple[_Asked, _Answer]:
    (here, question), waiting = asked, Waiting(STORED_WITHIN_MS)
    store_held(here.run)
    while isinstance(answer := write(here.desk, lambda: waits.ask(question), tenant=here.trusted.tenant), NotStored):
        time.sleep(_pause(waiting))
    return asked, _accepted(question, answer)


async def _aanswered(asked: _Asked) -> tuple[_Asked, _Answer]:
    (here, question), waiting = asked, Waiting(STORED_WITHIN_MS)
    await astore_held(here.run)
    while isinstance(answer := await asyncio.shield(_aask(here, question)), NotStored):  # noqa: ASYNC110 - the database tells
        await asyncio.sleep(_pause(waiting))
    return asked, _accepted(question, answer)


async def _aask(here: Here, question: Question) -> Any:
    return await awrite(here.desk, lambda: waits.ask(question), tenant=here.trusted.tenant)


def _pause(waiting: Waiting) -> float:
    if (pause := waiting.next()) is None:
        raise NoActiveCounterfoil(
            "A step waits in a graph whose checkpoints are not stored: entered again, it would be another step. A child"
            " graph that waits is compiled without checkpointer=False."
        )
    return pause


def _accepted(question: Question, answer: Came | TimedOut | Open | NoInbox | NotStored | NotOwner) -> _Answer:
    match answer:
        case Came() | TimedOut() | Open():
            return answer
        case NotOwner(owner):
            raise VersionConflict(
                f"This run no longer owns workflow {question.key.thread_id} (attempt {owner} does): it waits for"
                " nothing, and what it returns is not stored.",
                tenant=question.key.tenant,
                operation_id="",
                thread_id=question.key.thread_id,
            )
        case _:
            raise NotInWorkflow(
                f"A step of thread {question.key.thread_id} waits for {question.event or 'a time'}, but the thread is"
                " no workflow, so that nobody would wake it. Start it with cf.workflows.start(graph, input, tenant=...,"
                " workflow_id=...)."
            )


def _question(
    event: str,
    subject: str | None,
    match: Mapping[str, Any] | None,
    timeout: Duration | None,
    name: str | None,
) -> _Asked:
    named = validate_id("event name", CALLED.text("event", event))
    wanted = {} if match is None else dict(CALLED.mapping("match", match))
    codec.canonical(wanted, "$.match")  # what no event can hold would be waited for in vain
    return _asking(
        CALLED.text("name", name or named),
        event=named,
        subject=None if subject is None else validate_id("subject", CALLED.text("subject", subject)),
        match=wanted,
        timeout=None if timeout is None else milliseconds(timeout, "timeout"),
    )


def _timer(name: str, **when: int) -> _Asked:
    return _asking(CALLED.text("name", name), **when)


def _recurring(schedule: Schedule, missed: Missed, name: str | None) -> _Asked:
    return _asking(CALLED.text("name", name or schedule.name), schedule=schedule, missed=missed)


def _asking(name: str, **asked: Any) -> _Asked:
    _refuse_in_cached_node()
    here = locate("wait_for", elsewhere="Only steps of a workflow can wait: start one with cf.workflows.start(...).")
    run, step, collector = here.run, here.step, CURRENT.get()
    if run is not None and (collector is None or not collector.belongs_to(get_config())):
        raise NoActiveCounterfoil(
            "A step waits in a child graph that its node calls and that Counterfoil does not know. Compile it with"
            " cf.compile(child), or add it to its parent as a node."
        )
    if run is None or step is None or collector is None:
        raise NoActiveCounterfoil(
            "A step waits in a run that does not own its thread. Register the graph with"
            " cf.workflows.register(builder, name=...) and start it with cf.workflows.start(...); a worker runs it."
        )
    _refuse_after_enqueue(collector)
    question = Question(
        key=ThreadKey(tenant=here.trusted.tenant, thread_id=run.key.thread_id),
        attempt=run.attempt,
        step=step,
        node=here.origin.node,
        name=validate_id("name of a wait", name),
        number=collector.next_wait(name),
        **asked,
    )
    return here, question


def _refuse_in_cached_node() -> None:
    if (node := CACHED.get()) is not None:
        raise EffectInCachedNode(
            f"The node {node}, which has a cache policy, waits: for another workflow with the same input the cache"
            " would answer, and nobody would wait. Wait in a node without one."
        )


def _refuse_after_enqueue(collector: Collector) -> None:
    if collector.asked:
        raise IntentWouldBeLost(
            f"The node {collector.node} enqueued {', '.join(collector.asked)} and then waits: what it enqueued would"
            " leave only when the wait is over. Enqueue in a step before the one that waits."
        )


def _moment(when: datetime) -> int:
    return moment(when, "sleep_until")


# --- answering -------------------------------------------------------------------------------------------------------


def _event(asked: _Asked, answer: _Answer) -> Event | None:
    if isinstance(answer, Open):
        _park(asked, answer.due_at)
    if isinstance(answer, TimedOut):
        return None
    known = {name: answer.row[name] for name in ("event_id", "name", "subject", "sequence", "received_at")}
    return Event(**known, payload=codec.decode(answer.row["payload"]))


def _over(asked: _Asked, answer: _Answer) -> None:
    if isinstance(answer, Open):
        _park(asked, answer.due_at)


def _tick(asked: _Asked, answer: _Answer, schedule: Schedule, missed: Missed) -> datetime | None:
    """Return the time that has come, or None of one that is skipped."""
    if not isinstance(answer, TimedOut):
        _park(asked, answer.due_at if isinstance(answer, Open) else None)
    last = Last(due_at=answer.due_at, ended_at=answer.ended_at)
    if is_over_for_good(schedule, last, missed=missed):
        return None
    return datetime.fromtimestamp(answer.due_at / 1000, schedule.zone if isinstance(schedule, Daily) else UTC)


def _park(asked: _Asked, due_at: int | None) -> NoReturn:
    """Interrupt the run; raised as such, it takes no resume value that a person gives to another question."""
    _, question = asked
    told = {
        MARK: WAIT,
        "name": question.name,
        "event": question.event,
        "subject": question.subject,
        "until": None if due_at is None else utc_text(due_at),
        "node": question.node,
    }
    place = "\0".join((question.key.tenant, question.step.task_id, question.name, str(question.number)))
    raise GraphInterrupt((Interrupt(value=told, id=hashlib.sha256(place.encode()).hexdigest()[:32]),))
