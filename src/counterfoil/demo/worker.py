"""Run one step of a situation: the whole work of one demo process."""

import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypedDict

import httpx
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt

from counterfoil import Counterfoil, CounterfoilError
from counterfoil.demo.graph import Ticket, build, create_opaque_ticket, create_ticket, post_ticket
from counterfoil.demo.reviewed import ask_for_decision, ask_plainly, create_reviewed
from counterfoil.demo.reviewed import build as build_reviewed
from counterfoil.demo.steps import APPROVE, Answer, Decide, GoOn, Report, Start, Step, Trace
from counterfoil.langgraph import perform

EXPECTED_FAILURES = (httpx.HTTPError, ConnectionError)
"""What the situations bring about: a lost reply, a busy ticket server, a mail server that is down."""


class Who(TypedDict):
    """The trusted context of a run."""

    tenant: str
    request_id: str
    thread_id: str


def work(step: Step, pipe: Connection) -> None:
    """Run the step and report, unless this process is killed on the way."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once and without a traceback
    os.environ["LANGSMITH_TRACING_V2"] = "false"  # comes before all its siblings: nothing leaves this machine
    pipe.send(report(step, Trace()))


def report(step: Step, trace: Trace) -> Report:
    """Run the step and say how it ended."""
    run = run_plain if step.column == "plain" else run_counterfoil
    try:
        state = run(step, trace)
    except CounterfoilError as error:
        return trace.report(error.code, str(error))
    except EXPECTED_FAILURES as error:
        return trace.report("failed", f"{type(error).__name__}: {error}")
    return _returned(state, trace)


def _returned(state: dict[str, Any], trace: Trace) -> Report:
    if "__interrupt__" not in state:
        return trace.report("finished" if state.get("notified") else "incomplete")
    asked = state["__interrupt__"][0].value
    is_unknown = asked.get("counterfoil") == "outcome-unknown"
    return trace.report("parked" if is_unknown else "waiting", str(asked.get("case_id", "")))


# --- the two columns --------------------------------------------------------------------------------------------------


def run_plain(step: Step, trace: Trace) -> dict[str, Any]:
    """Run the graph as LangGraph alone does, with its stock saver at its safest durability."""
    with SqliteSaver.from_conn_string(step.database) as saver, connect(step.url) as client:

        def open_ticket(title: str) -> Ticket:
            return post_ticket(client, title)

        watched = trace.watch(open_ticket)
        builder: Any = build_reviewed(watched, ask_plainly) if step.reviewed else build(watched, mailer(step))
        graph = builder.compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": step.thread_id}}
        state: dict[str, Any] = graph.invoke(what(step), place(graph, step, config), durability="sync")
        return state


def run_counterfoil(step: Step, trace: Trace) -> dict[str, Any]:
    """Run the same graph with Counterfoil."""
    with Counterfoil.open(step.database) as cf:
        cf.resources.provide(httpx.Client, lambda: connect(step.url))
        create = create_reviewed if step.reviewed else create_opaque_ticket if step.opaque else create_ticket

        def open_ticket(title: str) -> Ticket:
            receipt = perform(create, title=title)
            trace.sources.append(receipt.answered_from)
            ticket: Ticket = receipt.value
            return ticket

        watched = trace.watch(open_ticket)
        builder: Any = build_reviewed(watched, ask_for_decision) if step.reviewed else build(watched, mailer(step))
        graph = cf.compile(builder)
        tenant = f"{step.tenant_prefix}{step.tenant}"
        who = Who(tenant=tenant, request_id=step.request_id, thread_id=step.thread_id)
        given = what(step)
        if isinstance(step.given, Decide):
            decide(cf, step.given, graph.get_state(cf.config(**who)).interrupts, tenant)
            given = None
        state: dict[str, Any] = cf.run(graph, given, config=place(graph, step, cf.config(**who)), **who)
        return state


def decide(cf: Counterfoil, given: Decide, asked: Sequence[Interrupt], tenant: str) -> None:
    """Decide what is asked about, as a person does by the command line."""
    for one in asked:
        approval_id = one.value["approval_id"]
        if given.ruling == APPROVE:
            cf.approvals.approve(approval_id, tenant=tenant, by="reviewer")
        else:
            cf.approvals.reject(approval_id, tenant=tenant, by="reviewer", reason="not this one")


def connect(url: str) -> httpx.Client:
    """Open a client that tells the server which process it may kill, and that no proxy comes between."""
    return httpx.Client(base_url=url, headers={"X-Client-Pid": str(os.getpid())}, timeout=15, trust_env=False)


def mailer(step: Step) -> Callable[[int], None]:
    """Return a mail server, up or down."""

    def notify(ticket_id: int) -> None:
        if not step.mail_works:
            raise ConnectionError(f"the mail server is down; ticket {ticket_id} was not announced")

    return notify


def what(step: Step) -> Any:
    """Return what the graph is invoked with."""
    match step.given:
        case Start(state):
            return state
        case GoOn():
            return None
        case Answer(value) | Decide(value):
            return Command(resume=value)


def place(graph: CompiledStateGraph[Any, Any, Any, Any], step: Step, config: RunnableConfig) -> RunnableConfig:
    """Return the config of the checkpoint to run from."""
    match step.given:
        case GoOn(str(node)):
            found = (seen.config for seen in graph.get_state_history(config) if seen.next == (node,))
            return next(found, config)  # where no run has come so far, the graph says so
        case _:
            return config
