"""What a run carries in its configuration: whose it is, and under which claim it may write.

The context travels as one object under a key that begins with `__`: LangGraph hands such keys to every task and
subgraph by reference and copies them into no checkpoint, and no name in state, arguments or metadata can spell it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from langgraph.config import get_config
from langgraph.runtime import get_runtime

from counterfoil.core.templates import validate_id
from counterfoil.desk import Desk
from counterfoil.errors import ExitDurability, NoActiveCounterfoil, ReservedConfig
from counterfoil.model import Origin, Trusted
from counterfoil.storage.scripts.threads import Step, ThreadKey

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "__counterfoil"
CACHED: ContextVar[str | None] = ContextVar("counterfoil_cached_node", default=None)
"""The node around this code that a cache may answer for, if there is one."""
CONF: Final = "configurable"


@dataclass(frozen=True, slots=True)
class Context:
    """Whose run this is; made by `cf.config` and nowhere else."""

    desk: Desk = field(repr=False)
    trusted: Trusted

    @property
    def attempt(self) -> int | None:
        """Return the attempt under which the thread is claimed: none."""
        return None


@dataclass(slots=True, eq=False)
class Run:
    """A context that owns its thread, for as long as one run lasts."""

    context: Context
    key: ThreadKey
    attempt: int
    holder: str = ""
    parked: list[str] = field(default_factory=list)
    ended: bool = False

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
    """Return the part of a configuration that may be handed out and used again: the context without its claim."""
    match carried(config):
        case None:
            return {}
        case Run(context=context) | (Context() as context):
            return {KEY: context}


@dataclass(frozen=True, slots=True)
class Here:
    """Where in a graph some user code runs, and for whom."""

    desk: Desk
    trusted: Trusted
    origin: Origin
    run: Run | None
    step: Step | None


def locate(asked: str) -> Here:
    """Find the run that this code belongs to.

    Raises:
        NoActiveCounterfoil: there is none, or a thread lost it.
    """
    try:
        config: Mapping[str, Any] = get_config()
    except RuntimeError:
        raise NoActiveCounterfoil(
            f"{asked} was called outside any LangGraph run. Inside a node this happens in a thread that lost the run's"
            " context: start it with contextvars.copy_context().run(...). Elsewhere use cf.perform(effect,"
            " tenant=..., ...)."
        ) from None
    found = carried(config)
    desk = found.desk if found is not None else _desk_of_saver(config, asked)
    trusted = found.trusted if found is not None else Trusted()
    origin = _origin(config)
    run = found if isinstance(found, Run) and not found.ended else None
    return Here(desk, _with_thread(trusted, origin), origin, run, _step(config, origin))


def _desk_of_saver(config: Mapping[str, Any], asked: str) -> Desk:
    """Return the desk behind the run's checkpointer: how a plainly compiled graph finds its Counterfoil."""
    desk = getattr(conf_of(config).get("__pregel_checkpointer"), "desk", None)
    if isinstance(desk, Desk):
        return desk
    raise NoActiveCounterfoil(
        f"{asked} was called in a LangGraph run that knows no Counterfoil. Compile the graph with cf.compile(builder)"
        " and run it with cf.run(graph, input, tenant=..., thread_id=...)."
    )


def _with_thread(trusted: Trusted, origin: Origin) -> Trusted:
    return Trusted(
        tenant=trusted.tenant,
        request_id=trusted.request_id,
        workflow_id=trusted.workflow_id,
        principal=trusted.principal,
        thread_id=origin.thread_id,
    )


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
