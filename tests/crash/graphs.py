"""Small graphs whose runs are crashed: how they are driven, how a worker that knows only the thread goes on.

Each is driven with `max_concurrency=1`: LangGraph stores checkpoints and task writes from a pool of threads, and with
one thread in it the points come in one order. The first node of each does nothing outside, since it runs beside the
storing of the input.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import add
from typing import Annotated, Any
from unittest.mock import patch

from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateSnapshot, interrupt
from typing_extensions import TypedDict  # the one that pydantic takes on Python 3.11

from counterfoil import AsyncCounterfoil, Case, Counterfoil, Effect, EffectCall, Provider, effect
from counterfoil.langgraph import aenqueue, amint, aperform, enqueue, mint, perform
from counterfoil.storage.script import Row
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import CountingProvider, ProviderTraits, World

WHO: dict[str, Any] = {"tenant": "team-A", "request_id": "r-1", "thread_id": "t-1"}
KEYED = Provider(key_lifetime="24h")
HONOURS_KEYS = ProviderTraits(key_lifetime="24h")
MEMO = "m" * 300
"""Longer than what rides in a checkpoint's own row, so that it has a channel row."""


class State(TypedDict, total=False):
    log: Annotated[list[str], add]
    title: str
    memo: str
    number: int
    answer: str
    minted: str


class Child(TypedDict, total=False):
    title: str
    number: int
    steps: Annotated[list[str], add]


Sent = dict[str, int]


# --- effects: each in both colours under one id ----------------------------------------------------------------------


def accept(call: EffectCall) -> Sent:
    return {"number": call.resource(CountingProvider).accept(call)}


@effect("graphs.ticket", key="{request_id}/ticket/{title}", provider=KEYED)
def ticket_effect(call: EffectCall, *, title: str) -> Sent:
    return accept(call)


@effect("graphs.ticket/async", key="{request_id}/ticket/{title}", provider=KEYED)
async def aticket_effect(call: EffectCall, *, title: str) -> Sent:
    return accept(call)


@effect("graphs.mail", key="{request_id}/mail/{title}", provider=KEYED)
def mail_effect(call: EffectCall, *, title: str) -> Sent:
    return accept(call)


@effect("graphs.mail/async", key="{request_id}/mail/{title}", provider=KEYED)
async def amail_effect(call: EffectCall, *, title: str) -> Sent:
    return accept(call)


@effect("graphs.invite", key="invite/{invitation}", provider=KEYED)
def invite_effect(call: EffectCall, *, invitation: str) -> Sent:
    return accept(call)


@effect("graphs.invite/async", key="invite/{invitation}", provider=KEYED)
async def ainvite_effect(call: EffectCall, *, invitation: str) -> Sent:
    return accept(call)


def lose_reply(call: EffectCall) -> Sent:
    accepted = accept(call)
    if call.attempt == 1:
        raise TimeoutError
    return accepted


@effect("graphs.charge", key="{request_id}/charge/{title}")
def charge_effect(call: EffectCall, *, title: str) -> Sent:
    """Happen, and lose the reply; the provider can neither be asked nor recognise a repeat."""
    return lose_reply(call)


@effect("graphs.charge/async", key="{request_id}/charge/{title}")
async def acharge_effect(call: EffectCall, *, title: str) -> Sent:
    return lose_reply(call)


# --- nodes -----------------------------------------------------------------------------------------------------------

Node = Callable[[Any], Any]


def prepare(state: State) -> State:
    return {"title": state["title"].upper(), "memo": MEMO, "log": ["prepare"]}


def notify(state: State) -> State:
    return {"log": ["notify"]}


def ask(state: State) -> State:
    return {"answer": interrupt({"ticket": state["number"]}), "log": ["ask"]}


def minting(state: State) -> State:
    return {"minted": mint("invitation"), "log": ["mint"]}


async def aminting(state: State) -> State:
    return {"minted": await amint("invitation"), "log": ["mint"]}


def performing(name: str, one: Effect[Sent], keep: bool = True) -> Node:  # noqa: FBT001, FBT002 - a node's shape
    def node(state: State) -> dict[str, Any]:
        number = perform(one, title=state["title"]).value["number"]
        return {"log": [name], **({"number": number} if keep else {})}

    return node


def aperforming(name: str, one: Effect[Sent], keep: bool = True) -> Node:  # noqa: FBT001, FBT002 - a node's shape
    async def node(state: State) -> dict[str, Any]:
        number = (await aperform(one, title=state["title"])).value["number"]
        return {"log": [name], **({"number": number} if keep else {})}

    return node


def inviting(state: State) -> State:
    return {"number": perform(invite_effect, invitation=state["minted"]).value["number"], "log": ["invite"]}


async def ainviting(state: State) -> State:
    receipt = await aperform(ainvite_effect, invitation=state["minted"])
    return {"number": receipt.value["number"], "log": ["invite"]}


def asking(name: str, one: Effect[Sent]) -> Node:
    def node(state: State) -> dict[str, Any]:
        enqueue(one, title=state["title"])
        return {"log": [name]}

    return node


def aasking(name: str, one: Effect[Sent]) -> Node:
    async def node(state: State) -> dict[str, Any]:
        await aenqueue(one, title=state["title"])
        return {"log": [name]}

    return node


TICKET = performing("ticket", ticket_effect), aperforming("ticket", aticket_effect)
MAIL = performing("mail", mail_effect, keep=False), aperforming("mail", amail_effect, keep=False)
CALL = performing("call", ticket_effect, keep=False), aperforming("call", aticket_effect, keep=False)
ASKED_TICKET = asking("ticket", ticket_effect), aasking("ticket", aticket_effect)
CHARGE = performing("charge", charge_effect), aperforming("charge", acharge_effect)


def chain(*nodes: tuple[str, Any], schema: Any = State) -> Any:
    builder: Any = StateGraph(schema)
    for name, node in nodes:
        builder.add_node(name, node)
    names = [START, *(name for name, _ in nodes), END]
    for earlier, later in pairwise(names):
        builder.add_edge(earlier, later)
    return builder


def fan_out(call: Node, mail: Node) -> Any:
    builder: Any = StateGraph(State)
    for name, node in (("prepare", prepare), ("call", call), ("mail", mail), ("notify", notify)):
        builder.add_node(name, node)
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "call")
    builder.add_edge("prepare", "mail")
    builder.add_edge(["call", "mail"], "notify")
    builder.add_edge("notify", END)
    return builder


def look(state: Child) -> Child:
    return {"steps": ["look"]}


def child(open_ticket: Node) -> Any:
    def ticket(state: Child) -> Any:
        return {"number": open_ticket(state)["number"], "steps": ["ticket"]}

    async def aticket(state: Child) -> Any:
        return {"number": (await open_ticket(state))["number"], "steps": ["ticket"]}

    node = aticket if asyncio.iscoroutinefunction(open_ticket) else ticket
    return chain(("look", look), ("ticket", node), schema=Child).compile()


def functional() -> Any:
    @task
    def ticket(title: str) -> int:
        return perform(ticket_effect, title=title).value["number"]

    @task
    def mail(title: str) -> str:
        perform(mail_effect, title=title)
        return "mail"

    @entrypoint()
    def flow(given: dict[str, str]) -> dict[str, Any]:
        number = ticket(given["title"]).result()
        return {"number": number, "log": [mail(given["title"]).result()]}

    return flow


def afunctional() -> Any:
    @task
    async def ticket(title: str) -> int:
        return (await aperform(aticket_effect, title=title)).value["number"]

    @task
    async def mail(title: str) -> str:
        await aperform(amail_effect, title=title)
        return "mail"

    @entrypoint()
    async def flow(given: dict[str, str]) -> dict[str, Any]:
        number = await ticket(given["title"])
        return {"number": number, "log": [await mail(given["title"])]}

    return flow


# --- driving ---------------------------------------------------------------------------------------------------------

GIVEN: dict[str, Any] = {"title": "printer", "log": []}
YES: Any = Command(resume="yes")


class Done:
    """Nothing is left to do."""


class Verdict:
    """Let a person settle what is unknown."""


class Update:
    """Let a person answer by changing the state."""


class Drain:
    """Send what was enqueued."""


class GoBack:
    """Run again from the first checkpoint on which the ticket's node was to run."""


Move = Any
"""One of these, or what a graph is run with: an input, a command or None."""


def next_move(found: StateSnapshot) -> Move:
    """Return what a worker does next that knows only the thread."""
    if found.created_at is None:
        return GIVEN
    if any(one.value.get("counterfoil") is None for one in found.interrupts):
        return YES
    # `next` leaves out tasks whose writes are stored, also where the checkpoint that they lead to is not
    return None if found.tasks else Done()


def next_or_update(found: StateSnapshot) -> Move:
    waits = found.next == ("notify",) and "answer" not in found.values
    return Update() if waits else next_move(found)


def next_or_back(found: StateSnapshot) -> Move:
    """Go back once: the way over a fork is one step longer than the first one."""
    is_first = not found.tasks and (found.metadata or {}).get("step") == 3
    return GoBack() if is_first else next_move(found)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One graph in both colours, what a program does with it, and the values that its thread must end with."""

    builders: tuple[Any, Any]
    moves: tuple[Move, ...] = (GIVEN,)
    goes_on: Callable[[StateSnapshot], Move] = next_move
    values: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    ordered: bool = True
    enqueues: bool = False

    @property
    def width(self) -> int | None:
        """Return how many tasks run at once; an entrypoint that waits for its tasks needs more than one."""
        return 1 if self.ordered else None


def config_of(cf: Any, piece: Piece) -> Any:
    return cf.config(**WHO, config={"max_concurrency": piece.width})


def step(cf: Counterfoil, graph: Any, move: Move, piece: Piece) -> None:
    config = config_of(cf, piece)
    match move:
        case Verdict():
            for case in cf.review.list(tenant=WHO["tenant"]).items:
                cf.review.resolve(case.case_id, **given(cf, case))
        case Drain():
            cf.drain(ticket_effect)
        case Update():
            graph.update_state(config, {"answer": "edited"})
        case GoBack():
            past = [found for found in graph.get_state_history(config) if found.next == ("ticket",)]
            graph.invoke(None, past[-1].config | {"max_concurrency": piece.width})
        case _:
            graph.invoke(move, config)


async def astep(cf: AsyncCounterfoil, graph: Any, move: Move, piece: Piece) -> None:
    config = config_of(cf, piece)
    match move:
        case Verdict():
            for case in (await cf.review.list(tenant=WHO["tenant"])).items:
                await cf.review.resolve(case.case_id, **given(cf, case))
        case Drain():
            await cf.drain(aticket_effect)
        case Update():
            await graph.aupdate_state(config, {"answer": "edited"})
        case GoBack():
            past = [found async for found in graph.aget_state_history(config) if found.next == ("ticket",)]
            await graph.ainvoke(None, past[-1].config | {"max_concurrency": piece.width})
        case _:
            await graph.ainvoke(move, config)


def given(cf: Counterfoil | AsyncCounterfoil, case: Case) -> dict[str, Any]:
    """Return the verdict of a careful person, who looks at the provider."""
    happened = cf.resources.get(CountingProvider).count(case)
    verdict = {"verdict": "happened", "evidence": '{"number": 1}'} if happened else {"verdict": "did_not_happen_retry"}
    return {**verdict, "tenant": case.tenant, "expect_version": case.version, "by": "ada", "reason": "looked"}


def first_id(prefix: str) -> str:
    return f"{prefix}_first"


def play(world: World, piece: Piece) -> None:
    """Run a thread as the program that begins it does; what it mints has the same name in every run."""
    cf = world.open()
    graph = cf.compile(piece.builders[0], **piece.options)
    with patch("counterfoil.langgraph.mint.random_id", first_id):
        for move in piece.moves:
            step(cf, graph, move, piece)


async def aplay(world: World, piece: Piece) -> None:
    cf = world.open_async()
    graph = cf.compile(piece.builders[1], **piece.options)
    with patch("counterfoil.langgraph.mint.random_id", first_id):
        for move in piece.moves:
            await astep(cf, graph, move, piece)


def go_on(world: World, piece: Piece) -> None:
    """Finish a thread from wherever it is; it must end as it does undisturbed."""
    cf = world.open()
    graph = cf.compile(piece.builders[0], **piece.options)
    while not isinstance(move := piece.goes_on(found := graph.get_state(config_of(cf, piece))), Done):
        check_intents(world, found, piece)
        step(cf, graph, Verdict(), piece)
        step(cf, graph, move, piece)
    check_intents(world, found, piece)
    step(cf, graph, Drain(), piece)
    check_end(found, piece)


async def ago_on(world: World, piece: Piece) -> None:
    cf = world.open_async()
    graph = cf.compile(piece.builders[1], **piece.options)
    while not isinstance(move := piece.goes_on(found := await graph.aget_state(config_of(cf, piece))), Done):
        check_intents(world, found, piece)
        await astep(cf, graph, Verdict(), piece)
        await astep(cf, graph, move, piece)
    check_intents(world, found, piece)
    await astep(cf, graph, Drain(), piece)
    check_end(found, piece)


def check_intents(world: World, found: StateSnapshot, piece: Piece) -> None:
    """An operation is in the outbox if and only if the result of the node that enqueued it is stored."""
    ended = {*(found.values or {}).get("log", ()), *(task.name for task in found.tasks if task.result)}
    asked = {row["node"] for row in world.rows("select node from counterfoil_operation")}
    assert not piece.enqueues or asked == ended & {"ticket"}


def check_end(found: StateSnapshot, piece: Piece) -> None:
    values = found.values | ({"minted": MINTED} if "minted" in found.values else {})
    assert values == piece.values
    assert (found.next, found.tasks, found.interrupts) == ((), (), ())


# --- judging ---------------------------------------------------------------------------------------------------------


def rows_fit(after: Aftermath) -> Iterator[str]:
    yield from threads_are_free(after.world.rows("select * from counterfoil_thread"), after.world.clock.now_ms())
    yield from checkpoints_are_linked(after)
    yield from values_are_stored(after)


def threads_are_free(threads: Sequence[Row], now: int) -> Iterator[str]:
    for row in threads:
        idle = row["state"] == "idle" and row["parked_on"] is None
        if not idle and not (row["state"] == "running" and row["lease_until"] <= now):
            yield f"a thread is neither idle nor to be claimed by anyone: {row}"


def checkpoints_are_linked(after: Aftermath) -> Iterator[str]:
    """Find checkpoints without their parent, and parents from which a run went on twice."""
    checkpoints = after.world.rows("select * from counterfoil_checkpoint")
    known = {(row["thread_id"], row["checkpoint_ns"], row["checkpoint_id"]) for row in checkpoints}
    children = [row for row in checkpoints if row["parent_id"] is not None]
    yield from (f"its parent is missing: {row}" for row in children if parent_of(row) not in known)
    loops = Counter(parent_of(row) for row in children if row["source"] == "loop")
    yield from (f"checkpoint {parent} has {n} children of a loop" for parent, n in loops.items() if n > 1)


def parent_of(row: Row) -> tuple[str, str, str]:
    return row["thread_id"], row["checkpoint_ns"], row["parent_id"]


def values_are_stored(after: Aftermath) -> Iterator[str]:
    """Find checkpoints that name a channel's value which is not there."""
    channels = after.world.rows("select thread_id, checkpoint_ns, channel, version from counterfoil_channel")
    values = {tuple(row.values()) for row in channels}
    for row in after.world.rows("select * from counterfoil_checkpoint"):
        named = dict(json.loads(row["stored_channels"] or "{}"))
        if missing := {(row["thread_id"], row["checkpoint_ns"], *each) for each in named.items()} - values:
            yield f"checkpoint {row['checkpoint_id']} lacks the values {missing}"


def minted_once(after: Aftermath) -> Iterator[str]:
    minted = [f"invite/{row['minted_id']}" for row in after.world.rows("select minted_id from counterfoil_mint")]
    performed = [row["operation_id"] for row in after.contents.operations]
    if minted != performed:
        yield f"minted {minted}, performed {performed}"


# --- the list --------------------------------------------------------------------------------------------------------

MINTED = "an id of its own in every run"
BEGAN: dict[str, Any] = {"title": "PRINTER", "memo": MEMO}


def chains(*nodes: Any) -> tuple[Any, Any]:
    """Return a chain in both colours; a node is one for both, or a pair."""
    named = [(name, node if isinstance(node, tuple) else (node, node)) for name, node in nodes]
    return tuple(chain(*((name, pair[colour]) for name, pair in named)) for colour in (0, 1))


CHAIN = chains(("prepare", prepare), ("ticket", TICKET), ("notify", notify))

PIECES = {
    "chain": Piece(builders=CHAIN, values={**BEGAN, "number": 1, "log": ["prepare", "ticket", "notify"]}),
    "interrupt": Piece(
        builders=chains(("prepare", prepare), ("ticket", TICKET), ("ask", ask)),
        moves=(GIVEN, YES),
        values={**BEGAN, "number": 1, "answer": "yes", "log": ["prepare", "ticket", "ask"]},
    ),
    "parallel": Piece(
        builders=(fan_out(CALL[0], MAIL[0]), fan_out(CALL[1], MAIL[1])),
        values={**BEGAN, "log": ["prepare", "call", "mail", "notify"]},
        ordered=False,  # what one branch returned may be stored before or after the other has been asked for
    ),
    "subgraph": Piece(
        builders=chains(("prepare", prepare), ("child", (child(TICKET[0]), child(TICKET[1]))), ("notify", notify)),
        values={**BEGAN, "number": 1, "log": ["prepare", "notify"]},
    ),
    "functional": Piece(builders=(functional(), afunctional()), values={"number": 1, "log": ["mail"]}, ordered=False),
    "parked": Piece(
        builders=chains(("prepare", prepare), ("charge", CHARGE), ("notify", notify)),
        moves=(GIVEN, Verdict(), None),
        values={**BEGAN, "number": 1, "log": ["prepare", "charge", "notify"]},
    ),
    "update": Piece(
        builders=CHAIN,
        moves=(GIVEN, Update(), None),
        goes_on=next_or_update,
        options={"interrupt_before": ["notify"]},
        values={**BEGAN, "number": 1, "answer": "edited", "log": ["prepare", "ticket", "notify"]},
    ),
    "time-travel": Piece(
        builders=CHAIN,
        moves=(GIVEN, GoBack()),
        goes_on=next_or_back,
        ordered=False,  # the node's effect is looked up while the fork is being stored
        values={**BEGAN, "number": 1, "log": ["prepare", "ticket", "notify"]},
    ),
    "minted": Piece(
        builders=chains(("prepare", prepare), ("mint", (minting, aminting)), ("invite", (inviting, ainviting))),
        values={**BEGAN, "number": 1, "minted": MINTED, "log": ["prepare", "mint", "invite"]},
    ),
    "enqueued": Piece(
        builders=chains(("prepare", prepare), ("ticket", ASKED_TICKET), ("notify", notify)),
        moves=(GIVEN, Drain()),
        values={**BEGAN, "log": ["prepare", "ticket", "notify"]},
        enqueues=True,
    ),
}
OPERATIONS = {"parallel": 2, "functional": 2}


def scenario(name: str, piece: Piece, body: Any, recover: Any, kind: str = "") -> Scenario:
    minted = (minted_once,) if name == "minted" else ()
    return Scenario(
        name=f"{name}{kind}",
        run=partial(body, piece=piece),
        recover=partial(recover, piece=piece),
        checks=(ledger_invariants, rows_fit, *minted),
        traits=ProviderTraits() if name == "parked" else HONOURS_KEYS,
        operations=OPERATIONS.get(name, 1),
        entries=2,
        ordered=piece.ordered and not piece.enqueues,  # a dispatcher takes its turns when it has something to record
    )


BLOCKING = tuple(scenario(name, piece, play, go_on) for name, piece in PIECES.items())
AWAITING = tuple(scenario(name, piece, aplay, ago_on, "/async") for name, piece in PIECES.items())
GRAPHS = (*BLOCKING, *AWAITING)

FREE = {name: replace(piece, ordered=False) for name, piece in PIECES.items()}
"""The same as LangGraph runs them by default: the threads that store meet in shared transactions, in no fixed order."""
POOLED = (
    *(scenario(name, piece, play, go_on, "/pooled") for name, piece in FREE.items()),
    *(scenario(name, piece, aplay, ago_on, "/pooled-async") for name, piece in FREE.items()),
)
