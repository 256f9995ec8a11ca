"""The checkpointer: LangGraph's saver interface over Counterfoil's database, both colours from one object."""

from __future__ import annotations

import asyncio
import random
import time
from copy import copy
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from counterfoil.core.templates import validate_id
from counterfoil.errors import Busy, UnmanagedThread, VersionConflict
from counterfoil.langgraph.context import (
    CONF,
    KEY,
    Context,
    Run,
    carried,
    checkpoint_of,
    conf_of,
    refuse_exit,
    thread_of,
    unclaimed,
)
from counterfoil.langgraph.deltas import Walk
from counterfoil.langgraph.pages import Pages
from counterfoil.langgraph.serde import StateSerializer
from counterfoil.langgraph.serving import checked_trust, trusted_from
from counterfoil.langgraph.storing import Storing
from counterfoil.langgraph.versions import unpack
from counterfoil.runners import Waiting
from counterfoil.storage.scripts import checkpoints
from counterfoil.storage.scripts.threads import NotStored
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig

    from counterfoil.desk import Desk
    from counterfoil.langgraph.serving import Trust
    from counterfoil.storage.script import Maker
    from counterfoil.storage.scripts.checkpoints import NotOwner, Stored

STORED_WITHIN_MS = 10_000
"""How long a task's writes wait for the checkpoint that they hang on: the runtime stores it beside the step, and what
was enqueued must not be recorded for a step that would be run again as another one.
"""
_VERSION_WIDTH = 32
"""Digits of a channel's version, as many as LangGraph's server writes: versions are compared as texts, and a thread may
be run by the server at one time and without it at another.
"""


class CounterfoilSaver(Storing):
    """A LangGraph checkpointer; `cf.saver()` makes it.

    Compiled with `cf.compile` it fences: only the run that claimed a thread may write to it. Compiled plainly it is a
    drop-in saver, and `perform` in nodes is protected by the ledger, under any durability but `exit`.
    """

    serde: StateSerializer

    def __init__(self, desk: Desk, *, tenant: str = "", trust: Trust | None = None) -> None:
        super().__init__()
        self.serde = StateSerializer()
        self.desk = desk
        self.tenant = validate_id("tenant", tenant) if tenant != "" else ""
        self.key_nodes: frozenset[str] | None = None
        self._trust = checked_trust(trust)
        self._context: Context | None = None

    def within(self, context: Context | None) -> CounterfoilSaver:
        """Return a copy for one context: the configurations that LangGraph makes for subgraphs have lost theirs."""
        clone = copy(self)
        clone._context = context  # noqa: SLF001 - its own class
        return clone

    def context_for(self, config: Mapping[str, Any]) -> Context:
        """Return the context of a run whose configuration brings none: the saver's tenant, and what it trusts there.

        Raises:
            InvalidArguments: `trust` returned something else than trusted fields.
            InvalidId: a trusted field cannot be stored.
        """
        return Context(self.desk, trusted_from(self.tenant, self._trust, config), of_saver=True)

    def with_allowlist(self, extra_allowlist: Iterable[Any]) -> CounterfoilSaver:
        """Return a copy that also reads these classes; what `LANGGRAPH_STRICT_MSGPACK` asks for at compile time."""
        clone = copy(self)
        clone.serde = self.serde.with_declared(extra_allowlist)
        return clone

    # --- reading ---------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the addressed checkpoint, or the thread's newest by order of commit.

        Raises:
            ExitDurability: a run begins with `durability="exit"`.
            UnmanagedThread: a run without a claim begins on a thread that Counterfoil manages.
        """
        return self._got(config, self.desk.store.read(self._get(config), tenant=self._whose(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the addressed checkpoint, or the thread's newest; see `get_tuple`."""
        return self._got(config, await self.desk.async_store.read(self._get(config), tenant=self._whose(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the interface's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints of one tenant, the newest first, a page at a time.

        What the filter asks for must stand in the metadata: a key that a checkpoint lacks fits no value.

        Raises:
            InvalidArguments: the filter is no dictionary of metadata, or the limit no number from 0 on.
        """
        pages = Pages(self, config, filter, before, limit)
        pages.start(self.desk.store.read(pages.first, tenant=pages.tenant))
        while pages.wanted:
            yield from pages.take(self.desk.store.read(pages.next, tenant=pages.tenant))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the interface's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints of one tenant, the newest first, a page at a time; see `list`."""
        pages = Pages(self, config, filter, before, limit)
        pages.start(await self.desk.async_store.read(pages.first, tenant=pages.tenant))
        while pages.wanted:
            for found in pages.take(await self.desk.async_store.read(pages.next, tenant=pages.tenant)):
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what delta channels are made of: writes of ancestors, and the nearest stored value below them."""
        walk = Walk(self, config, channels)
        while walk.wanted:
            walk.take(self.desk.store.read(walk.next, tenant=walk.tenant))
        return walk.result()

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what delta channels are made of; see `get_delta_channel_history`."""
        walk = Walk(self, config, channels)
        while walk.wanted:
            walk.take(await self.desk.async_store.read(walk.next, tenant=walk.tenant))
        return walk.result()

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint if its run owns the thread.

        Raises:
            VersionConflict: another run owns the thread by now.
            UnmanagedThread: Counterfoil manages the thread and this run has no claim.
            StateNotStorable: a value would not come back equal.
            SecretInState: a value holds a credential.
        """
        for maker in self.putting(config, checkpoint, metadata, new_versions):
            self._accept(config, write(self.desk, maker, tenant=self._whose(config), refuses=bool))
            self.stored(config, maker)
        return self._address(config, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint if its run owns the thread; see `put`."""
        for maker in self.putting(config, checkpoint, metadata, new_versions):
            self._accept(config, await awrite(self.desk, maker, tenant=self._whose(config), refuses=bool))
            self.stored(config, maker)
        return self._address(config, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store a task's writes if its run owns the thread; raises as `put` does.

        Raises:
            Busy: the task enqueued something, and the checkpoint that it runs on is not stored.
        """
        for maker in self.writing(config, writes, task_id, task_path):
            waiting, tenant = Waiting(STORED_WITHIN_MS), self._whose(config)
            while isinstance(answer := write(self.desk, maker, tenant=tenant, refuses=bool), NotStored):
                time.sleep(self._pause(waiting, config))
            self._accept(config, answer)
            self.stored(config, maker)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store a task's writes if its run owns the thread; see `put_writes`."""
        for maker in self.writing(config, writes, task_id, task_path):
            waiting, tenant = Waiting(STORED_WITHIN_MS), self._whose(config)
            while isinstance(answer := await awrite(self.desk, maker, tenant=tenant, refuses=bool), NotStored):  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(self._pause(waiting, config))
            self._accept(config, answer)
            self.stored(config, maker)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the next version of a channel: a counter, and a random part that keeps two branches apart."""
        del channel
        number = int(str(current).partition(".")[0]) if current else 0
        return f"{number + 1:0{_VERSION_WIDTH}}.{random.getrandbits(53):016x}"

    # --- scripts and what comes back -------------------------------------------------------------------------------

    def _get(self, config: RunnableConfig) -> Maker[tuple[int | None, Stored | None]]:
        conf, place, checkpoint_id = conf_of(config), self.place(config), checkpoint_of(config)
        if "__pregel_runtime" in conf:
            refuse_exit(conf.get("__pregel_durability"))
        return lambda: checkpoints.read(place, checkpoint_id)

    def _got(self, config: RunnableConfig, found: tuple[int | None, Stored | None]) -> CheckpointTuple | None:
        owner, stored = found
        begins = "__pregel_runtime" in conf_of(config)
        if begins and owner is not None and not isinstance(carried(config), Run):
            raise self._unmanaged(config)
        return None if stored is None else self.loaded(config, stored)

    def metadata(self, stored: Stored) -> CheckpointMetadata:
        """Return a stored checkpoint's metadata."""
        found: CheckpointMetadata = self.serde.loads_typed((stored.row["type"], stored.row["metadata"]))
        return found

    def loaded(self, config: RunnableConfig, stored: Stored) -> CheckpointTuple:
        """Return a stored checkpoint as LangGraph sees it."""
        row = stored.row
        body = unpack(self.serde.loads_typed((row["type"], row["value"])))
        values = {part["name"]: self.serde.loads_typed((part["type"], part["value"])) for part in stored.channels}
        body["channel_values"] = {**body["channel_values"], **values}
        writes = [(w["task_id"], w["name"], self.serde.loads_typed((w["type"], w["value"]))) for w in stored.writes]
        parent = row["parent_id"]
        return CheckpointTuple(
            config=self._at(config, row, row["checkpoint_id"]),
            checkpoint=body,
            metadata=self.metadata(stored),
            parent_config=self._at(config, row, parent) if parent else None,
            pending_writes=writes,
        )

    def _whose(self, config: RunnableConfig) -> str:
        return self.place(config).key.tenant

    def _pause(self, waiting: Waiting, config: RunnableConfig) -> float:
        if (pause := waiting.next()) is None:
            raise Busy(
                f"The checkpoint that a step of thread {thread_of(config)} runs on was not stored within"
                f" {STORED_WITHIN_MS // 1000} s, so neither the result of the step nor what it enqueued was recorded"
                " with it. If the run goes on, its next checkpoint records both; else run the thread again."
            )
        return pause

    def _accept(self, config: RunnableConfig, refused: NotOwner | None) -> None:
        if refused is None:
            return
        run, thread = carried(config), thread_of(config)
        if not isinstance(run, Run):
            raise self._unmanaged(config)
        raise VersionConflict(
            f"This run no longer owns thread {thread} (it claimed attempt {run.attempt},"
            f" {'attempt ' + str(refused.owner) + ' owns it now' if refused.owner else 'nobody owns it now'})."
            " Its write was refused and nothing of it is stored; the run that took over goes on from the last"
            " checkpoint.",
            tenant=run.trusted.tenant,
            operation_id="",
            thread_id=thread,
        )

    def _unmanaged(self, config: RunnableConfig) -> UnmanagedThread:
        return UnmanagedThread(
            f"Thread {thread_of(config)} is managed: only a run that claimed it may go on. Compile the graph with"
            " cf.compile(builder) and run it with cf.run(graph, input, tenant=..., thread_id=...)."
        )

    def _address(self, config: RunnableConfig, checkpoint_id: str) -> RunnableConfig:
        place = self.place(config)
        conf = {"thread_id": place.key.thread_id, "checkpoint_ns": place.checkpoint_ns}
        return {CONF: {**conf, "checkpoint_id": checkpoint_id, **unclaimed(config)}}

    def _at(self, config: RunnableConfig, row: Mapping[str, Any], checkpoint_id: str) -> RunnableConfig:
        """Return where a checkpoint is; the runtime goes on with this configuration, so a claim stays in it."""
        conf = {"thread_id": row["thread_id"], "checkpoint_ns": row["checkpoint_ns"]}
        found = self.carried(config)
        return {CONF: {**conf, "checkpoint_id": checkpoint_id, **({} if found is None else {KEY: found})}}
