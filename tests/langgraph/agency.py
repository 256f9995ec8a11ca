"""What tests of tools and agents need: a scripted model, tools that reach the provider, and small tool graphs."""

from operator import add
from typing import Annotated, Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict

from counterfoil.effects import REGISTRY
from tests.langgraph.shop import WHO, Shop

GOING_ON: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1"}
ASKING: dict[str, Any] = {**WHO, "principal": "agent"}
DONE = AIMessage(content="done")


class Model(GenericFakeChatModel):
    """A model that says what it is told to, and takes any tools."""

    def bind_tools(self, tools: Any, **_options: Any) -> Any:  # noqa: ARG002 - the interface's name
        return self


def forget_tools() -> None:
    """Let tools of one name be protected in one test after another."""
    for known in [known for known in REGISTRY.effects if known[0].startswith("tool.")]:
        del REGISTRY.effects[known]


def model(*answers: AIMessage) -> Model:
    """Return a model that gives these answers in turn, each of which gets an id of its own."""
    return Model(messages=(one.model_copy() for one in answers))


class Talk(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    customer: str
    seen: Annotated[list[str], add]


def calls(*wanted: tuple[str, dict[str, Any]], batch: str = "x") -> AIMessage:
    made = [{"name": name, "args": args, "id": f"{batch}-{n}"} for n, (name, args) in enumerate(wanted)]
    return AIMessage(content="", tool_calls=made)


def refunds(amount: int = 500, order: str = "o-7", batch: str = "x") -> AIMessage:
    return calls(("refund", {"order": order, "amount": amount}), batch=batch)


def tool_graph(*tools: Any, handle_tool_errors: Any = True) -> Any:
    """Return a graph that runs a message's tool calls in one node, and shows errors to the model."""
    builder: Any = StateGraph(Talk)
    builder.add_node("tools", ToolNode(list(tools), handle_tool_errors=handle_tool_errors))
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    return builder


def told(state: Any) -> list[str]:
    return [str(one.content) for one in results(state)]


def results(state: Any) -> list[ToolMessage]:
    return [one for one in state["messages"] if isinstance(one, ToolMessage)]


def questions(state: Any) -> list[Any]:
    return [one.value for one in state.get("__interrupt__", ())]


def refunding(shop: Shop) -> BaseTool:
    """Return a plain tool that refunds at the provider, as often as it is called."""

    @tool
    def refund(order: str, amount: int) -> str:
        """Refund an order."""
        return f"refunded as {shop.tally.accept('refund', None, {'order': order, 'amount': amount})}"

    return refund


def arefunding(shop: Shop) -> BaseTool:
    """Return the same tool for the event loop."""

    @tool
    async def refund(order: str, amount: int) -> str:
        """Refund an order."""
        return f"refunded as {shop.tally.accept('refund', None, {'order': order, 'amount': amount})}"

    return refund


def amounts(shop: Shop) -> list[int]:
    """Return what the provider refunded."""
    return [one.body["amount"] for one in shop.tally.accepted()]
