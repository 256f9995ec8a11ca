"""The mail demo's graph and its one effect: the lines to copy.

Plain LangGraph and Counterfoil run this same graph; only `send`, the line with the effect, differs.
"""

import smtplib
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import make_msgid
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from counterfoil import EffectCall, effect
from counterfoil.providers import smtp

LOST = smtplib.SMTPServerDisconnected
"""What a client raises whose server is gone: before it took the mail, or after."""


class State(TypedDict, total=False):
    """What the graph knows of one candidate."""

    address: str
    invited: bool
    scheduled: bool


def build(send: Callable[[str], object]) -> StateGraph[State]:
    """Invite a candidate, then put the interview into the calendar."""

    def invite(state: State) -> State:
        send(state["address"])
        return {"invited": True}

    def schedule(state: State) -> State:  # noqa: ARG001 - LangGraph's signature
        return {"scheduled": True}

    builder = StateGraph(State)
    retry = RetryPolicy(max_attempts=3, initial_interval=0.01, retry_on=LOST)
    builder.add_node("invite", invite, retry_policy=retry)
    builder.add_node("schedule", schedule)
    builder.add_edge(START, "invite")
    builder.add_edge("invite", "schedule")
    builder.add_edge("schedule", END)
    return builder


def invitation(address: str) -> EmailMessage:
    """Write the mail."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "jobs@example.org", address, "Your interview"
    message.set_content("See you on Monday at ten.")
    return message


# --- plain: the node sends --------------------------------------------------------------------------------------------


def mail(host: str, port: int, address: str) -> None:
    """Send the mail as the standard library does."""
    message = invitation(address)
    message["Message-ID"] = make_msgid(domain="example.org")
    with smtplib.SMTP(host, port, timeout=15) as client:
        client.send_message(message)


# --- with Counterfoil: the same mail, declared as an effect -----------------------------------------------------------


@effect("invitation.send", key="{request_id}/invitation", provider=smtp.PROVIDER, time_limit="20s")
def send_invitation(call: EffectCall, *, address: str) -> Any:
    """Send the mail at most once: a mail server honours no key and cannot be asked."""
    return call.resource(smtp.Mailer).send(call, invitation(address))
