"""Play a mail whose acceptance is not heard in both columns, let a person settle it, and count in the mailbox."""

import json
import os
import smtplib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver

from counterfoil import Counterfoil, CounterfoilError
from counterfoil.demo.invitation import build, mail, send_invitation
from counterfoil.demo.places import Places
from counterfoil.demo.stage import PATIENCE_S, DemoBroken
from counterfoil.errors import Exit
from counterfoil.langgraph import perform
from counterfoil.providers.smtp import Mailer
from counterfoil.testing.mail_client import MailboxClient
from counterfoil.testing.mail_desk import Mail, MailFault

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

ADDRESS: Final = "ann@example.org"
OPERATION: Final = "r-1/invitation"
_THREAD: Final = "t-1"
_LOST: Final = MailFault(phase="dot", does="lose-reply")


class Who(TypedDict):
    """The trusted context of a run."""

    tenant: str
    request_id: str
    thread_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """How both columns stand when the reply was lost: what the mailbox holds, and what a person is shown."""

    plain: tuple[Mail, ...]
    counterfoil: tuple[Mail, ...]
    end: str
    cases: tuple[Mapping[str, Any], ...]
    shown: str = ""

    @property
    def case(self) -> Mapping[str, Any]:
        """Return the case that waits for the person."""
        return self.cases[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a person found in the mailbox, as the words of a command."""

    happened: bool
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What followed the verdict: what the command printed, how the run ended, and what the mailbox holds then."""

    verdict: Verdict
    told: str
    end: str
    mails: tuple[Mail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The whole story; without a case nobody had anything to settle."""

    lost: Lost
    settled: Settled | None

    @property
    def end(self) -> str:
        """Return how the run with Counterfoil ended at last."""
        return self.settled.end if self.settled else self.lost.end

    def counts(self) -> dict[str, int]:
        """Return what was counted: mails in the mailbox, and the cases that waited for a person."""
        return {
            "mails_plain": len(self.lost.plain),
            "mails_counterfoil": len(self.settled.mails if self.settled else self.lost.counterfoil),
            "reviews": len(self.lost.cases),
        }

    @property
    def keeps_promise(self) -> bool:
        """Say whether one mail and one review are left where a blind retry leaves two, and the run went on."""
        expected = self.settled is not None and ("finished" if self.settled.verdict.happened else "effect-refused")
        return (*self.counts().values(), self.end) == (2, 1, 1, expected)


# --- until the reply is lost ------------------------------------------------------------------------------------------


def lose(server: MailboxClient, places: Places) -> Lost:
    """Let the server take the mail and lose its reply, once in each column."""
    os.environ["LANGSMITH_TRACING_V2"] = "false"  # comes before all its siblings: nothing leaves this machine
    _break(server)
    run_plain(server, places)
    plain = server.mails()
    _break(server)
    end = run_counterfoil(server, places, {"address": ADDRESS})
    cases = json.loads(command(places, "review", "list", "--tenant", places.tenants[0], "--json"))
    shown = command(places, "review", "show", cases[0]["case_id"]) if cases else ""
    return Lost(plain=tuple(plain), counterfoil=tuple(server.mails()), end=end, cases=tuple(cases), shown=shown)


def _break(server: MailboxClient) -> None:
    server.reset()
    server.order(_LOST)


def run_plain(server: MailboxClient, places: Places) -> None:
    """Run the graph as LangGraph alone does: its retry policy sends again what may have been sent."""
    with SqliteSaver.from_conn_string(str(places.folder / "plain-unknown.db")) as saver:
        graph = build(lambda address: mail(server.host, server.port, address)).compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": _THREAD}}
        graph.invoke({"address": ADDRESS}, config, durability="sync")


def run_counterfoil(server: MailboxClient, places: Places, given: Any) -> str:
    """Run the same graph with Counterfoil, and say how the run ended."""
    who = Who(tenant=places.tenants[0], request_id="r-1", thread_id=_THREAD)
    with Counterfoil.open(places.url) as cf:
        cf.resources.provide(Mailer, lambda: Mailer(lambda wait: smtplib.SMTP(server.host, server.port, timeout=wait)))
        graph = cf.compile(build(lambda address: perform(send_invitation, address=address)))
        try:
            state = cf.run(graph, given, **who)
        except CounterfoilError as error:
            return error.code
    return "parked" if "__interrupt__" in state else "finished" if state.get("scheduled") else "incomplete"


# --- a person settles it ----------------------------------------------------------------------------------------------


def look(lost: Lost, *, happened: bool | None = None) -> Verdict:
    """Judge as a person does who looks into the mailbox, or who says whether it happened."""
    found = lost.counterfoil
    if happened is None:
        happened = bool(found)
    seen = ("--expect-version", str(lost.case["version"]), "--by", "ada")
    if not happened:
        reason = "the mailbox does not hold it"
        return Verdict(happened=False, words=(*seen, "--did-not-happen", "--close", "--reason", reason))
    name = found[0].message_id if found else ""
    value = json.dumps({"message_id": name, "accepted": [ADDRESS], "refused": {}})
    evidence = f"the mailbox of {ADDRESS} holds {name}"
    return Verdict(happened=True, words=(*seen, "--happened", "--value", value, "--evidence", evidence))


def settle(server: MailboxClient, places: Places, lost: Lost, verdict: Verdict) -> Settled:
    """Give the verdict as a command does, and let the workflow go on."""
    told = command(places, "review", "resolve", lost.case["case_id"], *verdict.words)
    end = run_counterfoil(server, places, None)
    return Settled(verdict=verdict, told=told, end=end, mails=tuple(server.mails()))


def command(places: Places, *words: str) -> str:
    """Run a command in a process of its own, as a person does, and return what it prints.

    Raises:
        DemoBroken: it failed.
    """
    done = subprocess.run(  # noqa: S603 - this package's own command
        [sys.executable, "-m", "counterfoil", *words],
        env={**os.environ, "COUNTERFOIL_URL": places.url},  # its password must not stand in a list of processes
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != Exit.DONE:
        raise DemoBroken(f"counterfoil {words[0]} {words[1]} ended with exit code {done.returncode}: {done.stderr}")
    return done.stdout.rstrip()
