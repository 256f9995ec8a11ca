"""B81: values of one running call leaked into another through a shared configuration object and ambient context.

Source: https://github.com/langchain-ai/langgraphjs/pull/2552
"""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from counterfoil import EffectCall, effect
from counterfoil.errors import NoActiveCounterfoil, TenantMissing
from counterfoil.langgraph import aperform, perform
from tests.langgraph.shop import Shop, State, accept, chain

RUNS = 200
TENANTS = ("team-A", "team-B")


@effect("case.tenants", key="{request_id}/{thread_id}/{order}")
def record(call: EffectCall, *, thread_id: str, order: str) -> dict[str, Any]:
    accept(call, tenant=call.tenant, thread=thread_id, order=order, request=call.request_id)
    return {"tenant": call.tenant, "thread": thread_id, "order": order}


@effect("case.atenants", key="{request_id}/{thread_id}/{order}")
async def arecord(call: EffectCall, *, thread_id: str, order: str) -> dict[str, Any]:
    accept(call, tenant=call.tenant, thread=thread_id, order=order, request=call.request_id)
    return {"tenant": call.tenant, "thread": thread_id, "order": order}


def helper(order: str) -> Any:
    return perform(record, order=order).value


def in_threads(state: State) -> State:
    """Perform in helper threads that were given the context."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(contextvars.copy_context().run, helper, f"{state['order']}-{n}") for n in range(2)]
        return {"answer": [job.result() for job in jobs]}


async def in_tasks(state: State) -> State:
    """Perform in helper tasks."""

    async def one(number: int) -> Any:
        return (await aperform(arecord, order=f"{state['order']}-{number}")).value

    return {"answer": await asyncio.gather(one(0), one(1))}


def who(number: int) -> dict[str, Any]:
    """Half of the runs share a thread id with a run of the other tenant."""
    return {
        "tenant": TENANTS[number % 2],
        "request_id": f"r-{number}",
        "thread_id": f"t-{number // 2}",
    }


def expected(number: int) -> list[dict[str, str]]:
    run = who(number)
    return [{"tenant": run["tenant"], "thread": run["thread_id"], "order": f"o-{number}-{n}"} for n in range(2)]


def assert_apart(shop: Shop, graph: Any, found: list[Any]) -> None:
    assert [one["answer"] for one in found] == [expected(number) for number in range(RUNS)]
    seen = sorted((one.body["tenant"], one.body["thread"], one.body["order"]) for one in shop.tally.accepted())
    wanted = [(one["tenant"], one["thread"], one["order"]) for number in range(RUNS) for one in expected(number)]
    assert seen == sorted(wanted)
    for one in shop.tally.accepted():
        assert one.body["request"] == "r-" + one.body["order"].split("-")[1]
    for number in range(RUNS):
        assert graph.get_state(shop.cf.config(**who(number))).values["order"] == f"o-{number}"
    rows = shop.select("select tenant, thread_id, request_id, operation_id from counterfoil_operation")
    assert len(rows) == 2 * RUNS
    for tenant, thread, request, operation_id in rows:
        run = who(int(operation_id.split("/")[0].removeprefix("r-")))
        assert (tenant, thread, request) == (run["tenant"], run["thread_id"], run["request_id"])
    assert_rows_apart(shop)


def assert_rows_apart(shop: Shop) -> None:
    """Each receipt is its own tenant's, and so is each row of a thread, a checkpoint, its channels and its writes."""
    for number in range(RUNS):
        run = who(number)
        for found in shop.cf.operations.list(tenant=run["tenant"], request_id=run["request_id"]).items:
            receipt = shop.cf.operations.get(found.operation_id, tenant=run["tenant"]).receipt
            assert receipt is not None
            assert (receipt.value["tenant"], receipt.value["thread"]) == (run["tenant"], run["thread_id"])
    threads = sorted({(who(number)["tenant"], who(number)["thread_id"]) for number in range(RUNS)})
    for table in ("thread", "checkpoint", "channel", "write"):
        assert sorted(shop.select(f"select distinct tenant, thread_id from counterfoil_{table}")) == threads  # noqa: S608 - ours
    per_thread = shop.select("select distinct count(*) from counterfoil_checkpoint group by tenant, thread_id")
    assert [tuple(row) for row in per_thread] == [(4,)]  # the input, and one after each step


@pytest.mark.slow
def test_200_runs_in_threads_each_act_for_their_own_tenant(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", in_threads), ("later", lambda state: {})))
    start = threading.Barrier(20)

    def run(number: int) -> Any:
        if number < 20:
            start.wait(30)
        return shop.cf.run(graph, {"order": f"o-{number}"}, **who(number))

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(run, range(RUNS)))
    assert_apart(shop, graph, found)


@pytest.mark.slow
async def test_200_runs_on_one_loop_each_act_for_their_own_tenant(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", in_tasks), ("later", lambda state: {})))
    shared: dict[str, Any] = {"tags": ["shared"], "configurable": {"setting": 1}}
    found = await asyncio.gather(
        *(
            graph.ainvoke({"order": f"o-{number}"}, shop.cf.config(**who(number), config=shared))
            for number in range(RUNS)
        )
    )
    assert shared == {"tags": ["shared"], "configurable": {"setting": 1}}
    assert_apart(shop, graph, found)


def test_an_effect_without_a_tenant_is_refused_while_others_run_with_one(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", lambda state: {"answer": helper(state["order"])})))

    def run(number: int) -> str:
        run = who(number)
        try:
            shop.cf.run(graph, {"order": str(number)}, **{**run, "tenant": run["tenant"] if number % 2 else None})
        except TenantMissing as error:
            return error.code
        return "done"

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(run, range(20)))
    assert told == ["tenant-missing", "done"] * 10
    assert {one.body["tenant"] for one in shop.tally.accepted()} == {"team-B"}


def test_a_thread_that_outlives_its_run_acts_for_nobody(shop: Shop) -> None:
    """What a node leaves behind has no run any more; a bare thread never had one."""
    errors: list[str] = []
    left: list[threading.Thread] = []

    def bare() -> None:
        try:
            helper("1")
        except NoActiveCounterfoil as error:
            errors.append(error.code)

    def node(state: State) -> State:
        left.append(threading.Thread(target=bare))
        return {}

    shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **who(0))
    left[0].start()
    left[0].join()
    assert errors == ["no-active-counterfoil"]
    assert shop.count == 0
