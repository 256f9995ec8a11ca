"""B76: a run could be started on another user's thread by its id, and its state read.

Sources: https://github.com/langchain-ai/aegra/issues/336, https://github.com/Tracer-Cloud/opensre/issues/561,
https://github.com/JoshuaC215/agent-service-toolkit/pull/305

Each method of a compiled graph and of a saver that takes a configuration is called with the ids of a tenant's thread,
its run and its checkpoint, by another tenant and by nobody, with the tenant's name wherever a caller can write it.
"""

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import StateUpdate

import counterfoil.langgraph as functions
from counterfoil.errors import ReservedConfig, TrustedFieldMismatch
from counterfoil.langgraph.context import KEY
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.cases.neighbours import MARK, NOBODY, OURS, Ids, Said, World, neighbours, told, whose
from tests.colours import COLOURS
from tests.langgraph.shop import chain
from tests.stores import SHARED

RUNS: dict[str, Any] = {
    "invoke": lambda ids, config: ((said(ids), config), {}),
    "stream": lambda ids, config: ((said(ids), config), {"stream_mode": "values"}),
    "stream_events": lambda ids, config: ((said(ids), config), {"version": "v2"}),  # awaited only
    "batch": lambda ids, config: (([said(ids)], config), {}),
    "batch_as_completed": lambda ids, config: (([said(ids)], [config]), {}),
    "transform": lambda ids, config: ((Chunks([said(ids)]), config), {}),
}
"""Ways to run a graph, each with new input that names the tenant."""
STATES: dict[str, Any] = {
    "get_state": lambda ids, config: ((config,), {"subgraphs": True}),
    "get_state_history": lambda ids, config: ((config,), {}),
    "update_state": lambda ids, config: ((config, said(ids)), {"as_node": "act"}),
    "bulk_update_state": lambda ids, config: ((config, [[StateUpdate(said(ids), "act")]]), {}),
}
"""Ways to see and to change what is stored."""
OF_THE_GRAPH = {
    *("get_graph", "get_prompts", "get_input_schema", "get_input_jsonschema", "get_output_schema"),
    *("get_output_jsonschema", "with_config"),
}
"""Methods that take a configuration and look at no thread."""
AWAITED_ONLY = {"stream_log": "LangChain's older form of the events, which are walked"}

SAVERS: dict[str, Any] = {
    "get": lambda ids, config: ((config,), {}),
    "get_tuple": lambda ids, config: ((config,), {}),
    "list": lambda ids, config: ((config,), {"filter": None, "before": None}),
    "get_delta_channel_history": lambda ids, config: ((), {"config": config, "channels": ["seen"]}),
    "put": lambda ids, config: ((config, empty_checkpoint(), {"source": "input", "step": 1}, {}), {}),
    "put_writes": lambda ids, config: ((addressed(config), [("seen", "x")], "task"), {}),
    "delete_thread": lambda ids, config: ((ids.thread,), {}),
    "delete_for_runs": lambda ids, config: (([ids.run],), {}),
    "copy_thread": lambda ids, config: ((ids.thread, "copy"), {}),
    "prune": lambda ids, config: (([ids.thread, ids.workflow],), {"strategy": "delete"}),
}
OF_THE_SAVER = {
    *("carried", "config_specs", "context_for", "get_next_version", "loaded", "metadata", "place", "putting", "serde"),
    *("stored", "with_allowlist", "within", "writing"),
}
"""What a saver has besides, which reads and changes nothing stored."""

IN_NODES = ("perform", "enqueue", "approve", "aperform", "aenqueue", "aapprove")
OF_NO_ARGUMENTS = {
    *("Decision", "for_server", "retry_on", "protect", "ProtectTools", "effect_of"),
    *("mint", "amint", "wait_for", "await_for", "sleep_for", "sleep_until", "sleep_until_next"),
    *("asleep_for", "asleep_until", "asleep_until_next"),
}
"""Functions that take no business arguments, or hand them to `perform`."""


def said(ids: Ids) -> dict[str, Any]:
    return {"title": "x", "tenant": ids.tenant, "request_id": ids.request, "thread_id": ids.thread}


class Chunks(list[Any]):
    """A list that can be awaited one by one, too."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        for one in self:
            yield one


def addressed(config: Any) -> Any:
    conf = {"checkpoint_ns": "", "checkpoint_id": NOBODY.checkpoint, **config["configurable"]}
    return {**config, "configurable": conf}


PLACES: dict[str, Any] = {
    "nowhere": lambda ids: {},
    "configurable": lambda ids: {"configurable": {"tenant": ids.tenant, "user_id": ids.tenant, "thread": ids.thread}},
    "nested": lambda ids: {"configurable": {"configurable": said(ids), "counterfoil": said(ids), "trusted": said(ids)}},
    "metadata": lambda ids: {"metadata": {**said(ids), "run_id": ids.run, "trusted": said(ids), KEY: said(ids)}},
    "top": lambda ids: {"tenant": ids.tenant, KEY: said(ids)},
    "checkpoint": lambda ids: {"configurable": {"checkpoint_id": ids.checkpoint, "checkpoint_ns": ""}},
    "map": lambda ids: {"configurable": {"checkpoint_map": {"": ids.checkpoint}}},
    "reserved": lambda ids: {"configurable": {KEY: {"trusted": {"tenant": ids.tenant}}}},
}
"""Where a caller can write whose thread it wants, in a configuration."""
FEWER = ("nested", "metadata", "checkpoint")
"""Places for the ways to run a graph that lead through `stream`."""


@pytest.fixture(scope="module", params=SHARED)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two tenants on each database, for all tests of this file."""
    yield from neighbours(request, tmp_path_factory)


@pytest.fixture(autouse=True)
def kept(world: World) -> Iterator[None]:
    """See that what is the tenant's stays as it is."""
    before = world.rows(OURS)
    yield
    assert world.rows(OURS) == before


def takes_config(kind: Any, name: str) -> bool:
    made = inspect.getattr_static(kind, name)
    return inspect.isfunction(made) and "config" in inspect.signature(made).parameters


def test_every_method_that_takes_a_configuration_is_walked() -> None:
    for kind, walked, others in (
        (CompiledStateGraph, {**RUNS, **STATES}, OF_THE_GRAPH | AWAITED_ONLY.keys()),
        (CounterfoilSaver, SAVERS, OF_THE_SAVER),
    ):
        found = {name for name in dir(kind) if not name.startswith("_")}
        if kind is CompiledStateGraph:
            found = {name for name in found if takes_config(kind, name)}
        blocking = {name.removeprefix("a") if name.removeprefix("a") in {*walked, *others} else name for name in found}
        assert blocking == walked.keys() | others
    assert set(functions.__all__) == {*IN_NODES, *OF_NO_ARGUMENTS}


def spelt(colour: str, name: str) -> str:
    return name if colour == "sync" else f"a{name}"


def configuration(world: World, colour: str, ids: Ids, place: str, tenant: str | None) -> Any:
    """Return a configuration for the thread of these ids: of a tenant by `cf.config`, or one of nobody's own making."""
    more = PLACES[place](ids)
    if tenant is not None:
        return world.colours[colour].cf.config(thread_id=ids.thread, tenant=tenant, request_id=ids.request, config=more)
    return {**more, "configurable": {"thread_id": ids.thread, **more.get("configurable", {})}}


def assert_apart(world: World, colour: str, methods: Any, table: Any, name: str, tenant: str | None) -> None:
    """Call a method with the neighbour's ids and with those of nobody, wherever they can be written."""
    for place in FEWER if name in RUNS and name != "stream" else PLACES:
        answers = []
        for ids in (world.ids, NOBODY):

            def call(ids: Ids = ids, place: str = place) -> Any:
                given, named = table[name](ids, configuration(world, colour, ids, place, tenant))
                return world.ask(colour, getattr(methods, spelt(colour, name)), *given, **named)

            answers.append(told(ids, call))
        assert MARK not in str(answers), (place, answers)
        assert answers[0][0] == answers[1][0], (place, answers)
        if answers[0][0] != "value":
            assert answers[0] == answers[1]


_callers = iter(range(10**6))


def newcomer() -> str:
    return f"caller-{next(_callers)}"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", [*RUNS, *STATES])
def test_a_graph_shows_another_tenant_nothing_of_a_thread(world: World, colour: str, name: str) -> None:
    if (name, colour) == ("stream_events", "sync"):
        return  # LangGraph has it for awaiting callers
    for tenant in (newcomer(), None):
        assert_apart(world, colour, world.graphs[colour], {**RUNS, **STATES}, name, tenant)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_run_acts_for_the_tenant_of_its_context_alone(world: World, colour: str) -> None:
    tenant = newcomer()
    graph, cf = world.graphs[colour], world.colours[colour].cf
    with pytest.raises(ReservedConfig):
        configuration(world, colour, world.ids, "reserved", tenant)
    for place in (each for each in PLACES if each != "reserved"):
        config = configuration(world, colour, world.ids, place, tenant)
        if place == "top":
            with pytest.raises(ReservedConfig):
                world.ask(colour, getattr(graph, spelt(colour, "invoke")), said(world.ids), config)
            continue
        ended = world.ask(colour, getattr(graph, spelt(colour, "invoke")), said(world.ids), config)
        assert ended["seen"] == {"tenant": tenant, "title": "x"}
    who = {"thread_id": world.ids.thread, "tenant": tenant, "request_id": "r-2", "context": said(world.ids)}
    ended = world.ask(colour, cf.run, graph, said(world.ids), **who, config=PLACES["nested"](world.ids))
    assert ended["seen"]["tenant"] == tenant
    found = world.ask(colour, cf.operations.list, tenant=tenant).items
    assert {one.tenant for one in found} == {tenant}
    assert len(found) == 4


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", SAVERS)
def test_a_saver_shows_another_tenant_nothing_of_a_thread(world: World, colour: str, name: str) -> None:
    cf = world.colours[colour].cf
    for tenant in (newcomer(), ""):
        assert_apart(world, colour, cf.saver(tenant=tenant), SAVERS, name, None)
    assert_apart(world, colour, cf.saver(tenant=newcomer()), SAVERS, name, newcomer())


@pytest.mark.parametrize("name", IN_NODES)
def test_an_argument_of_a_node_names_no_other_tenant(world: World, name: str) -> None:
    colour = "async" if name in {"aperform", "aenqueue", "aapprove"} else "sync"
    function = getattr(functions, name)

    def node(state: Said) -> Said:
        return {"seen": function(whose, tenant=state["tenant"])}

    async def anode(state: Said) -> Said:
        return {"seen": await function(whose, tenant=state["tenant"])}

    cf = world.colours[colour].cf
    graph = cf.compile(chain(("n", anode if colour == "async" else node), schema=Said))
    who = {"thread_id": world.ids.thread, "tenant": newcomer(), "request_id": "r-1"}
    with pytest.raises(TrustedFieldMismatch):
        world.ask(colour, cf.run, graph, said(world.ids), **who, context=said(world.ids))
