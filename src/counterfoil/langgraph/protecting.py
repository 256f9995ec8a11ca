"""Protect a LangChain tool: whoever calls it, and as often as it is called, it acts once, and only where it may."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from langchain_core.tools import ToolException
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from counterfoil.core.approvals import root_of
from counterfoil.core.proposals import APPROVAL_ID
from counterfoil.core.templates import TRUSTED_FIELDS
from counterfoil.declaring import effect
from counterfoil.drivers.driving import adrive, drive
from counterfoil.errors import InvalidArguments
from counterfoil.langgraph import told, tools
from counterfoil.langgraph.context import Here, locate
from counterfoil.langgraph.perform import aperform, perform
from counterfoil.model import Answered, NotSent
from counterfoil.providing import OPAQUE, Provider
from counterfoil.storage import rows
from counterfoil.storage.scripts import approvals

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping

    from langchain_core.tools import BaseTool

    from counterfoil.effects import Effect, EffectCall
    from counterfoil.model import Receipt
    from counterfoil.policy import Policy
    from counterfoil.storage.script import Maker

T = TypeVar("T", bound="BaseTool")
MARK = "__counterfoil__"
"""The attribute of a protected tool's class."""
BLOCKING, AWAITING = False, True
EDITED = "edited"
"""What of a receipt's evidence is what a person wrote in place of the call's own arguments."""
PAIR = 2
"""Content and artifact."""


def protect(
    tool: T,
    /,
    *,
    key: str,
    name: str | None = None,
    version: int = 1,
    provider: Provider = OPAQUE,
    approval: Policy | None = None,
    injected: Collection[str] = (),
    stable: Collection[str] = (),
    **options: Any,
) -> T:
    """Return a tool that looks the same to a model and to LangChain, and each of whose calls is an operation.

    A second call with the same business id is answered from the receipt, whatever its tool-call id. In a managed run
    an outcome that nobody knows parks the run, and so does a call that a person must decide about; what was rejected,
    refused or withdrawn is told to the model as an error, with nothing sent.

    Args:
        tool: A tool with a schema: of `@tool`, a `StructuredTool`, or of a class of your own.
        key: Template of the operation id over the tool's arguments and trusted fields: `"{request_id}/refund/{order}"`.
        name: The effect's name; `"tool."` and the tool's own, unless given.
        version: Raise it when the meaning of the arguments changes.
        provider: What the downstream can do; the default is nothing.
        approval: Which of its calls are made only once a person has approved them.
        injected: Injected arguments, such as those from the state, that belong to what is done and may be in the key.
        stable: Key fields with a suspicious name that are stable all the same.
        **options: What else `effect` takes: `time_limit`, `not_sent`, `refused`, `redact`, and so on.

    Raises:
        ContradictoryDeclaration: the tool has no schema, or the key is made of what is injected.
        UnknownTemplateField: the key uses a field that is neither an argument nor trusted.
        InvalidArguments: it is no tool.
    """
    if protection_of(tool) is not None:
        raise InvalidArguments(f"The tool {tool.name} is protected already.")
    tools.check_tool(tool)
    declared = tools.parameters(tool, injected)
    tools.refuse_injected(tool, key, declared, stable)
    made = Protection(tool, frozenset(declared), frozenset(tools.hidden(tool) - declared.keys()))
    contract = effect(
        name or f"tool.{tool.name}",
        key=key,
        version=version,
        provider=provider,
        approval=approval,
        stable=stable,
        **options,
    )
    for awaiting, has in ((AWAITING, tools.has_async), (BLOCKING, tools.has_blocking)):
        if has(tool):  # where it has both, the registry keeps the blocking one
            made.effects[awaiting] = contract(_function(made, declared, awaiting=awaiting))
            made.effects[awaiting].schema = tools.judging(tool)
    return _copied(tool, made)


def effect_of(tool: BaseTool) -> Effect[Any]:
    """Return the effect that a protected tool is: to grant it, to ask for it with `approve`, to `verify` it.

    Of a tool that can be called in both ways it is the blocking one.

    Raises:
        InvalidArguments: the tool is not protected.
    """
    if (made := protection_of(tool)) is None:
        raise InvalidArguments(
            f"The tool {getattr(tool, 'name', tool)!r} is not protected, so that it is no effect. Write"
            " protect(tool, key=...)."
        )
    return made.effects.get(BLOCKING) or made.effects[AWAITING]


def protection_of(tool: object) -> Protection | None:
    """Return how a tool is protected, if it is."""
    return getattr(type(tool), MARK, None)


# --- the effect that a tool is ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beside:
    """What a call brings that is no part of what is done: what is injected, callbacks, the configuration."""

    own: Mapping[str, Any]
    rest: Mapping[str, Any]


BESIDE: ContextVar[Beside | None] = ContextVar("counterfoil_beside_a_tool_call", default=None)
CALL_ID: ContextVar[str | None] = ContextVar("counterfoil_tool_call_id", default=None)
"""The id of the tool call around this code: correlation, never identity."""


@dataclass(frozen=True, slots=True)
class Protection:
    """A tool with the effect that it is, for blocking and for awaiting callers.

    `business` are the arguments that are part of what is done; `hidden` is what else a call may bring.
    """

    tool: BaseTool
    business: frozenset[str]
    hidden: frozenset[str]
    effects: dict[bool, Effect[Any]] = field(default_factory=dict)

    def body(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the body is called with, and what of it a person wrote in place of what the call brought.

        Raises:
            NotSent: no call of the tool is under way that would bring what is injected.
        """
        beside = BESIDE.get()
        if beside is None:
            raise NotSent(f"the tool {self.tool.name} acts within a call of it alone")
        edited = {name: value for name, value in given.items() if name not in TRUSTED_FIELDS}
        edited = {name: value for name, value in edited.items() if beside.own.get(name, beside) != value}
        fitting = tools.fitting(self.tool, given) if edited else given
        return {**beside.rest, **fitting}, edited


def _function(made: Protection, declared: Mapping[str, inspect.Parameter], *, awaiting: bool) -> Any:
    """Return a tool's body as an effect's function: its signature names the arguments that are part of what is done."""
    tool = made.tool

    def send(_call: EffectCall, /, **given: Any) -> Any:
        arguments, edited = made.body(given)
        return _answered(tool, tool._run(**arguments), edited)  # noqa: SLF001 - what tools implement

    async def asend(_call: EffectCall, /, **given: Any) -> Any:
        arguments, edited = made.body(given)
        return _answered(tool, await tool._arun(**arguments), edited)  # noqa: SLF001 - what tools implement

    function: Any = asend if awaiting else send
    first = inspect.Parameter("_call", inspect.Parameter.POSITIONAL_ONLY)
    function.__signature__ = inspect.Signature([first, *declared.values()])
    function.__annotations__ = {name: each.annotation for name, each in declared.items()}
    function.__name__, function.__doc__ = tool.name, tool.description
    function.__module__, function.__qualname__ = tools.place(tool)
    return function


def _answered(tool: BaseTool, value: Any, edited: Mapping[str, Any]) -> Answered[Any]:
    """Return what a tool returned; which call did it, and what a person wrote for it, is kept as evidence."""
    given = value if isinstance(value, Answered) else Answered(value)
    unreadable = given.unreadable or told.unreadable(given.value, pair=_is_pair(tool))
    more = {"tool_call_id": CALL_ID.get(), EDITED: dict(edited)}
    evidence = {**given.evidence, **{name: each for name, each in more.items() if each}}
    return Answered(None if unreadable else given.value, evidence, unreadable)


# --- the tool that a model sees --------------------------------------------------------------------------------------


def _copied(tool: T, made: Protection) -> T:
    """Return a copy of a tool whose body performs; its class, its fields and what is injected stay what they are."""
    copied = tool.model_copy(update={"handle_tool_error": _told_text})
    object.__setattr__(copied, "__class__", _protected_class(type(tool), made))
    return copied


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform the operation that a call is."""

    effect: Effect[Any]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """Run a script of reads."""

    maker: Maker[Any]


Steps: TypeAlias = "Generator[Perform | Read, Any, Any]"


def _protected_class(base: type[T], made: Protection) -> type[T]:
    def run(self: Any, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        with _within_call(tool_call_id):
            return base.run(self, tool_input, *args, tool_call_id=tool_call_id, **options)

    async def arun(self: Any, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        with _within_call(tool_call_id):
            return await base.arun(self, tool_input, *args, tool_call_id=tool_call_id, **options)

    @functools.wraps(base._run)  # noqa: SLF001 - what tools implement
    def _run(self: Any, *args: Any, **given: Any) -> Any:
        if (performed := made.effects.get(BLOCKING)) is None:
            return base._run(self, *args, **given)  # noqa: SLF001 - it says itself that it cannot
        return _perform(made, performed, _named(made.tool, args, given))

    @functools.wraps(base._arun)  # noqa: SLF001 - what tools implement
    async def _arun(self: Any, *args: Any, **given: Any) -> Any:
        if (performed := made.effects.get(AWAITING)) is None:
            return await base._arun(self, *args, **given)  # noqa: SLF001 - it runs the blocking one in a thread
        return await _aperform(made, performed, _named(made.tool, args, given))

    methods = {"run": run, "arun": arun, "_run": _run, "_arun": _arun, "__module__": base.__module__, MARK: made}
    kind: Any = type(base)
    protected: type[T] = kind(f"Protected{base.__name__}", (base,), methods)
    return protected


def _perform(made: Protection, performed: Effect[Any], given: Mapping[str, Any]) -> Any:
    here = locate(made.tool.name)

    def do(step: Perform | Read) -> Any:
        if isinstance(step, Read):
            return here.desk.store.read(step.maker, tenant=here.trusted.tenant)
        return perform(step.effect, **step.arguments)

    with _beside(made, given) as own:
        return drive(_called(made, performed, own, here), do)


async def _aperform(made: Protection, performed: Effect[Any], given: Mapping[str, Any]) -> Any:
    here = locate(made.tool.name)

    async def do(step: Perform | Read) -> Any:
        if isinstance(step, Read):
            return await here.desk.async_store.read(step.maker, tenant=here.trusted.tenant)
        return await aperform(step.effect, **step.arguments)

    with _beside(made, given) as own:
        return await adrive(_called(made, performed, own, here), do)


def _called(made: Protection, performed: Effect[Any], own: Mapping[str, Any], here: Here) -> Steps:
    """Perform the operation that a call is, and return what a model is told of it."""
    try:
        receipt: Receipt[Any] = yield Perform(performed, own)
    except GraphInterrupt as parked:
        raise (yield from _asking(made, parked, here)) from parked.__cause__
    except told.TO_A_MODEL as error:
        if CALL_ID.get() is None:
            raise  # code called it, and not a model
        raise Told(told.refusal(made.tool.name, error)) from error
    content, artifact = _parts(made.tool, receipt)
    if root_of(receipt.operation_id) != receipt.operation_id and CALL_ID.get() is not None:
        content = told.noted(told.instead(made.tool.name, receipt.evidence.get(EDITED)), content)
    return (content, artifact) if _is_pair(made.tool) else content


def _asking(made: Protection, parked: GraphInterrupt, here: Here) -> Generator[Read, Any, GraphInterrupt]:
    """Return an interrupt that asks for a decision in the shapes that user interfaces know."""
    (found,) = parked.args[0]
    approval_id = found.value.get(APPROVAL_ID)
    seq = None if approval_id is None else rows.approval_seq(approval_id)
    detail = None if seq is None else (yield Read(lambda: approvals.get(here.trusted.tenant, seq)))
    if detail is None:
        return parked
    value = {**told.question(made.tool.name, detail), **found.value}
    return GraphInterrupt((Interrupt(value=value, id=found.id),))


def _parts(tool: BaseTool, receipt: Receipt[Any]) -> tuple[Any, Any]:
    """Return a receipt's value as a tool's content and artifact."""
    if receipt.marker is not None:
        return told.happened(tool.name, receipt.marker), None
    value = receipt.value
    if not _is_pair(tool):
        return value, None
    if isinstance(value, tuple | list) and len(value) == PAIR:
        return value[0], value[1]
    return value, None  # a person's verdict may have said less


def _is_pair(tool: BaseTool) -> bool:
    return tool.response_format == "content_and_artifact"


class Told(ToolException):
    """What a model is told in place of a result."""


def _told_text(error: ToolException) -> str:
    if isinstance(error, Told):
        return str(error)
    raise error


@contextmanager
def _within_call(call_id: str | None) -> Iterator[None]:
    token = CALL_ID.set(call_id)
    try:
        yield
    finally:
        CALL_ID.reset(token)


@contextmanager
def _beside(made: Protection, given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Keep what a call brings beside what is done where the tool's body finds it; yield the latter.

    Raises:
        Told: a model made arguments up, which nobody would have approved.
        InvalidArguments: code did.
    """
    if unknown := sorted(given.keys() - made.business - made.hidden):
        message = told.unknown_arguments(made.tool.name, unknown, sorted(made.business))
        raise InvalidArguments(message) if CALL_ID.get() is None else Told(message)
    own = {name: value for name, value in given.items() if name in made.business}
    token = BESIDE.set(Beside(own, {name: value for name, value in given.items() if name not in own}))
    try:
        yield own
    finally:
        BESIDE.reset(token)


def _named(tool: BaseTool, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name: a tool may be called with one text for its first one."""
    return {**dict(zip(tool.args, args, strict=False)), **given}
