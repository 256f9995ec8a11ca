"""Upkeep of threads: copy, prune, and delete what a run made. A thread that somebody runs is left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from counterfoil.access import acting, system_user
from counterfoil.core.access import Act
from counterfoil.core.durations import utc_text
from counterfoil.core.templates import validate_id
from counterfoil.core.workflows import Taken
from counterfoil.errors import InvalidArguments, ThreadBusy, ThreadExists
from counterfoil.langgraph.context import storable
from counterfoil.storage.scripts import checkpoints, history
from counterfoil.storage.scripts.checkpoints import Deleted
from counterfoil.storage.scripts.history import Copied, OtherHistory
from counterfoil.storage.scripts.threads import ThreadKey
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from counterfoil.core.access import Actor
    from counterfoil.desk import Desk
    from counterfoil.storage.script import Maker, Script

KEEP_LATEST = "keep_latest"
DELETE = ("delete", "delete_all")
"""LangGraph's base class and its server call it by different names."""


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of upkeep of one thread; `script` takes a holder whose process is certainly gone."""

    key: ThreadKey
    script: Callable[[str | None], Script[Any]]

    def over_the_dead(self, desk: Desk, answer: object) -> Callable[[], Script[Any]] | None:
        """Return the script again where only a dead process stands in its way, else None."""
        if isinstance(answer, Taken) and desk.activity.is_gone(answer.holder):
            return lambda: self.script(answer.holder)
        return None

    def refuses(self, answer: object) -> bool:
        """Say whether it was not done."""
        return self.refusal(answer) is not None

    def refusal(self, answer: object) -> Exception | None:
        """Return why it was not done, or None if it was."""
        match answer:
            case Taken(holder, until):
                return ThreadBusy(
                    f"Thread {self.key.thread_id} is being run by {holder}, and nothing of it was changed. Try again"
                    f" when that run has ended; if its process is gone, its claim ends by itself at {utc_text(until)}.",
                    tenant=self.key.tenant,
                    operation_id="",
                    thread_id=self.key.thread_id,
                    holder=holder,
                    until=until,
                )
            case OtherHistory():
                return ThreadExists(
                    f"Thread {self.key.thread_id} has a history of its own, and nothing was copied onto it. Copy to a"
                    " thread id that is not used, or delete that thread first.",
                    tenant=self.key.tenant,
                    operation_id="",
                    thread_id=self.key.thread_id,
                )
            case _:
                return None


class Upkeep(BaseCheckpointSaver[str]):
    """What a saver does with threads that nobody runs, for its own tenant."""

    desk: Desk
    tenant: str

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread's checkpoints; its receipts stay. A run that is at work on it can write nothing more.

        What the steps of a workflow have asked people about ends with it, as done by the operating-system user.
        """
        key, tried, by = self._key(thread_id), Deleted(), self._actor()
        write(self.desk, lambda: checkpoints.delete_thread(key, tried=tried, by=by), tenant=key.tenant)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread's checkpoints; see `delete_thread`."""
        key, tried, by = self._key(thread_id), Deleted(), self._actor()
        await awrite(self.desk, lambda: checkpoints.delete_thread(key, tried=tried, by=by), tenant=key.tenant)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread's history to another thread; the copy of a branch is in the same branch.

        Effects are not copied: what the copy performs under the same ids is answered from the receipts.

        Raises:
            ThreadExists: the target has a history that the source does not have.
            ThreadBusy: somebody runs the target.
        """
        self._do(self._copying(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread's history to another thread; see `copy_thread`."""
        await self._ado(self._copying(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = KEEP_LATEST) -> None:
        """Delete what threads do not need to go on, or all of them.

        What stays with `keep_latest`: the newest checkpoint of the root graph and of each child, what waits on them,
        and the ancestors that delta channels are made of. A branch is a thread of its own and loses nothing.

        Raises:
            ThreadBusy: somebody runs one of the threads; the others were pruned.
            InvalidArguments: there is no such strategy.
        """
        if is_deletion(strategy):
            for thread_id in thread_ids:
                self.delete_thread(thread_id)
        else:
            raise_first([self._done(self._pruning(thread_id)) for thread_id in thread_ids])

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = KEEP_LATEST) -> None:
        """Delete what threads do not need to go on, or all of them; see `prune`."""
        if is_deletion(strategy):
            for thread_id in thread_ids:
                await self.adelete_thread(thread_id)
        else:
            raise_first([await self._adone(self._pruning(thread_id)) for thread_id in thread_ids])

    def delete_for_runs(self, run_ids: Iterable[str]) -> None:
        """Delete the checkpoints that runs made, but for those that others lean on. Receipts stay.

        Ids that those runs minted stay known as long as the thread stands before their step: see `mint`.

        One of them that is at work still loses its thread and can write nothing more: the server rolls it back.

        Raises:
            ThreadBusy: another run is at work on one of their threads; in the others they were deleted.
        """
        refusals: list[Exception | None] = []
        for run_id in [storable("run id", one) for one in run_ids]:
            found = self.desk.store.read(self._threads_of(run_id), tenant=self.tenant)
            refusals += [self._done(deletion(key, run_id)) for key in found]
        raise_first(refusals)

    async def adelete_for_runs(self, run_ids: Iterable[str]) -> None:
        """Delete the checkpoints that runs made; see `delete_for_runs`."""
        refusals: list[Exception | None] = []
        for run_id in [storable("run id", one) for one in run_ids]:
            found = await self.desk.async_store.read(self._threads_of(run_id), tenant=self.tenant)
            refusals += [await self._adone(deletion(key, run_id)) for key in found]
        raise_first(refusals)

    # --- one piece of work -----------------------------------------------------------------------------------------

    def _key(self, thread_id: object) -> ThreadKey:
        return ThreadKey(tenant=self.tenant, thread_id=validate_id("thread id", str(thread_id)))

    def _actor(self) -> Actor:
        return acting(system_user(), act=Act.OPERATE, tenant=self.tenant)

    def _threads_of(self, run_id: str) -> Maker[list[ThreadKey]]:
        return lambda: history.threads_of_run(self.tenant, run_id)

    def _pruning(self, thread_id: str) -> Work:
        key = self._key(thread_id)
        return Work(key, lambda dead: history.prune(key, known_dead=dead))

    def _copying(self, source_thread_id: str, target_thread_id: str) -> Work:
        source, target = self._key(source_thread_id), self._key(target_thread_id)
        if source == target:
            raise InvalidArguments(f"Thread {source.thread_id} cannot be copied onto itself; name another target.")
        tried = Copied()
        return Work(target, lambda dead: history.copy_thread(source, target, known_dead=dead, tried=tried))

    def _do(self, work: Work) -> None:
        raise_first([self._done(work)])

    async def _ado(self, work: Work) -> None:
        raise_first([await self._adone(work)])

    def _done(self, work: Work) -> Exception | None:
        answer = write(self.desk, lambda: work.script(None), refuses=work.refuses, tenant=work.key.tenant)
        if (again := work.over_the_dead(self.desk, answer)) is not None:
            answer = write(self.desk, again, refuses=work.refuses, tenant=work.key.tenant)
        return work.refusal(answer)

    async def _adone(self, work: Work) -> Exception | None:
        answer = await awrite(self.desk, lambda: work.script(None), refuses=work.refuses, tenant=work.key.tenant)
        if (again := work.over_the_dead(self.desk, answer)) is not None:
            answer = await awrite(self.desk, again, refuses=work.refuses, tenant=work.key.tenant)
        return work.refusal(answer)


def deletion(key: ThreadKey, run_id: str) -> Work:
    """Return the work of deleting what a run made in one thread."""
    return Work(key, lambda dead: history.delete_run(key, run_id, known_dead=dead))


def is_deletion(strategy: str) -> bool:
    """Say whether a strategy deletes whole threads.

    Raises:
        InvalidArguments: there is no such strategy.
    """
    if strategy not in {KEEP_LATEST, *DELETE}:
        raise InvalidArguments(f"There is no strategy {strategy!r} to prune by. Write 'keep_latest' or 'delete'.")
    return strategy != KEEP_LATEST


def raise_first(refusals: Iterable[Exception | None]) -> None:
    """Raise the first refusal, if there is one, when all that could be done was done."""
    for refusal in refusals:
        if refusal is not None:
            raise refusal
