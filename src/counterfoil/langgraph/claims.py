"""Claim a thread before its first node, keep the claim by heartbeat, give it back at the end of the run."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langgraph.types import Command

from counterfoil.core.durations import utc_text
from counterfoil.core.workflows import Ended, Moved, OtherRequest, Taken, TakesNoInput, in_a_row
from counterfoil.errors import (
    CommitUnknown,
    CounterfoilError,
    OperationError,
    ReservedConfig,
    StoreError,
    ThreadBusy,
    TrustedFieldMismatch,
    VersionConflict,
    WorkflowConflict,
    WorkflowEnded,
    WorkflowParked,
)
from counterfoil.langgraph import endings
from counterfoil.langgraph.context import CONF, KEY, Context, Run, conf_of, thread_of, unclaimed
from counterfoil.langgraph.serving import served_run
from counterfoil.langgraph.skipping import astore_held, store_held
from counterfoil.model import Trusted
from counterfoil.storage.scripts import leaving, threads
from counterfoil.storage.scripts.threads import Claimed, Poisoned, ThreadClaim, ThreadKey, ThreadRequest
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.runtime import RunControl

    from counterfoil.desk import Desk
    from counterfoil.heartbeats import Beat

CLAIM_TRIES = 3
"""Commits of a claim that may fail before the database is held to be out of order."""
LEASE_MS = 30_000
"""How long a run's claim lasts without a heartbeat: how long the rescue of a run on another host waits."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A run that wants to begin."""

    desk: Desk
    context: Context
    request: ThreadRequest

    @classmethod
    def of(cls, desk: Desk, config: RunnableConfig, run_input: Any, context: Context | None = None) -> Wish:
        """Return what a run with this configuration and input needs in order to claim its thread.

        Args:
            desk: The desk of the graph's Counterfoil.
            config: Its configuration, with a context of its own or without.
            run_input: Its input.
            context: The context of a run that brings none.

        Raises:
            ReservedConfig: the context belongs to another Counterfoil than the graph.
        """
        context = unclaimed(config).get(KEY) or context or Context(desk, Trusted())
        if context.desk is not desk:
            raise ReservedConfig(
                "This run's context was made by another Counterfoil than its graph. Run a graph with the Counterfoil"
                " that compiled it."
            )
        trusted = context.trusted
        request = ThreadRequest(
            key=ThreadKey(tenant=trusted.tenant, thread_id=thread_of(config)),
            holder=f"{desk.holder}/{next(desk.entries)}",
            lease=LEASE_MS,
            trusted={
                "request_id": trusted.request_id,
                "workflow_id": trusted.workflow_id,
                "principal": trusted.principal,
            },
            goes_on=run_input is None or isinstance(run_input, Command),
            served=served_run(config),
            entry=context.entry,
        )
        return cls(desk, context, request)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count the run as under way from before its claim; one that does not get it ends here."""
        self.desk.activity.begin_run(self.request.holder)
        try:
            yield
        except BaseException:
            self.desk.activity.end_run(self.request.holder)
            raise

    def over_the_dead(self, answer: ThreadClaim) -> Wish | None:
        """Return the wish again where only a dead process stands in its way, else None."""
        if isinstance(answer, Taken) and self.desk.activity.is_gone(answer.holder):
            return replace(self, request=replace(self.request, known_dead=answer.holder))
        return None

    def _kept(self, claimed: Claimed) -> Trusted:
        """Return what is trusted in the run; what a run in a branch starts on another thread is in the branch, too."""
        return Trusted(
            tenant=self.request.key.tenant,
            thread_id=claimed.plain_thread_id or self.request.key.thread_id,
            branch=claimed.branch or self.context.trusted.branch,
            **claimed.trusted,
        )

    def granted(self, answer: ThreadClaim) -> tuple[Run, str | None]:
        """Return the run that now owns the thread, and what it was parked on.

        Raises:
            ThreadBusy: another run owns it.
            TrustedFieldMismatch: going on would change the ids of operations already begun.
        """
        key = self.request.key
        match answer:
            case Claimed(attempt=attempt, was_parked_on=parked):
                context = Context(
                    self.desk, self._kept(answer), of_saver=self.context.of_saver, entry=self.request.entry
                )
                run = Run(
                    context,
                    key,
                    attempt,
                    self.request.holder,
                    branched_at=answer.branched_at,
                    is_workflow=answer.is_workflow,
                )
                run.before = answer.before if answer.is_workflow else None
                return run, parked
            case Taken(holder, until):
                raise ThreadBusy(
                    f"Thread {key.thread_id} is being run by {holder}. Nothing ran here. Try again when that run has"
                    f" ended; if its process is gone, its claim ends by itself at {utc_text(until)}.",
                    tenant=key.tenant,
                    operation_id="",
                    thread_id=key.thread_id,
                    holder=holder,
                    until=until,
                )
            case OtherRequest(field):
                raise TrustedFieldMismatch(
                    f"Thread {key.thread_id} waits under another {field}. Going on under this one would perform its"
                    f" operations again under other ids. Leave {field} out to go on as before, or bring new input.",
                    field=field,
                )
            case _:
                raise _not_entered(key, answer)


def _not_entered(key: ThreadKey, answer: Moved | Ended | TakesNoInput | Poisoned) -> OperationError:
    """Return why a workflow was not entered."""
    facts: dict[str, Any] = {"tenant": key.tenant, "operation_id": "", "workflow_id": key.thread_id}
    told = f"Workflow {key.thread_id} of tenant {key.tenant}"
    match answer:
        case Moved():
            return VersionConflict(
                f"{told} went on since it was found due: another worker entered it. Nothing ran here.",
                thread_id=key.thread_id,
                **facts,
            )
        case Ended(status):
            return WorkflowEnded(
                f"{told} is {status}, and goes on no more. No node ran. Start another one under an id of its own with"
                " cf.workflows.start(...).",
                status=str(status),
                **facts,
            )
        case TakesNoInput():
            return WorkflowConflict(
                f"{told} was started with its input, and takes no other input. No node ran. Let it go on with None,"
                " answer its question with Command(resume=...), tell it something with cf.workflows.deliver(...), or"
                " start another one under an id of its own.",
                **facts,
            )
        case Poisoned(tries):
            return WorkflowParked(
                f"{told} is parked: its process died {in_a_row(tries)} at the same place. Find out why, then let"
                f" it go on with: counterfoil workflows resume {key.thread_id} --tenant {key.tenant} --reason '...'",
                tries=tries,
                **facts,
            )


def claim_now(
    desk: Desk, config: RunnableConfig, run_input: Any, context: Context | None = None
) -> tuple[Run, str | None]:
    """Claim a thread for a blocking run."""
    wish = Wish.of(desk, config, run_input, context)
    with wish.at_work():
        answer = _claim(wish)
        if (again := wish.over_the_dead(answer)) is not None:
            wish, answer = again, _claim(again)
        return wish.granted(answer)


def _claim(wish: Wish) -> ThreadClaim:
    lost: CommitUnknown | None = None
    for _ in range(CLAIM_TRIES):
        with nullcontext() if lost is None else lost.outlasting():
            try:
                return wish.desk.store.write(lambda: threads.claim(wish.request), tenant=wish.request.key.tenant)
            except CommitUnknown as error:
                lost = error
        with lost.outlasting():
            if found := wish.desk.store.read(lambda: threads.find_claim(wish.request), tenant=wish.request.key.tenant):
                return found
    raise lost or LookupError("unreachable: the last try returns or raises")


async def aclaim_now(
    desk: Desk, config: RunnableConfig, run_input: Any, context: Context | None = None
) -> tuple[Run, str | None]:
    """Claim a thread for a run on an event loop; a claim that nobody waits for any more is given back."""
    wish = Wish.of(desk, config, run_input, context)
    claiming = asyncio.ensure_future(_aclaim_whole(wish))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        await _give_back(claiming)
        raise


async def _give_back(claiming: asyncio.Future[tuple[Run, str | None]]) -> None:
    while not claiming.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({claiming})
    with suppress(CounterfoilError):
        run, parked = claiming.result()
        run.parked.extend([parked] if parked is not None else [])
        _end(run)
        await asyncio.shield(awrite(run.desk, lambda: _leave(run), tenant=run.key.tenant))


async def _aclaim_whole(wish: Wish) -> tuple[Run, str | None]:
    with wish.at_work():
        answer = await _aclaim(wish)
        if (again := wish.over_the_dead(answer)) is not None:
            wish, answer = again, await _aclaim(again)
        return wish.granted(answer)


async def _aclaim(wish: Wish) -> ThreadClaim:
    lost: CommitUnknown | None = None
    for _ in range(CLAIM_TRIES):
        with nullcontext() if lost is None else lost.outlasting():
            try:
                return await wish.desk.async_store.write(
                    lambda: threads.claim(wish.request), tenant=wish.request.key.tenant
                )
            except CommitUnknown as error:
                lost = error
        with lost.outlasting():
            if found := await wish.desk.async_store.read(
                lambda: threads.find_claim(wish.request), tenant=wish.request.key.tenant
            ):
                return found
    raise lost or LookupError("unreachable: the last try returns or raises")


@contextmanager
def owning(run: Run, control: RunControl) -> Iterator[None]:
    """Keep a run's claim alive while it runs, and give it back at its end."""
    beat = _beat(run, control)
    failed = True
    try:
        yield
        failed = False
    except BaseException as error:
        run.ending = endings.of_error(run, error)
        raise
    finally:
        beat.stop()
        _end(run)
        try:
            try:
                store_held(run)
            finally:
                write(run.desk, lambda: _leave(run), tenant=run.key.tenant)
        except StoreError:
            if not failed:
                raise


@asynccontextmanager
async def aowning(run: Run, control: RunControl) -> AsyncIterator[None]:
    """Keep a run's claim alive while it runs on an event loop, and give it back at its end."""
    beat = _beat(run, control)
    failed = True
    try:
        yield
        failed = False
    except BaseException as error:
        run.ending = endings.of_error(run, error)
        raise
    finally:
        beat.stop()
        _end(run)
        try:
            await asyncio.shield(_astore_and_leave(run))
        except StoreError:
            if not failed:
                raise


async def _astore_and_leave(run: Run) -> None:
    try:
        await astore_held(run)
    finally:
        await awrite(run.desk, lambda: _leave(run), tenant=run.key.tenant)


def _end(run: Run) -> None:
    run.ended = True
    run.desk.activity.end_run(run.holder)


def _leave(run: Run) -> Any:
    parked_on = run.parked[-1] if run.parked else None
    if run.is_workflow:
        return leaving.leave(run.key, attempt=run.attempt, parked_on=parked_on, ending=run.ending)
    return threads.leave(run.key, attempt=run.attempt, parked_on=parked_on)


def _beat(run: Run, control: RunControl) -> Beat:
    """Renew the claim; where it is lost, ask the run to stop before its next node."""

    def renew(within: float) -> bool:
        held = run.desk.store.renew(
            lambda: threads.renew(run.key, attempt=run.attempt, lease=LEASE_MS), within=within, tenant=run.key.tenant
        )
        if not held:
            control.request_drain("counterfoil: another run owns the thread")
        return held

    return run.desk.heartbeats.start(renew, lease_ms=LEASE_MS)


def with_run(config: RunnableConfig | None, run: Run) -> RunnableConfig:
    """Return a configuration that carries a run."""
    carrying: Any = {**(config or {}), CONF: {**conf_of(config), KEY: run}}
    whole: RunnableConfig = carrying
    return whole
