"""What is stored of a checkpoint and of a task's writes, and when: at once, or left in memory between key nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint, CheckpointMetadata

from counterfoil.errors import ReservedConfig
from counterfoil.langgraph.context import (
    Carried,
    Context,
    Run,
    carried,
    checkpoint_of,
    conf_of,
    namespace_of,
    storable,
    thread_of,
)
from counterfoil.langgraph.intents import CHANNEL, Intents, counting, parted, to_store
from counterfoil.langgraph.packing import leaning, split, with_run_id
from counterfoil.langgraph.policy import check_metadata, check_state
from counterfoil.langgraph.serde import ERROR_CHANNEL, StateSerializer
from counterfoil.langgraph.upkeep import Upkeep
from counterfoil.langgraph.versions import pack
from counterfoil.storage.scripts import checkpoints, handing
from counterfoil.storage.scripts.checkpoints import Encoded, NotOwner, Place
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig

    from counterfoil.langgraph.skipping import Skipping
    from counterfoil.storage.script import Maker, Row
    from counterfoil.storage.scripts.threads import NotStored


class Storing(Upkeep):
    """The part of a saver that makes rows of checkpoints and writes."""

    serde: StateSerializer
    _context: Context | None

    def carried(self, config: Mapping[str, Any]) -> Carried | None:
        """Return what a configuration carries, or else the context that this saver was made for."""
        return carried(config) or self._context

    def place(self, config: RunnableConfig) -> Place:
        """Return the thread and namespace that a configuration addresses, in its run's tenant."""
        found = self.carried(config)
        if found is not None and found.desk is not self.desk:
            raise ReservedConfig(
                "This run's context was made by another Counterfoil than its checkpointer. Use cf.config and cf.saver"
                " of the same one."
            )
        tenant = self.tenant if found is None else found.trusted.tenant
        key = ThreadKey(tenant=tenant, thread_id=thread_of(config))
        return Place(key=key, checkpoint_ns=namespace_of(config))

    def putting(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Sequence[Maker[NotOwner | None]]:
        """Return what stores a checkpoint, with what was left in memory before it; nothing if it is left there, too."""
        skipping, parent = self._skipping(config), checkpoint_of(config)
        if skipping is None:
            return [self._put(config, checkpoint, metadata, new_versions, parent)]
        if isinstance(checkpoint["channel_values"].get(CHANNEL), Intents):
            return [*skipping.flush(), self._put(config, checkpoint, metadata, new_versions, parent)]
        parent, versions = skipping.begin(parent, new_versions)
        maker = self._put(config, checkpoint, metadata, versions, parent)
        if skipping.may_skip(metadata):
            skipping.hold(parent, versions, maker)
            return []
        return [*skipping.forget(), maker]

    def writing(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Sequence[Maker[Any]]:
        """Return what stores a task's writes, with what was left in memory before; nothing if they are left there."""
        run, maker = self.carried(config), self._put_writes(config, writes, task_id, task_path)
        if not isinstance(run, Run) or run.skipping is None:
            return [maker]
        if run.skipping.must_flush(writes, task_path):
            return [*run.skipping.flush(), maker]
        if namespace_of(config):
            return [maker]
        run.skipping.hold_writes(maker)
        return []

    def stored(self, config: RunnableConfig, maker: Maker[Any]) -> None:
        """Note that something is stored which may have been left in memory before."""
        run = self.carried(config)
        if isinstance(run, Run) and run.skipping is not None:
            run.skipping.stored(maker)

    def _skipping(self, config: RunnableConfig) -> Skipping | None:
        """Return what a run has left in memory, for its root graph; those of its children are stored at once."""
        run = self.carried(config)
        return run.skipping if isinstance(run, Run) and not namespace_of(config) else None

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        parent: str | None,
    ) -> Maker[NotOwner | None]:
        place, run = self.place(config), self.carried(config)
        values, intents = parted(checkpoint["channel_values"])
        inline, rows = split(values, checkpoint["channel_versions"])
        kept = with_run_id(metadata, config)
        check_metadata(kept)
        # The writes were checked, too, but the runtime stores what became of them even where they were refused.
        for name in new_versions.keys() & values.keys():
            check_state(values[name], f"$.{name}")
        kind, body = self.serde.dumps_typed({**pack(checkpoint), "channel_values": inline})
        columns = {
            "checkpoint_id": storable("checkpoint id", checkpoint["id"]),
            "parent_id": parent,
            "root_id": (metadata.get("parents") or {}).get(""),
            "source": metadata.get("source", ""),
            "step": metadata.get("step", 0),
            "run_id": None if kept.get("run_id") is None else storable("run id", kept["run_id"]),
            "type": kind,
            "body": body,
            "stored_channels": checkpoints.named_channels(rows),
            "leaning": checkpoints.leaning_channels(leaning(checkpoint, metadata)),
            "metadata": self.serde.dumps_typed(kept)[1],
        }
        brought = {
            (storable("name of a state field", name), version): self._encoded(name, values[name])
            for name, version in rows.items()
            if name in new_versions
        }
        attempt = run.attempt if run is not None else None
        if intents is None:
            return lambda: checkpoints.put(place, attempt=attempt, columns=columns, channels=brought)
        record = intents.record
        return lambda: handing.put(place, attempt=attempt, columns=columns, channels=brought, record=record)

    def _encoded(self, channel: str, value: Any) -> Encoded:
        try:
            return self.serde.dumps_typed(value)
        except Exception as error:
            error.add_note(f"in the state field {channel!r}")
            raise

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Maker[NotOwner | NotStored | None]:
        place, run = self.place(config), self.carried(config)
        intents, kept = counting(writes), to_store(writes)
        rows = list(self._written(kept, intents))
        replace = all(channel in WRITES_IDX_MAP for channel, _ in kept)
        task = {"task_id": storable("task id", task_id), "task_path": storable("task path", task_path)}
        checkpoint_id = storable("checkpoint id", conf_of(config)["checkpoint_id"])
        attempt = run.attempt if run is not None else None
        if intents is None:
            return lambda: checkpoints.put_writes(
                place, attempt=attempt, checkpoint_id=checkpoint_id, task=task, writes=rows, replace=replace
            )
        record, named = intents.record, {**task, "checkpoint_id": checkpoint_id}
        return lambda: handing.put_writes(place, attempt=attempt, task=named, writes=rows, record=record)

    def _written(self, writes: Sequence[tuple[str, Any]], intents: Intents | None) -> Iterator[Row]:
        """Yield a task's writes as rows; of intents only references are kept, and none of a task that failed."""
        for number, (channel, given) in enumerate(writes):
            value = given
            if channel == CHANNEL and isinstance(given, Intents):
                if intents is None:
                    continue
                value = given.references
            if channel != ERROR_CHANNEL:
                check_state(value, f"$.{channel}")
            kind, packed = self.serde.dumps_write(channel, value)
            name = storable("name of a state field or node", channel)
            yield {"idx": WRITES_IDX_MAP.get(channel, number), "channel": name, "type": kind, "value": packed}
