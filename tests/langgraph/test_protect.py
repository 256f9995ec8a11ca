"""A protected tool looks the same to a model and to LangChain, and each of its calls is one operation."""

import asyncio
import sys
from datetime import date
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, Tool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command, interrupt
from pydantic import AfterValidator, BaseModel, Field

from counterfoil import AsyncCounterfoil, Policy, Refused
from counterfoil.errors import (
    ApprovalRejected,
    ContradictoryDeclaration,
    InvalidArguments,
    NoActiveCounterfoil,
    OutcomeUnknown,
    ThreadParked,
    UnknownTemplateField,
    UnstableId,
)
from counterfoil.langgraph import effect_of, protect
from tests.langgraph.agency import (
    ASKING,
    GOING_ON,
    amounts,
    arefunding,
    calls,
    forget_tools,
    questions,
    refunding,
    refunds,
    results,
    told,
    tool_graph,
)
from tests.langgraph.shop import WHO, Shop, State, chain

KEY = "{request_id}/refund/{order}"


@pytest.fixture(autouse=True)
def _each_test_declares_its_own() -> None:
    forget_tools()


def run(shop: Shop, tools: Any, message: Any, **who: Any) -> Any:
    return shop.cf.run(shop.cf.compile(tool_graph(*tools)), {"messages": [message]}, **(WHO | who))


# --- it looks the same -----------------------------------------------------------------------------------------------


class RefundArgs(BaseModel):
    """What to refund."""

    order: str = Field(description="the order's number")
    amount: int = 5


class RefundTool(BaseTool):
    name: str = "refund"
    description: str = "Refund an order."
    args_schema: Any = RefundArgs
    sent: list[int] = Field(default_factory=list)

    def _run(self, order: str, amount: int) -> str:
        self.sent.append(amount)
        return f"refunded {order}"


class ARefundTool(RefundTool):
    async def _arun(self, order: str, amount: int) -> str:
        self.sent.append(amount)
        return f"refunded {order} awaiting"


@pytest.mark.parametrize("kind", [RefundTool, ARefundTool])
def test_a_protected_tool_is_described_like_the_plain_one(kind: Any) -> None:
    plain = kind(tags=["money"], metadata={"team": "billing"}, return_direct=True)
    protected = protect(plain, key=KEY)
    for name in ("name", "description", "args", "tags", "metadata", "return_direct", "response_format"):
        assert getattr(protected, name) == getattr(plain, name)
    assert protected.args_schema is plain.args_schema
    assert protected.tool_call_schema.model_json_schema() == plain.tool_call_schema.model_json_schema()
    assert isinstance(protected, kind)
    assert plain.run({"order": "o-1", "amount": 3}) == "refunded o-1"  # which it leaves as it was


# --- it acts once ----------------------------------------------------------------------------------------------------


def test_a_second_call_with_the_same_business_id_is_answered_from_the_receipt(shop: Shop) -> None:
    refund = protect(refunding(shop), key=KEY)
    for batch in ("one", "other"):
        assert told(run(shop, [refund], refunds(batch=batch), thread_id=batch)) == ["refunded as 1"]
    assert shop.count == 1
    detail = shop.cf.operations.get("r-1/refund/o-7", tenant="team-A")
    assert detail.operation.effect == "tool.refund"
    assert detail.receipt is not None
    assert detail.receipt.evidence == {"tool_call_id": "one-0"}


async def test_async_tools_and_blocking_ones_on_the_loop(shop: Shop) -> None:
    for number, make in enumerate((arefunding, refunding)):
        refund = protect(make(shop), key=KEY, name=f"tool.{make.__name__}")
        config = shop.cf.config(**WHO | {"thread_id": make.__name__})
        graph = shop.cf.compile(tool_graph(refund))
        ended = await graph.ainvoke({"messages": [refunds(order=f"o-{number}"), refunds(order=f"o-{number}")]}, config)
        assert told(ended) == [f"refunded as {number + 1}"]
    assert shop.count == 2


@pytest.mark.parametrize("make", [refunding, arefunding])
async def test_parallel_calls_of_one_message_are_told_apart_by_business_id_alone(shop: Shop, make: Any) -> None:
    refund = protect(make(shop), key=KEY)
    asked = calls(*(("refund", {"order": order, "amount": 5}) for order in ("a", "b", "a")))
    graph = shop.cf.compile(tool_graph(refund))
    ended = await graph.ainvoke({"messages": [asked]}, shop.cf.config(**WHO))
    first, _, third = results(ended)
    assert (first.content, first.tool_call_id, third.tool_call_id) == (third.content, "x-0", "x-2")
    assert shop.count == 2


def test_a_tool_of_a_class_with_a_schema_and_defaults(shop: Shop) -> None:
    plain = RefundTool()
    refund = protect(plain, key=KEY)
    assert told(run(shop, [refund], calls(("refund", {"order": "o-7"})))) == ["refunded o-7"]
    assert told(run(shop, [refund], calls(("refund", {"order": "o-7", "amount": 5}))))[-1] == "refunded o-7"
    assert refund.sent == plain.sent == [5]


async def test_a_class_with_both_bodies_uses_the_one_of_its_caller(shop: Shop) -> None:
    refund = protect(ARefundTool(), key=KEY)
    graph = shop.cf.compile(tool_graph(refund))
    one, other = calls(("refund", {"order": "o-1"})), calls(("refund", {"order": "o-2"}))
    awaited = await graph.ainvoke({"messages": [one]}, shop.cf.config(**WHO))
    assert told(awaited) == ["refunded o-1 awaiting"]
    blocking = await asyncio.to_thread(run, shop, [refund], other, thread_id="t-2")
    assert told(blocking) == ["refunded o-2"]


def test_content_and_artifact_come_back_equal_from_the_receipt(shop: Shop) -> None:
    @tool(response_format="content_and_artifact")
    def refund(order: str) -> tuple[str, dict[str, Any]]:
        """Refund an order."""
        number = shop.tally.accept("refund")
        return f"refunded {order}", {"number": number, "lines": [(1, b"x")]}

    protected = protect(refund, key=KEY)
    asked = calls(("refund", {"order": "o-7"}), ("refund", {"order": "o-7"}))
    first, second = results(run(shop, [protected], asked))
    assert (first.content, first.artifact) == ("refunded o-7", {"number": 1, "lines": [(1, b"x")]})
    assert (second.content, second.artifact) == (first.content, first.artifact)


def test_a_tool_of_a_json_schema_as_servers_describe_them(shop: Shop) -> None:
    def body(**given: Any) -> str:
        return f"refunded as {shop.tally.accept('refund', None, given)}"

    schema = {
        "type": "object",
        "properties": {"order": {"type": "string"}, "note": {"type": "string"}},
        "required": ["order"],
    }
    plain = StructuredTool(name="refund", description="Refund.", args_schema=schema, func=body)
    refund = protect(plain, key=KEY)
    asked = calls(("refund", {"order": "o-7"}), ("refund", {"order": "o-7", "forged": 1}), ("refund", {"note": "x"}))
    once, invented, missing = results(run(shop, [refund], asked))
    assert (once.content, once.status) == ("refunded as 1", "success")
    assert "no argument forged" in str(invented.content)
    assert "order" in str(missing.content)
    assert {invented.status, missing.status} == {"error"}
    assert [one.body for one in shop.tally.accepted()] == [{"order": "o-7"}]


def test_a_parameter_that_the_schema_does_not_show_cannot_be_made_up(shop: Shop) -> None:
    def body(order: str, force: bool = False) -> str:  # noqa: FBT001, FBT002 - as a tool's body may be
        return f"{order} {force}: {shop.tally.accept('refund')}"

    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    refund = protect(StructuredTool(name="refund", description="Refund.", args_schema=schema, func=body), key=KEY)
    forged, honest = (calls(("refund", {"order": "o-7", **more})) for more in ({"force": True}, {}))
    assert "no argument force" in told(run(shop, [refund], forged))[0]
    assert told(run(shop, [refund], honest, thread_id="t-2")) == ["o-7 False: 1"]


class OpenArgs(BaseModel, extra="allow"):
    order: str


def test_a_schema_that_lets_anything_through_lets_nothing_through_unseen(shop: Shop) -> None:
    def body(**given: Any) -> str:
        return str(shop.tally.accept("refund", None, given))

    refund = protect(StructuredTool(name="refund", description="Refund.", args_schema=OpenArgs, func=body), key=KEY)
    assert "no argument force" in told(run(shop, [refund], calls(("refund", {"order": "o-7", "force": True}))))[0]
    assert shop.count == 0


class AsLangChainPasses(BaseTool):
    name: str = "refund"
    description: str = "Refund an order."
    args_schema: Any = RefundArgs

    def _run(
        self, order: str, amount: int, config: RunnableConfig, run_manager: CallbackManagerForToolRun | None = None
    ) -> str:
        return f"{order} {amount} {run_manager is not None} {config['configurable']['thread_id']}"


def test_callbacks_and_configuration_reach_the_body(shop: Shop) -> None:
    refund = protect(AsLangChainPasses(), key=KEY)
    assert told(run(shop, [refund], calls(("refund", {"order": "o-7"})))) == ["o-7 5 True t-1"]


def test_a_text_alone_is_the_first_argument(shop: Shop) -> None:
    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    protected = protect(refund, key=KEY)
    graph = shop.cf.compile(chain(("pay", lambda _: {"log": [protected.invoke("o-7")]})))
    assert shop.cf.run(graph, {}, **WHO)["log"] == ["refunded o-7"]
    assert shop.cf.operations.get("r-1/refund/o-7", tenant="team-A").operation.state == "succeeded"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pydantic 1 ends with Python 3.13")
def test_a_schema_of_pydantic_1(shop: Shop) -> None:
    from pydantic import v1

    class Old(v1.BaseModel):
        order: str
        amount: int = 5

    def body(order: str, amount: int) -> str:
        return f"{order} {amount}"

    refund = protect(StructuredTool(name="refund", description="Refund.", args_schema=Old, func=body), key=KEY)
    assert told(run(shop, [refund], calls(("refund", {"order": "o-7"})))) == ["o-7 5"]


# --- what is injected is passed through ------------------------------------------------------------------------------


def test_injected_arguments_reach_the_body_and_are_no_part_of_the_content(shop: Shop) -> None:
    @tool
    def refund(
        order: str,
        state: Annotated[dict[str, Any], InjectedState],
        call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
    ) -> str:
        """Refund an order."""
        shop.tally.accept("refund")
        return f"{order} {state['customer']} {call_id} {runtime.tool_call_id}"

    protected = protect(refund, key=KEY)
    graph = shop.cf.compile(tool_graph(protected))
    asked = calls(("refund", {"order": "o-7", "state": {"customer": "forged"}}))
    first = shop.cf.run(graph, {"messages": [asked], "customer": "ann"}, **WHO)
    assert told(first) == ["o-7 ann x-0 x-0"]
    again = calls(("refund", {"order": "o-7"}), batch="y")
    second = shop.cf.run(graph, {"messages": [again], "customer": "bob"}, **WHO | {"thread_id": "t-2"})
    assert told(second) == ["o-7 ann x-0 x-0"]
    assert (results(second)[0].tool_call_id, shop.count) == ("y-0", 1)


def of_state() -> BaseTool:
    @tool
    def refund(order: str, customer: Annotated[str, InjectedState("customer")]) -> str:
        """Refund an order."""
        return f"{order} of {customer}"

    return refund


def test_an_injected_argument_that_is_declared_a_business_argument_may_be_in_the_key(shop: Shop) -> None:
    refund = protect(of_state(), key="refund/{customer}/{order}", injected=("customer",))
    graph = shop.cf.compile(tool_graph(refund))
    asked = {"messages": [calls(("refund", {"order": "o-7", "customer": "forged"}))], "customer": "ann"}
    assert told(shop.cf.run(graph, asked, **WHO)) == ["o-7 of ann"]
    assert shop.cf.operations.get("refund/ann/o-7", tenant="team-A").operation.state == "succeeded"


# --- what is refused at import ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "key", "options", "error", "words"),
    [
        (lambda: Tool(name="t", func=str, description="d"), "t/{x}", {}, ContradictoryDeclaration, "no args_schema"),
        (lambda: print, "t/{x}", {}, InvalidArguments, "Put @tool above"),
        (RefundTool, "{request_id}/{customer}", {}, UnknownTemplateField, "customer"),
        (RefundTool, "refund/{tool_call_id}", {}, UnstableId, "tool_call_id"),
        (of_state, "refund/{customer}", {}, ContradictoryDeclaration, "injected"),
        (of_state, "refund/{order}", {"injected": ("order",)}, ContradictoryDeclaration, "does not have injected"),
        (lambda: protect(RefundTool(), key=KEY), KEY, {}, InvalidArguments, "already"),
    ],
)
def test_a_tool_that_cannot_be_protected_is_refused(
    make: Any, key: str, options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        protect(make(), key=key, **options)


def test_outside_a_run_nothing_is_sent(shop: Shop) -> None:
    refund = protect(refunding(shop), key=KEY)
    with pytest.raises(NoActiveCounterfoil):
        refund.invoke({"order": "o-7", "amount": 5})
    assert shop.count == 0


# --- unknown, refused, and what a model makes up ---------------------------------------------------------------------


def test_an_unknown_outcome_parks_the_run_under_an_error_handler(shop: Shop) -> None:
    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        shop.tally.accept("refund")
        raise TimeoutError

    graph = shop.cf.compile(tool_graph(protect(refund, key=KEY)))
    first = shop.cf.run(graph, {"messages": [calls(("refund", {"order": "o-7"}))]}, **WHO)
    assert told(first) == []
    (question,) = questions(first)
    assert question["counterfoil"] == "outcome-unknown"
    case = shop.cf.review.list(tenant="team-A").items[0]
    who: dict[str, Any] = {"tenant": "team-A", "by": "ann", "expect_version": case.version}
    shop.cf.review.resolve(case.case_id, verdict="happened", value="refunded", **who)
    assert told(shop.cf.run(graph, None, **GOING_ON)) == ["refunded"]
    assert shop.count == 1


def test_a_plainly_compiled_graph_raises_it(shop: Shop) -> None:
    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        raise TimeoutError

    graph = tool_graph(protect(refund, key=KEY), handle_tool_errors=False).compile(checkpointer=shop.cf.saver())
    with pytest.raises(OutcomeUnknown):
        graph.invoke({"messages": [calls(("refund", {"order": "o-7"}))]}, shop.cf.config(**WHO))


def test_what_was_refused_or_does_not_match_is_told_to_the_model_as_an_error(shop: Shop) -> None:
    @tool
    def refund(order: str, amount: int = 5) -> str:
        """Refund an order."""
        if order == "gone":
            raise Refused("no such order")
        return f"refunded as {shop.tally.accept('refund')}"

    protected = protect(refund, key=KEY)
    asked = [("gone", 5), ("o-7", 5), ("o-7", 6), ("", 5)]
    graph = shop.cf.compile(tool_graph(protected, handle_tool_errors=False))
    found = []
    for number, (order, amount) in enumerate(asked):
        message = calls(("refund", {"order": order, "amount": amount}))
        who = {**WHO, "thread_id": f"t-{number}"}
        found += results(shop.cf.run(graph, {"messages": [message]}, **who))
    refused, done, other, empty = found
    assert "no such order" in str(refused.content)
    assert done.status == "success"
    assert "amount differ" in str(other.content)
    assert "cannot be called like this" in str(empty.content)
    assert [one.status for one in found] == ["error", "success", "error", "error"]
    assert shop.count == 1


def test_a_result_that_is_no_data_leaves_its_receipt(shop: Shop) -> None:
    @tool
    def refund(order: str) -> Any:
        """Refund an order."""
        shop.tally.accept("refund")
        return Command(update={"customer": "x"})

    asked = calls(("refund", {"order": "o-7"}), ("refund", {"order": "o-7"}))
    first, second = results(run(shop, [protect(refund, key=KEY)], asked))
    assert "was called, and this is recorded" in str(first.content)
    assert (second.content, shop.count) == (first.content, 1)


# --- grants ----------------------------------------------------------------------------------------------------------


def test_in_a_strict_program_a_model_gets_only_what_was_granted(shop: Shop) -> None:
    refund = protect(refunding(shop), key=KEY)
    cf = shop.open(strict=True)
    graph = cf.compile(tool_graph(refund))
    who: dict[str, Any] = {"tenant": "team-A", "request_id": "r-1"}
    cf.grants.issue(effect_of(refund), by="gateway", order="o-7", amount=5, **who)
    asked = calls(*(("refund", {"order": order, "amount": amount}) for order, amount in [("o-7", 6), ("o-8", 5)]))
    refused = cf.run(graph, {"messages": [asked]}, **WHO)
    assert [one.status for one in results(refused)] == ["error", "error"]
    assert "Nobody permitted this call of refund" in told(refused)[0]
    assert shop.count == 0
    granted = cf.run(graph, {"messages": [refunds(5)]}, **WHO | {"thread_id": "t-2"})
    assert told(granted) == ["refunded as 1"]


def test_only_a_protected_tool_is_an_effect() -> None:
    assert effect_of(protect(ARefundTool(), key=KEY)).is_async is False
    with pytest.raises(InvalidArguments, match="not protected"):
        effect_of(RefundTool())


# --- approvals -------------------------------------------------------------------------------------------------------


def asked_about(shop: Shop, make: Any = refunding, **policy: Any) -> tuple[Any, Any, str]:
    """Let a graph ask for a refund of 500; return it, what it returned, and the approval's id."""
    refund = protect(make(shop), key=KEY, approval=Policy(**policy))
    graph = shop.cf.compile(tool_graph(refund))
    parked = shop.cf.run(graph, {"messages": [refunds()]}, **ASKING)
    (question,) = questions(parked)
    return graph, parked, question["approval_id"]


def test_the_question_has_the_shapes_of_langchain_and_of_agent_inbox(shop: Shop) -> None:
    _, parked, _ = asked_about(shop)
    (question,) = questions(parked)
    arguments = {"order": "o-7", "amount": 500}
    (request,) = question["action_requests"]
    assert (request["name"], request["args"], request["description"]) == ("refund", arguments, question["description"])
    assert question["review_configs"] == [{"action_name": "refund", "allowed_decisions": ["approve", "edit", "reject"]}]
    assert question["action_request"] == {"action": "refund", "args": arguments}
    assert question["config"] == {
        "allow_accept": True,
        "allow_edit": True,
        "allow_ignore": True,
        "allow_respond": False,
    }
    assert (told(parked), shop.count) == ([], 0)


@pytest.mark.parametrize(
    "answer",
    [{"decisions": [{"type": "approve"}]}, {"type": "approve"}, [{"type": "accept", "args": None}]],
    ids=["langchain", "per-call", "inbox"],
)
def test_a_resume_value_approves_nothing_and_an_answer_by_a_principal_does(shop: Shop, answer: Any) -> None:
    graph, parked, _ = asked_about(shop)
    with pytest.raises(ThreadParked):
        shop.cf.run(graph, Command(resume=answer), **GOING_ON)
    assert questions(shop.cf.run(graph, None, **GOING_ON)) != []
    assert shop.count == 0
    (decided,) = shop.cf.approvals.answer(answer, to=parked["__interrupt__"], tenant="team-A", by="mei")
    assert (decided.state, decided.decided_by) == ("approved", "mei")
    assert told(shop.cf.run(graph, None, **GOING_ON)) == ["refunded as 1"]
    assert amounts(shop) == [500]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"decisions": [{"type": "reject", "message": "not this customer"}]}, "not this customer"),
        ({"type": "ignore", "args": None}, "rejected in a review, where no reason was given"),
    ],
)
def test_a_rejection_is_told_to_the_model_with_its_reason(shop: Shop, answer: Any, reason: str) -> None:
    graph, parked, _ = asked_about(shop)
    shop.cf.approvals.answer(answer, to=parked["__interrupt__"], tenant="team-A", by="mei")
    (message,) = results(shop.cf.run(graph, None, **GOING_ON))
    assert message.status == "error"
    assert str(message.content).startswith(f"A person rejected this call of refund: {reason}.")
    assert shop.count == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"decisions": [{"type": "edit", "edited_action": {"name": "refund", "args": {"order": "o-7", "amount": 80}}}]},
        [{"type": "edit", "args": {"action": "refund", "args": {"order": "o-7", "amount": "80"}}}],
    ],
    ids=["langchain", "inbox-as-text"],
)
@pytest.mark.parametrize("make", [refunding, arefunding])
async def test_an_edit_is_asked_about_anew_and_the_model_is_told_what_was_done_instead(
    shop: Shop, make: Any, answer: Any
) -> None:
    refund = protect(make(shop), key=KEY, approval=Policy())
    graph = shop.cf.compile(tool_graph(refund))
    parked = await graph.ainvoke({"messages": [refunds()]}, shop.cf.config(**ASKING))
    decide = asyncio.to_thread
    await decide(shop.cf.approvals.answer, answer, to=parked["__interrupt__"], tenant="team-A", by="mei")
    again = await graph.ainvoke(None, shop.cf.config(**GOING_ON))
    (question,) = questions(again)
    assert question["operation_id"] == "r-1/refund/o-7~edit-1"
    assert int(question["action_requests"][0]["args"]["amount"]) == 80
    assert "mei wrote this" in question["description"]
    assert shop.count == 0
    await decide(shop.cf.approvals.answer, {"type": "approve"}, to=again["__interrupt__"], tenant="team-A", by="mei")
    (message,) = results(await graph.ainvoke(None, shop.cf.config(**GOING_ON)))
    assert "refund was called instead, with " in str(message.content)
    assert "80" in str(message.content)
    assert str(message.content).endswith("refunded as 1")
    assert amounts(shop) == [80]


@pytest.mark.parametrize("changes", [{"amount": "a lot"}, {"amount": None}, {"amount": 5.5, "order": "o-8"}])
def test_what_the_tool_cannot_take_is_refused_where_it_is_written(shop: Shop, changes: dict[str, Any]) -> None:
    graph, parked, approval_id = asked_about(shop)
    who: dict[str, Any] = {"tenant": "team-A", "by": "mei"}
    edit = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "o-7", "amount": 500, **changes}}}
    with pytest.raises(InvalidArguments, match="written for amount does not fit"):
        shop.cf.approvals.edit(approval_id, changes=changes, **who)
    with pytest.raises(InvalidArguments, match="written for amount does not fit"):
        shop.cf.approvals.answer(edit, to=parked["__interrupt__"], **who)
    assert shop.cf.approvals.show(approval_id, tenant="team-A").approval.state == "pending"
    shop.cf.approvals.approve(approval_id, **who)
    shop.cf.run(graph, None, **GOING_ON)
    assert amounts(shop) == [500]


def test_what_is_approved_is_what_the_tool_is_given_whatever_its_schema_makes_of_it(shop: Shop) -> None:
    @tool
    def refund(order: str, amount: Annotated[int, AfterValidator(lambda value: value * 2)], day: date) -> str:
        """Refund an order; its schema counts in half units."""
        return f"refunded as {shop.tally.accept('refund', None, {'amount': amount, 'day': day.isoformat()})}"

    graph = shop.cf.compile(tool_graph(protect(refund, key=KEY, approval=Policy())))
    call = calls(("refund", {"order": "o-7", "amount": 5, "day": "2026-01-01"}))
    asked = shop.cf.run(graph, {"messages": [call]}, **ASKING)["__interrupt__"]
    edit = {"type": "edit", "args": {"action": "refund", "args": {"order": "o-7", "amount": 4, "day": "2026-01-02"}}}
    who: dict[str, Any] = {"tenant": "team-A", "by": "mei"}
    (follower,) = shop.cf.approvals.answer(edit, to=asked, **who)
    shown = shop.cf.approvals.show(follower.approval_id, tenant="team-A").arguments
    assert shown == {"order": "o-7", "amount": 8, "day": date(2026, 1, 2)}
    shop.cf.approvals.approve(follower.approval_id, **who)
    shop.cf.run(graph, None, **GOING_ON)
    assert [one.body for one in shop.tally.accepted()] == [{"amount": 8, "day": "2026-01-02"}]


def test_what_a_json_schema_does_not_take_is_refused_where_it_is_written(shop: Shop) -> None:
    def send(**given: Any) -> str:
        return f"refunded as {shop.tally.accept('refund', None, given)}"

    schema = {
        "type": "object",
        "properties": {"order": {"type": "string"}, "amount": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["order", "amount"],
    }
    refund = StructuredTool.from_function(send, name="refund", description="Refund.", args_schema=schema)
    graph = shop.cf.compile(tool_graph(protect(refund, key=KEY, approval=Policy())))
    (asked,) = questions(shop.cf.run(graph, {"messages": [refunds()]}, **ASKING))
    who: dict[str, Any] = {"tenant": "team-A", "by": "mei"}
    for name, value in (("amount", "lots"), ("amount", True), ("note", 5)):
        with pytest.raises(InvalidArguments, match=f"written for {name} does not fit"):
            shop.cf.approvals.edit(asked["approval_id"], changes={name: value}, **who)
    follower = shop.cf.approvals.edit(asked["approval_id"], changes={"amount": 80, "note": "so"}, **who)
    shop.cf.approvals.approve(follower.approval_id, **who)
    shop.cf.run(graph, None, **GOING_ON)
    assert [(one.body["amount"], one.body["note"]) for one in shop.tally.accepted()] == [(80, "so")]


def test_a_model_that_asks_for_the_original_again_gets_a_new_question_that_shows_what_was_done(shop: Shop) -> None:
    graph, _, approval_id = asked_about(shop)
    follower = shop.cf.approvals.edit(approval_id, tenant="team-A", by="mei", changes={"amount": 80})
    shop.cf.approvals.approve(follower.approval_id, tenant="team-A", by="mei")
    shop.cf.run(graph, None, **GOING_ON)
    again = shop.cf.run(graph, {"messages": [refunds(batch="again")]}, **ASKING)
    (question,) = questions(again)
    assert question["operation_id"] == "r-1/refund/o-7~edit-2"
    assert question["action_requests"][0]["args"] == {"order": "o-7", "amount": 500}
    assert "r-1/refund/o-7~edit-1: succeeded" in question["description"]
    assert amounts(shop) == [80]


def test_an_answer_that_does_not_fit_decides_nothing(shop: Shop) -> None:
    graph, parked, approval_id = asked_about(shop)
    both = {"decisions": [{"type": "approve"}, {"type": "respond", "message": "done"}]}
    with pytest.raises(InvalidArguments, match="in the place of a side effect"):
        shop.cf.approvals.answer(both, to=[*parked["__interrupt__"] * 2], tenant="team-A", by="mei")
    assert shop.cf.approvals.show(approval_id, tenant="team-A").approval.state == "pending"
    assert questions(shop.cf.run(graph, None, **GOING_ON)) != []


def test_several_questions_are_answered_in_their_order_or_by_their_interrupts_id(shop: Shop) -> None:
    refund = protect(refunding(shop), key=KEY, approval=Policy())
    graphs: Any = StateGraph(State)
    names = ["a", "b", "c"]
    for name in names:
        graphs.add_node(name, lambda _, name=name: {"log": [refund.invoke({"order": name, "amount": 5})]})
        graphs.add_edge(START, name)
        graphs.add_edge(name, END)
    graph = shop.cf.compile(graphs)
    asked = shop.cf.run(graph, {}, **ASKING)["__interrupt__"]
    by_order = {one.value["action_request"]["args"]["order"]: one for one in asked}
    who: dict[str, Any] = {"tenant": "team-A", "by": "mei"}
    shop.cf.approvals.answer({by_order["b"].id: {"type": "approve"}}, to=asked, **who)
    rest = {"decisions": [{"type": "approve"}, {"type": "reject", "message": "no"}]}
    shop.cf.approvals.answer(rest, to=[by_order["a"].value, by_order["c"].value], **who)
    with pytest.raises(ApprovalRejected):  # a node called it, not a model
        shop.cf.run(graph, None, **GOING_ON)
    assert {one.body["order"] for one in shop.tally.accepted()} <= {"a", "b"}


def test_a_workflow_goes_on_by_itself_when_somebody_answered(shop: Shop) -> None:
    refund = protect(refunding(shop), key=KEY, approval=Policy())
    graph = shop.cf.workflows.register(tool_graph(refund), name="refunds")
    who: dict[str, Any] = {"tenant": "team-A", "workflow_id": "w-1"}
    shop.cf.workflows.start("refunds", {"messages": [refunds()]}, request_id="r-1", **who)
    shop.cf.drain()
    asked = graph.get_state(shop.cf.config(tenant="team-A", thread_id="w-1")).interrupts
    shop.cf.approvals.answer({"type": "approve"}, to=asked, tenant="team-A", by="mei")
    shop.cf.drain()
    assert shop.cf.workflows.get("w-1", tenant="team-A").status == "done"
    assert amounts(shop) == [500]


async def test_an_answer_awaited(shop: Shop) -> None:
    refund = protect(arefunding(shop), key=KEY, approval=Policy())
    async with AsyncCounterfoil.open(shop.url) as cf:
        graph = cf.compile(tool_graph(refund))
        parked = await cf.run(graph, {"messages": [refunds()]}, **ASKING)
        edit = {"type": "edit", "args": {"action": "refund", "args": {"order": "o-7", "amount": 80}}}
        (follower,) = await cf.approvals.answer([edit], to=parked["__interrupt__"], tenant="team-A", by="mei")
        assert (follower.state, follower.edited_by) == ("pending", "mei")
        no = {"decisions": [{"type": "reject", "message": "no"}]}
        again = await cf.run(graph, None, **GOING_ON)
        (decided,) = await cf.approvals.answer(no, to=again["__interrupt__"], tenant="team-A", by="ann")
        assert (decided.state, decided.reason) == ("rejected", "no")
        (message,) = results(await cf.run(graph, None, **GOING_ON))
    assert "A person rejected this call of refund: no." in str(message.content)


def test_a_question_that_is_not_ours_cannot_be_answered(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("ask", lambda _: interrupt({"action_requests": []}))))
    asked = shop.cf.run(graph, {}, **ASKING)["__interrupt__"]
    with pytest.raises(InvalidArguments, match="none about an approval"):
        shop.cf.approvals.answer({"decisions": [{"type": "approve"}]}, to=asked, tenant="team-A", by="mei")
