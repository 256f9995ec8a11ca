"""What a run carries in its configuration: whose it is, and under which claim it may write.

The context travels as one object under a key that begins with `__`: LangGraph hands such keys to every task and
subgraph by reference and copies them into no checkpoint, and no name in state, arguments or metadata can spell it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from langgraph.config import get_config
from langgraph.runtime import get_runtime

from counterfoil.core.arguments import text_flaw
from counterfoil.core.templates import validate_id
from counterfoil.desk import Desk
from counterfoil.errors import ExitDurability, InvalidId, NoActiveCounterfoil, ReservedConfig
from counterfoil.model import Origin, Trusted
from counterfoil.storage.scripts.leaving import Ending, Paused
from counterfoil.storage.scripts.threads import Entry, Step, ThreadKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.langgraph.skipping import Skipping

KEY: Final = "__counterfoil"
CACHED: ContextVar[str | None] = ContextVar("counterfoil_cached_node", default=None)
"""The node around this code that a cache may answer for, if there is one."""
CONF: Final = "configurable"


class Context:
    """Whose run this is: made by `cf.config`, or by a saver for the configurations of a server, which bring none.

    Like `Run` no dataclass, so that whoever writes configurations out (LangGraph's server does) finds nothing in it.
    """

    __slots__ = ("desk", "entry", "of_saver", "trusted")

    def __init__(self, desk: Desk, trusted: Trusted, *, of_saver: bool = False, entry: Entry | None = None) -> None:
        self.desk = desk
        self.trusted = trusted
        self.of_saver = of_saver
        self.entry = entry

    @property
    def attempt(self) -> int | None:
        """Return the attempt under which the thread is claimed: none."""
        return None


class Run:
    """A context that owns its thread, for as long as one run lasts."""

    __slots__ = (
        *("attempt", "before", "branched_at", "context", "ended", "ending", "holder", "is_workflow", "key", "parked"),
        *("skipping", "wake_in", "awaits"),
    )

    def __init__(
        self,
        context: Context,
        key: ThreadKey,
        attempt: int,
        holder: str = "",
        *,
        branched_at: str | None = None,
        is_workflow: bool = False,
    ) -> None:
        self.context = context
        self.key = key
        self.attempt = attempt
        self.holder = holder
        self.branched_at = branched_at
        self.parked: list[str] = []
        self.awaits: set[str] = set()
        """Operations that wait for a decision, among those it is parked on."""
        self.ended = False
        self.is_workflow = is_workflow
        self.before: Mapping[str, Any] | None = None
        self.ending: Ending = Paused(None, due_in=0)
        self.wake_in: int | None = None
        self.skipping: Skipping | None = None

    @property
    def desk(self) -> Desk:
        """Return the desk of the Counterfoil that the run belongs to."""
        return self.context.desk

    @property
    def trusted(self) -> Trusted:
        """Return the trusted context."""
        return self.context.trusted


Carried = Context | Run


def conf_of(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a configuration's configurable part."""
    return (config or {}).get(CONF) or {}


def carried(config: Mapping[str, Any]) -> Carried | None:
    """Return what a configuration carries, or None.

    Raises:
        ReservedConfig: something else stands under the reserved key.
    """
    found = conf_of(config).get(KEY)
    if found is None or isinstance(found, Context | Run):
        return found
    raise ReservedConfig(
        f"The configurable {KEY!r} is reserved: the trusted context is set by cf.run(graph, input, tenant=...) or"
        " cf.config(tenant=...) alone."
    )


def thread_of(config: Mapping[str, Any]) -> str:
    """Return the configuration's thread id as text."""
    given = conf_of(config).get("thread_id")
    return validate_id("thread id", "" if given is None else str(given))


def storable(what: str, value: object) -> str:
    """Return a part of an address, or a name, as text that both databases can hold and compare.

    Raises:
        InvalidId: it has a NUL character or a lone surrogate in it.
    """
    text = str(value)
    if text and (flaw := text_flaw(text)):
        raise InvalidId(f"The {what} {flaw}. Nothing was read or stored.")
    return text


def checkpoint_of(config: Mapping[str, Any] | None) -> str | None:
    """Return the id of the checkpoint that a configuration addresses, if it addresses one."""
    given = conf_of(config).get("checkpoint_id")
    return storable("checkpoint id", given) if given else None


def namespace_of(config: Mapping[str, Any] | None) -> str:
    """Return the namespace that a configuration addresses; the root graph's is empty."""
    return storable("checkpoint namespace", conf_of(config).get("checkpoint_ns") or "")


def refuse_exit(durability: object) -> None:
    """Refuse a durability under which nothing is stored before the end of the run.

    Raises:
        ExitDurability: it is `exit`.
    """
    if durability == "exit":
        raise ExitDurability(
            'This graph was run with durability="exit", which stores nothing before the end: after a crash no'
            ' finished step would be known. Leave durability out, or pass "sync".'
        )


def unclaimed(config: Mapping[str, Any]) -> dict[str, Context]:
    """Return the part of a configuration that may be handed out and used again: the context without its claim.

    One that a saver made is made again by it.
    """
    match carried(config):
        case None:
            return {}
        case Run(context=context) | (Context() as context):
            return {} if context.of_saver else {KEY: context}


def branch_around() -> str | None:
    """Return the branch of the run that this code is part of, or None outside of any."""
    try:
        found = carried(get_config())
    except RuntimeError:
        return None
    return found.trusted.branch if found is not None else None


@dataclass(frozen=True, slots=True)
class Here:
    """Where in a graph some user code runs, and for whom."""

    desk: Desk
    trusted: Trusted
    origin: Origin
    run: Run | None
    step: Step | None


_PERFORM_THERE: Final = "Elsewhere use cf.perform(effect, tenant=..., ...)."


def locate(asked: str, *, elsewhere: str = _PERFORM_THERE) -> Here:
    """Find the run that this code belongs to; messages name what is asked for, and what there is outside of graphs.

    Raises:
        NoActiveCounterfoil: there is none, or a thread lost it.
    """
    try:
        config: Mapping[str, Any] = get_config()
    except RuntimeError:
        raise NoActiveCounterfoil(
            f"{asked} was called outside any LangGraph run. Inside a node this happens in a thread that lost the run's"
            f" context: start it with contextvars.copy_context().run(...). {elsewhere}"
        ) from None
    found = carried(config) or _context_of_saver(config, asked)
    origin = _origin(config)
    run = found if isinstance(found, Run) and not found.ended else None
    return Here(found.desk, _trusted(found, origin), origin, run, _step(config, origin))


def _context_of_saver(config: Mapping[str, Any], asked: str) -> Context:
    """Return the context that the run's checkpointer makes: how a plainly compiled graph finds its Counterfoil."""
    saver = conf_of(config).get("__pregel_checkpointer")
    if isinstance(getattr(saver, "desk", None), Desk):
        context: Context = saver.context_for(config)  # type: ignore[union-attr]  # ours, or LangGraph's server around it
        return context
    raise NoActiveCounterfoil(
        f"{asked} was called in a LangGraph run that knows no Counterfoil. Compile the graph with cf.compile(builder)"
        " and run it with cf.run(graph, input, tenant=..., thread_id=...). On LangGraph's server, name a saver of"
        " cf.saver() as its checkpointer, and run the graph on a thread."
    )


def _trusted(found: Carried, origin: Origin) -> Trusted:
    """Return what is trusted here; a run knows what keys call its own thread, which in a branch is not its id."""
    if isinstance(found, Run) and found.key.thread_id == origin.thread_id:
        return found.trusted
    return replace(found.trusted, thread_id=origin.thread_id)


def _origin(config: Mapping[str, Any]) -> Origin:
    info = get_runtime().execution_info
    metadata, conf = config.get("metadata") or {}, conf_of(config)
    return Origin(
        thread_id=_text(conf.get("thread_id")),
        checkpoint_ns=info.checkpoint_ns if info else None,
        checkpoint_id=info.checkpoint_id if info else None,
        node=_text(metadata.get("langgraph_node")),
        task_id=info.task_id if info else None,
        run_id=_text(info.run_id) if info else None,
    )


def _step(config: Mapping[str, Any], origin: Origin) -> Step | None:
    """Return the running task with its checkpoints, or None where nothing is checkpointed."""
    ids: Mapping[str, str] = conf_of(config).get("checkpoint_map") or {}
    # The map has an entry for each graph around the task; that of a @task also one for its entrypoint, on one id.
    here = sorted((ns for ns, found in ids.items() if found == origin.checkpoint_id), key=len)
    if not (origin.thread_id and origin.checkpoint_id and origin.task_id and here and "" in ids):
        return None
    return Step(checkpoint_ns=here[0], checkpoint_id=origin.checkpoint_id, root_id=ids[""], task_id=origin.task_id)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
