"""B78: listing with a filter on the tenant returned everything on one backend, because unknown keys were dropped.

Sources: https://github.com/langchain-ai/langgraphjs/pull/2504, https://github.com/Idun-Group/idun-agent-platform/issues/670
"""

import asyncio
from typing import Any

import pytest

from counterfoil.errors import InvalidArguments, TenantMissing
from counterfoil.langgraph import perform
from tests.langgraph.shop import Shop, State, chain, charge, conf

TENANTS = ("a", "b", "c")
ODD = ["tenant", "no_such_key", "a.b", "a'b", 'a"b', "source'--", "$.source", "source = source or 1", "*", "%", ""]


@pytest.fixture
def full(shop: Shop) -> Shop:
    """A shop with a thread and an operation of each of three tenants."""

    def pay(state: State) -> State:
        return {"number": perform(charge, order="1").value["number"]}

    graph = shop.cf.compile(chain(("pay", pay)))
    for tenant in TENANTS:
        shop.cf.run(graph, {}, tenant=tenant, request_id="r", thread_id="t")
    return shop


def listed(shop: Shop, tenant: str, **asked: Any) -> list[Any]:
    """List a tenant's checkpoints, and see that both colours and every scope agree."""
    saver = shop.cf.saver(tenant=tenant)
    scopes = [None, conf("t"), conf("t", checkpoint_ns="")]

    async def awaited(scope: Any) -> list[Any]:
        return [one async for one in saver.alist(scope, **asked)]

    found = [list(saver.list(scope, **asked)) for scope in scopes]
    found += [asyncio.run(awaited(scope)) for scope in scopes]
    assert all(one == found[0] for one in found)
    return found[0]


@pytest.mark.parametrize("tenant", TENANTS)
def test_checkpoints_are_listed_of_the_savers_tenant_alone(full: Shop, tenant: str) -> None:
    assert len(listed(full, tenant)) == 3
    assert [one.metadata["source"] for one in listed(full, tenant, filter={"source": "input"})] == ["input"]
    for other in (*TENANTS, None, "", "%", "*"):
        assert listed(full, tenant, filter={"tenant": other}) == []
    assert listed(full, "d") == listed(full, "") == []


VALUES: list[Any] = ["x", None, "", 0, {"a": 1}, ["loop"]]


@pytest.mark.parametrize("key", ODD)
def test_a_key_that_no_checkpoint_has_finds_nothing(full: Shop, key: str) -> None:
    for value in VALUES:
        assert listed(full, "a", filter={key: value}) == [], value
        assert listed(full, "a", filter={"source": "loop", key: value}) == [], value


LIKE: list[Any] = [None, "", "LOOP", "loo%", ["loop"], 2, True, 10**30, -(10**30), float("nan")]


def test_a_value_that_a_key_does_not_have_finds_nothing(full: Shop) -> None:
    for value in LIKE:
        for key in ("source", "run_id"):
            assert listed(full, "a", filter={key: value}) == [], value
        if value is not True:  # which equals 1
            assert listed(full, "a", filter={"step": value}) == [], value


def test_a_limit_holds(full: Shop) -> None:
    limits = (0, 1, 3, 10**18, None)
    assert [len(listed(full, "a", limit=limit)) for limit in limits] == [0, 1, 3, 3, 3]


def test_what_is_no_limit_is_an_error(full: Shop) -> None:
    for limit in (-1, "1", 1.5, True, 10**30):
        with pytest.raises(InvalidArguments, match="limit"):
            listed(full, "a", limit=limit)


def test_what_is_no_filter_is_an_error(full: Shop) -> None:
    for wanted in ("tenant", ["tenant"], {None: 1}, {1: "a"}, 7):
        with pytest.raises(InvalidArguments):
            listed(full, "a", filter=wanted)


def test_operations_are_listed_of_one_tenant_and_by_known_filters_alone(full: Shop) -> None:
    operations = full.cf.operations
    for tenant in TENANTS:
        (one,) = operations.list(tenant=tenant, thread_id="t").items
        assert one.tenant == tenant
    assert operations.list(tenant="d").items == operations.list(tenant="a", thread_id="no' or '1'='1").items == ()
    with pytest.raises(TypeError):
        operations.list(tenant="a", owner="b")  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments):
        operations.list(tenant="a", state="no_such_state")
    for nobody in ("", None):
        with pytest.raises(TenantMissing):
            operations.list(tenant=nobody)  # type: ignore[arg-type]
