"""Intents on their way from a node into its checkpoint: collected while it runs, handed to LangGraph when it ends.

They travel in a channel of ours, as a node's updates of its state do. So LangGraph itself decides whether they count:
attempts that failed, interrupts and cancelled siblings leave none.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError, GraphInterrupt, InvalidUpdateError, ParentCommand
from langgraph.types import Command

from counterfoil.enqueuing import record_all
from counterfoil.errors import IntentWouldBeLost, NoActiveCounterfoil
from counterfoil.langgraph.context import conf_of, namespace_of
from counterfoil.langgraph.parking import is_ours
from counterfoil.storage.scripts.checkpoints import NAMESPACE_END

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig

    from counterfoil.enqueuing import Enqueuing
    from counterfoil.storage.script import Script

T = TypeVar("T")
CHANNEL: Final = "__counterfoil_intents"
TASK_ID: Final = "__pregel_task_id"
SEND: Final = "__pregel_send"
FAILED: Final = frozenset({"__error__", "__interrupt__"})
HANDLED: Final = "__error_source_node__"
RESUME: Final = "__resume__"


@dataclass(frozen=True, slots=True)
class Intents:
    """What one task asked for, or all tasks of a step."""

    asked: tuple[Enqueuing, ...]

    @property
    def references(self) -> list[dict[str, str]]:
        """Return what of them is stored among a task's writes: the rows are in the outbox."""
        return [{"key": call.job.key.operation_id} for call in self.asked]

    def record(self) -> Script[None]:
        """Record them in the transaction that stores what they belong to, or refuse all of it.

        Raises:
            FingerprintMismatch: an id is used with other arguments.
            DifferentEffect: an id belongs to another effect.
        """
        yield from record_all(self.asked)


class IntentChannel(BaseChannel[Any, Any, Any]):
    """The intents of the step that has just ended: for the checkpointer alone, and gone with the next step.

    Nobody can read it, so it is in no node's input, no result and no stream.
    """

    __slots__ = ("_asked",)

    def __init__(self, key: str = CHANNEL, asked: tuple[Enqueuing, ...] = ()) -> None:
        super().__init__(Any, key)
        self._asked = asked

    @property
    def ValueType(self) -> Any:  # noqa: N802 - the interface's name
        """Return what it holds."""
        return Intents

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - the interface's name
        """Return what it takes."""
        return Intents

    def copy(self) -> IntentChannel:
        """Return a copy."""
        return IntentChannel(self.key, self._asked)

    def checkpoint(self) -> Any:
        """Return the intents for the checkpointer, which records them and stores nothing here."""
        return Intents(self._asked) if self._asked else super().checkpoint()

    def from_checkpoint(self, checkpoint: Any) -> IntentChannel:
        """Return an empty one: what was stored is in the outbox."""
        del checkpoint
        return IntentChannel(self.key)

    def update(self, values: Sequence[Any]) -> bool:
        """Take the intents of a step's tasks; those of a task that ended in an earlier run are recorded already.

        Raises:
            InvalidUpdateError: somebody else wrote to it.
        """
        had = bool(self._asked)
        asked: list[Enqueuing] = []
        for value in values:
            if isinstance(value, Intents):
                asked.extend(value.asked)
            elif not _are_references(value):
                raise InvalidUpdateError(f"{CHANNEL} is written by enqueue alone.")
        self._asked = tuple(asked)
        return had or bool(asked)

    def get(self) -> Any:
        """Say that there is nothing to read."""
        raise EmptyChannelError

    def is_available(self) -> bool:
        """Say whether the next step has to empty it."""
        return bool(self._asked)


def _are_references(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and one.keys() == {"key"} for one in value)


def parted(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Intents | None]:
    """Divide a checkpoint's channel values into what is stored and the intents of its step."""
    found: Intents | None = values.get(CHANNEL)
    return (values if found is None else {name: values[name] for name in values if name != CHANNEL}), found


def counting(writes: Sequence[tuple[str, Any]]) -> Intents | None:
    """Return the intents among a task's writes, if these count: a task that failed or pauses runs again.

    One whose error a handler takes does not, and what it wrote before it failed is part of the step.
    """
    names = {channel for channel, _ in writes}
    if CHANNEL not in names or (names & FAILED and HANDLED not in names):
        return None
    return Intents(tuple(one for _, value in writes if isinstance(value, Intents) for one in value.asked))


def to_store(writes: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """Leave out the result of a task that enqueued and then failed or was cancelled, so that it does run again.

    LangGraph takes a task with a stored result for finished, error or not (`pregel._task_status`): its intents would be
    lost.
    """
    if counting(writes) is not None or all(channel != CHANNEL for channel, _ in writes):
        return writes
    return [(channel, value) for channel, value in writes if channel in FAILED or channel == RESUME]


# --- while a node runs -----------------------------------------------------------------------------------------------


class Collector:
    """What one attempt of one task has asked for so far; threads that it starts may add to it."""

    __slots__ = ("asked", "config", "ended", "lost", "node", "outer", "waits")

    def __init__(self, config: RunnableConfig, node: str, lost: str | None, outer: Collector | None) -> None:
        self.config = config
        self.node = node
        self.lost = lost
        self.outer = outer
        self.asked: dict[str, Enqueuing] = {}
        self.waits: Counter[str] = Counter()
        self.ended = False

    def belongs_to(self, config: Mapping[str, Any]) -> bool:
        """Say whether it collects for the task that has this configuration; an error handler has an id only there."""
        return bool(conf_of(self.config).get(TASK_ID) == conf_of(config).get(TASK_ID))

    def take(self, call: Enqueuing) -> bool:
        """Take an intent; say whether it is the first one of its operation here.

        Raises:
            FingerprintMismatch: the id was used here with other arguments.
            DifferentEffect: it belongs to another effect.
            NoActiveCounterfoil: the task has ended.
        """
        first = self.asked.setdefault(call.job.key.operation_id, call)
        if first is not call:
            call.refuse_beside(first)
        if self.ended:  # asked last, since the node may end meanwhile
            raise self.is_over(call.job.effect.name)
        return first is call

    def next_wait(self, name: str) -> int:
        """Return which wait of this name the next one is in this task."""
        self.waits[name] += 1
        return self.waits[name]

    def is_over(self, effect: str) -> NoActiveCounterfoil:
        """Say that the task has ended."""
        return NoActiveCounterfoil(
            f"The effect {effect} was enqueued after its node {self.node} had ended, from a thread or task that it left"
            " behind. Wait for it before the node returns."
        )

    def send(self, result: T) -> T:
        """Hand the intents to LangGraph, as writes of this task; return its result."""
        if self.asked:
            conf_of(self.config)[SEND]([(CHANNEL, self._intents())])
        return result

    def send_with(self, result: Any) -> Any:
        """Hand the intents to LangGraph, be it with a command for the parent graph: then that alone counts."""
        if not self.asked:
            return result
        if is_to_parent(result):
            return self.riding(result)
        if isinstance(result, list | tuple) and any(map(is_to_parent, result)):
            first = next(number for number, one in enumerate(result) if is_to_parent(one))
            return [*result[:first], self.riding(result[first]), *result[first + 1 :]]
        return self.send(result)

    def riding(self, command: Command[Any]) -> Command[Any]:
        """Return a command for the parent graph with the intents in its update.

        Raises:
            IntentWouldBeLost: the parent graph has no place for them.
        """
        outer = self.outer
        if outer is None or outer.lost is not None or namespace_of(outer.config) != _graph_around(self.config):
            raise IntentWouldBeLost(
                f"The node {self.node} enqueued {', '.join(self.asked)} and ends with a command for its parent graph,"
                " which Counterfoil did not compile, so that nothing would be sent. Compile the parent graph with"
                " cf.compile(builder), too."
            )
        return self.riding_on(command)

    def riding_on(self, command: Command[Any]) -> Command[Any]:
        """Return a command for the graph of this task with the intents in its update, too."""
        if not self.asked:
            return command
        return replace(command, update=[*command._update_as_tuples(), (CHANNEL, self._intents())])  # noqa: SLF001

    def warn_of_pause(self, pause: GraphInterrupt) -> None:
        """Warn that an interrupt keeps what was enqueued before it."""
        if self.asked and not all(map(is_ours, pause.args[0] if pause.args else ())):
            warnings.warn(
                f"The node {self.node} is interrupted after enqueue: what it enqueued leaves only when the node ends."
                " Enqueue in a step before the one that asks, to have it sent meanwhile.",
                stacklevel=2,
            )

    def _intents(self) -> Intents:
        self.ended = True
        return Intents(tuple(self.asked.values()))


CURRENT: ContextVar[Collector | None] = ContextVar("counterfoil_collector", default=None)
"""The collector of the task that this code is part of."""


@contextmanager
def collecting(config: RunnableConfig, node: str, lost: str | None) -> Iterator[Collector]:
    """Collect what one attempt of a task enqueues.

    Args:
        config: The configuration of the task.
        node: What messages call it.
        lost: Why nothing can be enqueued here, or None.
    """
    collector = Collector(config, node, lost, _around(config))
    token = CURRENT.set(collector)
    try:
        yield collector
    except GraphInterrupt as pause:
        collector.warn_of_pause(pause)
        raise
    except ParentCommand as command:  # of a child graph that the node called: for this graph, it is the node's result
        command.args = (collector.riding_on(command.args[0]),)
        raise
    finally:
        collector.ended = True
        CURRENT.reset(token)


def _around(config: Mapping[str, Any]) -> Collector | None:
    """Return the collector of the task around this graph, past those of this very task."""
    found = CURRENT.get()
    while found is not None and found.belongs_to(config):
        found = found.outer
    return found


def _graph_around(config: Mapping[str, Any]) -> str:
    """Return the namespace of the task that runs this graph; a number behind it counts the calls of one node."""
    parts = namespace_of(config).split(NAMESPACE_END)[:-1]
    while parts and parts[-1].isdigit():
        parts.pop()
    return NAMESPACE_END.join(parts)


def is_to_parent(result: object) -> bool:
    """Say whether a node's result is a command for its parent graph."""
    return isinstance(result, Command) and result.graph == Command.PARENT
