"""What the cases about decisions share: gated effects at a counting provider that runs in a process of its own.

Run as a program, it decides about approvals in a process of its own: `deciding.py URL RULING BY ID...`, one after the
other from the moment on at which its standard input ends; it prints a line for each: the ruling, or who was first.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import add
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil import Counterfoil, Policy, effect
from counterfoil.errors import DecisionConflict
from counterfoil.langgraph import approve, perform
from counterfoil.testing.provider_client import CountingProvider, ProviderClient

TENANT = "t"
WHO: dict[str, Any] = {"tenant": TENANT, "request_id": "r-1", "thread_id": "t-1"}
ON: dict[str, Any] = {"tenant": TENANT, "thread_id": "t-1"}


class State(TypedDict, total=False):
    log: Annotated[list[str], add]


def _post(call: Any, **body: Any) -> Any:
    reply = call.resource(ProviderClient).post("refunds", body, key=call.provider_key)
    assert reply.status == 201
    return reply.body


@effect("cases.decided-refund", key="{request_id}/refund", approval=Policy(decide_within="10m", valid_for="1h"))
def refund(call: Any, *, amount: int) -> Any:
    return _post(call, amount=amount)


@effect("cases.mail", key="{request_id}/mail", approval=Policy())
def mail(call: Any, *, to: str) -> Any:
    return _post(call, to=to)


@contextmanager
def opened(url: str, provider: CountingProvider, **options: Any) -> Iterator[Counterfoil]:
    with Counterfoil.open(url, **options) as cf:
        cf.resources.provide(ProviderClient, lambda: ProviderClient(provider.url))
        yield cf


def asking(made: Any, **arguments: Any) -> Any:
    """Return a node that asks, and does what was decided."""

    def node(_: State) -> State:
        decision = approve(made, **arguments)
        if not decision.approved:
            return {"log": [decision.state]}
        perform(decision)
        return {"log": ["sent"]}

    return node


def graph(cf: Counterfoil, *nodes: Any) -> Any:
    builder: Any = StateGraph(State)
    names = [str(number) for number in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return cf.compile(builder)


def asked(cf: Counterfoil) -> Any:
    """Return the one question that is open."""
    (one,) = cf.approvals.list(tenant=TENANT).items
    return one


def bodies(provider: CountingProvider) -> list[Any]:
    return [one.body for one in provider.accepted()]


def main() -> None:
    url, ruling, by, *ids = sys.argv[1:]
    with Counterfoil.open(url) as cf:
        print("ready", flush=True)  # noqa: T201 - how it tells
        sys.stdin.read()
        for approval_id in ids:
            try:
                done = getattr(cf.approvals, ruling)(approval_id, tenant=TENANT, by=by, reason="so")
                print(done.state, done.decided_by, flush=True)  # noqa: T201 - as above
            except DecisionConflict as lost:
                print("lost", lost.decided_by, flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    main()
