"""The hiring workflow: the lines to copy.

It screens CVs, invites, waits for the candidates' times, for the interviews and for feedback, decides, charges the fee,
tells everybody and writes a report. While it waits nothing of it is in memory; its process may die anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from counterfoil.demo.hiring.effects import charge, mail, write_report
from counterfoil.demo.hiring.screening import Cv, Screening
from counterfoil.effects import Effect
from counterfoil.langgraph import perform, sleep_until, wait_for

LEAST_SCORE: Final = 5
"""Who is invited."""
LEAST_GRADE: Final = 3
"""Who may be hired; feedback is a grade from 1 to 5."""


def joined(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Put together what steps beside each other found out."""
    return {**left, **right}


class Hiring(TypedDict, total=False):
    """What a checkpoint holds: references, scores and decisions; never a CV, a client or a password."""

    fee_cents: int
    cvs: list[Cv]
    scores: dict[str, int]
    slots: Annotated[dict[str, str], joined]
    grades: Annotated[dict[str, int], joined]
    hired: str | None
    charge_id: str | None
    report: dict[str, str]


class Applicant(TypedDict):
    """What a step about one candidate is given."""

    cv: Cv


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the workflow waits: for a time, for one after a reminder, and for feedback."""

    slot: str = "1d"
    reminded: str = "2d"
    feedback: str = "3d"


def build(
    screening: Screening | None = None, fee: Effect[Any] = charge, patience: Patience | None = None
) -> StateGraph[Hiring]:
    """Return the workflow's graph.

    Args:
        screening: Where CVs are, and how they are scored.
        fee: The effect that charges, with what its gateway can do.
        patience: How long it waits; days, unless it is to be watched.
    """
    builder = StateGraph(Hiring)
    for name, node in _nodes(screening or Screening(), fee, patience or Patience()).items():
        builder.add_node(name, node)
    builder.add_edge(START, "screen")
    builder.add_edge("screen", "invite")
    builder.add_conditional_edges("invite", _each("book"), ["book", "decide"])
    builder.add_edge("book", "interview")
    builder.add_conditional_edges("interview", _each("collect"), ["collect", "decide"])
    builder.add_edge("collect", "decide")
    for one, after in (("decide", "charge"), ("charge", "tell"), ("tell", "report"), ("report", END)):
        builder.add_edge(one, after)
    return builder


def _each(node: str) -> Callable[[Hiring], Sequence[Send | str]]:
    """Return what sends each invited candidate to a node of its own."""

    def beside_each_other(state: Hiring) -> Sequence[Send | str]:
        return [Send(node, Applicant(cv=cv)) for cv in invited(state)] or ["decide"]

    return beside_each_other


def invited(state: Hiring) -> list[Cv]:
    """Return the CVs of those who are invited."""
    return [cv for cv in state["cvs"] if state["scores"][cv["candidate"]] >= LEAST_SCORE]


# --- the nodes --------------------------------------------------------------------------------------------------------


def _nodes(screening: Screening, fee: Effect[Any], patience: Patience) -> dict[str, Any]:
    def screen(state: Hiring) -> Hiring:
        return {"scores": {cv["candidate"]: screening.score(cv) for cv in state["cvs"]}}

    def pay(state: Hiring) -> Hiring:
        if state["hired"] is None:
            return {"charge_id": None}
        charged = perform(fee, candidate=state["hired"], cents=state["fee_cents"])
        return {"charge_id": charged.value["id"]}

    return {
        "screen": screen,
        "invite": invite,
        "book": partial(book, patience=patience),
        "interview": interview,
        "collect": partial(collect, patience=patience),
        "decide": decide,
        "charge": pay,
        "tell": tell,
        "report": report,
    }


def invite(state: Hiring) -> Hiring:
    """Invite those who fit; entered again, it sends only what was not sent."""
    for cv in invited(state):
        _mail(cv, "invitation")
    return {}


def book(applicant: Applicant, *, patience: Patience) -> Hiring:
    """Wait for a candidate's time, remind, and wait once more."""
    cv = applicant["cv"]
    slot = wait_for("slot", subject=cv["candidate"], timeout=patience.slot)
    if slot is None:
        _mail(cv, "reminder")
        slot = wait_for("slot", subject=cv["candidate"], timeout=patience.reminded, name="slot after a reminder")
    return {"slots": {} if slot is None else {cv["candidate"]: slot.payload["at"]}}


def interview(state: Hiring) -> Hiring:
    """Sleep until the last interview is over."""
    if state.get("slots"):
        sleep_until(max(datetime.fromisoformat(at) for at in state["slots"].values()))
    return {}


def collect(applicant: Applicant, *, patience: Patience) -> Hiring:
    """Wait for what people say of a candidate."""
    candidate = applicant["cv"]["candidate"]
    feedback = wait_for("feedback", subject=candidate, timeout=patience.feedback)
    return {"grades": {} if feedback is None else {candidate: feedback.payload["grade"]}}


def decide(state: Hiring) -> Hiring:
    """Hire who has the best grade, and of equals the better score."""
    grades = state.get("grades", {})
    ranked = sorted(grades, key=lambda name: (-grades[name], -state["scores"][name], name))
    return {"hired": next((name for name in ranked if grades[name] >= LEAST_GRADE), None)}


def tell(state: Hiring) -> Hiring:
    """Tell everybody who applied."""
    for cv in state["cvs"]:
        _mail(cv, "offer" if cv["candidate"] == state["hired"] else "rejection")
    return {}


def report(state: Hiring) -> Hiring:
    """Write the report."""
    return {"report": perform(write_report, text=written(state)).value}


def _mail(cv: Cv, what: str) -> None:
    perform(mail, candidate=cv["candidate"], address=cv["address"], round=what)


def written(state: Hiring) -> str:
    """Return the report: the same for the same state."""
    lines = [
        f"- {name}: score {score}, interview {state.get('slots', {}).get(name, 'none')}, grade"
        f" {state.get('grades', {}).get(name, 'none')}"
        for name, score in state["scores"].items()
    ]
    return "\n".join(["# Hiring", "", *lines, "", f"Hired: {state['hired'] or 'nobody'}, fee {state['charge_id']}", ""])
