"""Protect all tools of an agent: a middleware for `create_agent`, in the one file that needs LangChain's agents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from counterfoil.errors import ContradictoryDeclaration, MissingExtra
from counterfoil.extras import install_line
from counterfoil.langgraph.protecting import protect, protection_of

try:
    from langchain.agents.middleware import AgentMiddleware
except ModuleNotFoundError as missing:
    raise MissingExtra(
        f"ProtectTools needs {missing.name}, which is not installed. Install it with:"
        f" {install_line('counterfoil[agents]')}"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
    from langgraph.types import Command


class ProtectTools(AgentMiddleware[Any, Any, Any]):
    """A middleware that brings an agent's tools, and lets none that acts run unprotected, whatever routes to it."""

    def __init__(
        self,
        tools: Sequence[BaseTool],
        effects: Mapping[str, Mapping[str, Any]],
        *,
        read_only: Collection[str | BaseTool] = (),
    ) -> None:
        """Protect the tools that have effects.

        Args:
            tools: All tools of the agent; `create_agent` need not be given them again.
            effects: What `protect` takes, for each tool that has an effect, by the tool's name.
            read_only: The tools that have none, those of other middleware included, by name or themselves. Another tool
                of the name of one that was given, here or in `tools`, is not that tool.

        Raises:
            ContradictoryDeclaration: a tool is named in neither, or a name twice, or a name is no tool's.
            UsageError: a tool cannot be protected like this.
        """
        super().__init__()
        known = {tool.name: tool for tool in tools}
        named = {one if isinstance(one, str) else one.name: one for one in read_only}
        _refuse_contradictions(effects, known, named.keys())
        given = {name: None if isinstance(one, str) else one for name, one in named.items()}
        self._reading = {name: one or known.get(name) for name, one in given.items()}
        self._protected = {name: protect(known[name], **options) for name, options in effects.items()}
        self.tools = [self._protected.get(name, tool) for name, tool in known.items()]
        self._refuse_undeclared(self.tools)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Refuse to offer a model a tool of which nobody said whether it acts.

        Raises:
            ContradictoryDeclaration: there is one.
        """
        self._refuse_undeclared(request.tools)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Refuse to offer a model a tool of which nobody said whether it acts; see `wrap_model_call`."""
        self._refuse_undeclared(request.tools)
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Let a call reach a protected tool, or one that only reads.

        Raises:
            ContradictoryDeclaration: nobody said whether the tool acts.
        """
        routed = self._routed(request)
        return routed if isinstance(routed, ToolMessage) else handler(routed)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Let a call reach a protected tool, or one that only reads; see `wrap_tool_call`."""
        routed = self._routed(request)
        return routed if isinstance(routed, ToolMessage) else await handler(routed)

    def _routed(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        """Return the request for a tool that may run, or what a model is told that asked for one that is not there."""
        name = request.tool_call["name"] if request.tool is None else request.tool.name
        tool = self._suited(request.tool, name)
        if tool is None and name not in self._reading:
            names = ", ".join(each.name for each in self.tools)
            told = f"There is no tool {name}; there are: {names}."
            return ToolMessage(told, name=name, tool_call_id=request.tool_call["id"], status="error")
        if tool is not None:
            self._refuse_undeclared([tool])
        runtime = request.runtime
        if runtime is not None:  # in which middleware after this one may look for another tool
            runtime = replace(runtime, tools=[self._declared(each) for each in runtime.tools])
        return replace(request, tool=tool, runtime=runtime)

    def _suited(self, tool: BaseTool | None, name: str) -> BaseTool | None:
        """Return the tool that is declared under this name, if one is that acts and this is not protected itself."""
        return tool if protection_of(tool) is not None else self._protected.get(name, tool)

    def _declared(self, tool: BaseTool) -> BaseTool:
        """Return the tool that may be called where this one is found by its name."""
        suited = self._suited(tool, tool.name) or tool
        return suited if protection_of(suited) is not None else self._reading.get(tool.name) or suited

    def _reads(self, tool: BaseTool) -> bool:
        """Say whether this very tool is declared to have no effect; of one that nobody gave, its name must do."""
        declared = self._reading.get(tool.name)
        return tool.name in self._reading and (declared is None or _is_the_same(tool, declared))

    def _refuse_undeclared(self, tools: Iterable[Any]) -> None:
        """Refuse tools of which nobody said whether they act; what a model's provider runs itself is not one of ours.

        Raises:
            ContradictoryDeclaration: there are some.
        """
        ours = [tool for tool in tools if isinstance(tool, BaseTool) and protection_of(tool) is None]
        undeclared = [tool for tool in ours if tool.name not in self._protected and not self._reads(tool)]
        if others := [tool.name for tool in undeclared if tool.name in self._reading]:
            raise ContradictoryDeclaration(
                f"There is another tool of the name {', '.join(others)} than the one that only reads, and nobody said"
                " whether it acts. Give it a name of its own, and say so. Nothing was called."
            )
        if undeclared:
            raise ContradictoryDeclaration(
                f"Nobody said of {', '.join(tool.name for tool in undeclared)} whether it acts. Give"
                " ProtectTools(tools, effects) a key for each tool that has an effect, and name those that only read:"
                " read_only=[...]. Nothing was called."
            )


def _is_the_same(tool: BaseTool, declared: BaseTool) -> bool:
    """Say whether a tool is the one that was declared, or a copy that runs the same function."""
    bodies = [(getattr(one, "func", None), getattr(one, "coroutine", None)) for one in (tool, declared)]
    return tool is declared or (type(tool) is type(declared) and bodies[0] == bodies[1] != (None, None))


def _refuse_contradictions(effects: Mapping[str, Any], known: Mapping[str, BaseTool], read_only: Iterable[str]) -> None:
    if both := sorted(effects.keys() & set(read_only)):
        raise ContradictoryDeclaration(f"ProtectTools(...) says of {', '.join(both)} that it acts and that it reads.")
    if unknown := sorted(effects.keys() - known.keys()):
        raise ContradictoryDeclaration(
            f"ProtectTools(...) names {', '.join(unknown)}, which is none of its tools: {', '.join(known)}."
        )
