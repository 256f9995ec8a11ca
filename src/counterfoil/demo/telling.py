"""Tell the story of a mail whose acceptance was not heard, for people."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from counterfoil.demo.places import Places
from counterfoil.demo.showing import MANAGED, PLAIN, name_of_command
from counterfoil.demo.unknown import OPERATION, Lost, Played, Settled, Verdict
from counterfoil.testing.mail_desk import Mail

GRAPH: Final = Path(__file__).with_name("invitation.py")


def until_lost(lost: Lost) -> str:
    """Tell what the mailbox holds, and show what a person sees."""
    shown = [f"$ counterfoil review show {case['case_id']}\n\n{_indented(lost.shown)}" for case in lost.cases[:1]]
    return "\n\n".join(
        [
            "A mail server takes one invitation, and its reply is lost. Mails in the mailbox then:",
            f"{PLAIN}, which tries again:\n{_mails(lost.plain)}",
            f"{MANAGED}, where the run waits:\n{_mails(lost.counterfoil)}",
            f"Reviews that wait for a person: {len(lost.cases)}",
            *shown,
        ]
    )


def settled(lost: Lost, then: Settled) -> str:
    """Tell which verdict was given and how the workflow went on."""
    return "\n\n".join(
        [
            f"The person looks into the mailbox, and says what is there:\n$ {resolve_line(lost, then.verdict)}",
            _indented(then.told),
            f"The workflow goes on, and ends {then.end}. Mails in the mailbox now:\n{_mails(then.mails)}",
        ]
    )


def in_the_end(played: Played, places: Places) -> str:
    """Return the counts as one sentence, what broke its promise, and what to do next."""
    counts = played.counts()
    told = (
        f"The mailbox's own counts: for one invitation {PLAIN} sent {counts['mails_plain']} mails, Counterfoil"
        f" {counts['mails_counterfoil']}, with {counts['reviews']} outcome reported as unknown and never guessed."
    )
    broken = [] if played.keeps_promise else [_broken(played)]
    return "\n\n".join([told, *broken, what_next(places)])


def resolve_line(lost: Lost, verdict: Verdict) -> str:
    """Return the command that gives the verdict, as it is typed."""
    return f"counterfoil review resolve {lost.case['case_id']} {shlex.join(verdict.words)}"


def what_next(places: Places) -> str:
    """Return what to look at, and where the graph is."""
    name = name_of_command()
    if places.is_named:
        tenant = places.tenants[0]
        look = (
            f"Counterfoil's rows stay in {places.shown}\n  under the tenant {tenant}, which is this run's alone.\n"
            f"Next: why it ran once\n  {name} explain {OPERATION} --tenant {tenant} --url {shlex.quote(places.shown)}"
        )
    else:
        look = f"Next: the same in a database that stays\n  {name} demo unknown --url sqlite:///demo.db"
    return f"{look}\nand the graph, with the one line that differs\n  {GRAPH}"


def _mails(mails: Sequence[Mail]) -> str:
    lines = [f"  {mail.number}. to {', '.join(mail.recipients)}  {mail.message_id}" for mail in mails]
    return "\n".join(lines) or "  none"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _broken(played: Played) -> str:
    return (
        "NOT AS IT MUST BE: two mails without Counterfoil, with it one, one review, and a run that goes on by the"
        f" verdict are right; the run ended {played.end}."
    )
