"""B62: a NUL in tool output stops the run; a lone surrogate pushed the serializer into a less safe fallback.

Sources: https://github.com/langchain-ai/langgraph/issues/1878,
https://github.com/langchain-ai/langchain-mongodb/issues/260, https://github.com/osbuild/osbuild-composer/pull/4779
"""

import asyncio
from typing import Any

import pytest
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from counterfoil import EffectCall, NotSent, effect
from counterfoil.errors import EffectNotSent, InvalidId, LoneSurrogate, NulCharacter, SecretInState, StateNotStorable
from counterfoil.langgraph import perform
from tests.langgraph.shop import WHO, Shop, State, accept, chain, charge, conf

STRANGE = {
    "nul": "a\0b",
    "only-nul": "\0",
    "emoji": "four bytes: 🧾",
    "combining": "e\u0301 \u00e9",
    "surrogate": "half \ud83e",
    "private": "\ue000\uffff",
    "replacement": "\ufffd",
}
BAD_ID = ["nul", "only-nul", "surrogate"]


@effect("case.say", key="{request_id}/say")
def say(call: EffectCall, *, text: str = "") -> dict[str, str]:
    """An effect whose provider answers with any text."""
    accept(call)
    return {"said": STRANGE.get(text, text)}


@effect("case.complain", key="{request_id}/complain/{which}")
def complain(call: EffectCall, *, which: str) -> None:
    raise NotSent(STRANGE[which])


@pytest.mark.parametrize("which", STRANGE)
@pytest.mark.parametrize("kind", ["managed", "plain"])
def test_state_holds_any_text_faithfully_after_an_effect(shop: Shop, kind: str, which: str) -> None:
    text = STRANGE[which]

    def node(state: State) -> State:
        perform(charge, order="1")
        return {"answer": {"text": text, text: [text]}, "log": [text]}

    builder = chain(("n", node), ("later", lambda state: {"number": len(state["log"][0])}))
    graph = shop.cf.compile(builder) if kind == "managed" else builder.compile(checkpointer=shop.cf.saver())
    config = shop.cf.config(**WHO)
    graph.invoke({"order": text}, config)
    values = graph.get_state(config).values
    assert values["answer"] == {"text": text, text: [text]}
    assert (values["order"], values["log"], values["number"]) == (text, [text], len(text))
    assert shop.count == 1


@pytest.mark.parametrize("which", STRANGE)
def test_a_receipt_holds_any_text_faithfully(shop: Shop, which: str) -> None:
    def node(state: State) -> State:
        return {"answer": perform(say, text=which).value["said"]}

    graph = shop.cf.compile(chain(("n", node)))
    for request in (WHO, {**WHO, "thread_id": "t-2"}):
        assert shop.cf.run(graph, {}, **request)["answer"] == STRANGE[which]
    assert shop.count == 1


@pytest.mark.parametrize("which", STRANGE)
def test_a_payload_is_stored_faithfully_or_refused_before_the_effect(shop: Shop, which: str) -> None:
    text = STRANGE[which]

    def node(state: State) -> State:
        return {"answer": perform(say, text=text).value["said"]}

    graph = shop.cf.compile(chain(("n", node)))
    if which in BAD_ID:
        with pytest.raises((NulCharacter, LoneSurrogate)):
            shop.cf.run(graph, {}, **WHO)
        assert shop.count == 0
        assert shop.rows("operation") == 0
    else:
        assert shop.cf.run(graph, {}, **WHO)["answer"] == text


@pytest.mark.parametrize("field", ["thread_id", "tenant", "request_id", "workflow_id", "principal"])
@pytest.mark.parametrize("which", BAD_ID)
def test_an_id_that_cannot_be_stored_is_refused_before_anything_runs(shop: Shop, which: str, field: str) -> None:
    ran: list[int] = []

    def node(state: State) -> State:
        ran.append(1)
        return {}

    graph = shop.cf.compile(chain(("n", node)))
    with pytest.raises(InvalidId):
        shop.cf.run(graph, {}, **{**WHO, field: STRANGE[which]})
    assert ran == []


BAD_ADDRESSES = [
    conf(checkpoint_id="BAD"),
    conf(checkpoint_ns="BAD"),
    conf("BAD"),
    {"configurable": {"thread_id": "t-1", "checkpoint_ns": "BAD", "checkpoint_id": "BAD"}},
]


@pytest.mark.parametrize("address", BAD_ADDRESSES, ids=range(len(BAD_ADDRESSES)))
@pytest.mark.parametrize("which", BAD_ID)
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_an_address_that_cannot_be_stored_is_refused_alike_by_every_method(
    shop: Shop, colour: str, which: str, address: Any
) -> None:
    shop.cf.run(shop.cf.compile(chain(("n", lambda state: {}))), {}, **WHO)
    saver, blocking = shop.cf.saver(tenant="team-A"), colour == "blocking"
    place = {key: value.replace("BAD", STRANGE[which]) for key, value in address["configurable"].items()}
    config: Any = {"configurable": place}

    async def listed(**asked: Any) -> list[Any]:
        return [one async for one in saver.alist(**asked)]

    def ask(**asked: Any) -> list[Any]:
        return list(saver.list(**asked)) if blocking else asyncio.run(listed(**asked))

    with pytest.raises(InvalidId):
        saver.get_tuple(config) if blocking else asyncio.run(saver.aget_tuple(config))
    with pytest.raises(InvalidId):
        ask(config=config)
    if place.get("checkpoint_id"):
        with pytest.raises(InvalidId):
            ask(config=conf(), before=config)
    writing: Any = {"configurable": {"checkpoint_ns": "", "checkpoint_id": "c", **place}}
    given: Any = (writing, [("order", 1)], "task")
    with pytest.raises(InvalidId):
        saver.put_writes(*given) if blocking else asyncio.run(saver.aput_writes(*given))
    with pytest.raises(InvalidId):
        shop.cf.compile(chain(("n", lambda state: {}))).get_state(
            {"configurable": {**shop.cf.config(**WHO)["configurable"], **place}}
        )


@pytest.mark.parametrize("which", BAD_ID)
def test_what_a_saver_cannot_store_is_refused_and_what_nothing_can_fit_finds_nothing(shop: Shop, which: str) -> None:
    shop.cf.run(shop.cf.compile(chain(("n", lambda state: {}))), {}, **WHO)
    saver, bad = shop.cf.saver(tenant="team-A"), STRANGE[which]
    config: Any = conf("t-2", checkpoint_ns="", checkpoint_id="c")
    for writes, task, path in (([(bad, 1)], "t", ""), ([("order", 1)], bad, ""), ([("order", 1)], "t", bad)):
        with pytest.raises(InvalidId):
            saver.put_writes(config, writes, task, path)
    with pytest.raises(InvalidId):
        saver.delete_for_runs([bad])
    for key in ("source", "run_id", bad):
        assert list(saver.list(conf(), filter={key: bad})) == []
    assert shop.rows("write", "thread_id = 't-2'") == 0


def _fields(*names: str) -> Any:
    make: Any = TypedDict
    return make("Odd", dict.fromkeys(names, str))


@pytest.mark.parametrize("which", BAD_ID)
@pytest.mark.parametrize("where", ["node", "field", "node of a child"])
def test_a_name_that_no_checkpoint_holds_is_refused_when_the_graph_is_compiled(
    shop: Shop, where: str, which: str
) -> None:
    bad = STRANGE[which]
    odd = chain((bad, lambda state: {}))
    builders = {
        "node": odd,
        "field": chain(("n", lambda state: {}), schema=_fields("order", bad)),
        "node of a child": chain(("pay", lambda state: {}), ("child", odd.compile())),
    }
    with pytest.raises(InvalidId, match="name of a node or state field"):
        shop.cf.compile(builders[where])


@pytest.mark.parametrize("which", sorted(STRANGE.keys() - set(BAD_ID)))
def test_nodes_and_fields_may_have_any_other_name(shop: Shop, which: str) -> None:
    name = STRANGE[which].replace(":", "")
    child = chain((name, lambda state: {"number": perform(charge, order="1").value["number"]}))
    graph = shop.cf.compile(chain((name, child.compile()), ("n", lambda state: {"answer": interrupt("well?")})))
    shop.cf.run(graph, {}, **WHO)
    assert shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-1")["number"] == 1


@pytest.mark.parametrize("which", sorted(STRANGE.keys() - set(BAD_ID)))
def test_other_ids_work_as_they_are(shop: Shop, which: str) -> None:
    graph = shop.cf.compile(chain(("n", lambda state: {"number": perform(charge, order="1").value["number"]})))
    who = {**WHO, "thread_id": STRANGE[which], "request_id": STRANGE[which], "tenant": STRANGE[which]}
    for _ in range(2):
        assert shop.cf.run(graph, {}, **who)["number"] == 1
    assert shop.count == 1


@pytest.mark.parametrize("which", STRANGE)
def test_the_text_of_an_error_never_stops_its_being_recorded(shop: Shop, which: str) -> None:
    def node(state: State) -> State:
        perform(complain, which=which)
        return {}

    def broken(state: State) -> State:
        raise ValueError(STRANGE[which])

    with pytest.raises(EffectNotSent):
        shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **WHO)
    attempt = shop.cf.operations.get(f"r-1/complain/{which}", tenant="team-A").attempts[0]
    assert attempt.outcome == "not_sent"
    graph, config = shop.cf.compile(chain(("n", broken))), shop.cf.config(**{**WHO, "thread_id": "t-2"})
    with pytest.raises(ValueError):  # noqa: PT011 - its text is the point
        graph.invoke({}, config)
    assert graph.get_state(config).tasks[0].error is not None


@pytest.mark.parametrize("which", STRANGE)
def test_questions_and_answers_hold_any_text(shop: Shop, which: str) -> None:
    text = STRANGE[which]
    graph, config = shop.cf.compile(chain(("n", lambda state: {"answer": interrupt(text)}))), shop.cf.config(**WHO)
    assert graph.invoke({}, config)["__interrupt__"][0].value == text
    assert graph.invoke(Command(resume=text), config)["answer"] == text


@pytest.mark.parametrize("which", STRANGE)
def test_metadata_holds_any_text_or_refuses_it(shop: Shop, which: str) -> None:
    from langgraph.checkpoint.base import empty_checkpoint

    saver, config = shop.cf.saver(), {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    metadata: Any = {"source": "loop", "step": 0, "note": STRANGE[which]}
    try:
        saver.put(config, empty_checkpoint(), metadata, {})  # type: ignore[arg-type]
    except (StateNotStorable, SecretInState):
        assert which in BAD_ID
        assert saver.get_tuple(config) is None  # type: ignore[arg-type]
    else:
        found = saver.get_tuple(config)  # type: ignore[arg-type]
        assert found is not None
        assert found.metadata["note"] == STRANGE[which]  # type: ignore[typeddict-item]
