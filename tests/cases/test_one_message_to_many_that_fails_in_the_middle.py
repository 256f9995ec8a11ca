"""B50: a loop over recipients failed in the middle: the failed ones were lost, or a retry mailed everyone again.

Source: https://github.com/langfuse/langfuse/pull/16578
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from counterfoil import Counterfoil, Verdict
from counterfoil.errors import EffectNotSent
from counterfoil.langgraph import perform
from counterfoil.testing.mail_client import CountingMailServer
from counterfoil.testing.mail_desk import MailFault
from counterfoil.testing.tally import TallyFile
from tests import children
from tests.cases import mass_letters
from tests.cases.mass_mail import ADDRESSES, mail_all, newsletter, opened

ROOT = Path(__file__).parents[2]
ONE, TWO, THREE, FOUR, FIVE = ADDRESSES
ONCE = dict.fromkeys(ADDRESSES, 1)


@pytest.fixture(scope="module")
def server() -> Iterator[CountingMailServer]:
    with CountingMailServer() as running:
        yield running


@pytest.fixture
def mail(server: CountingMailServer) -> Iterator[CountingMailServer]:
    server.reset()
    yield server
    server.reset()


def start(url: str, mail: CountingMailServer, *more: str) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    argv = [sys.executable, "-m", "tests.cases.mass_mail", url, str(mail.port), *more]
    return children.start(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})


def counts(mail: CountingMailServer) -> dict[str, int]:
    return {address: mail.count(address) for address in ADDRESSES}


def not_now(address: str, reply: str = "450 4.2.1 greylisted") -> MailFault:
    return MailFault(phase="rcpt", reply=reply, recipient=address)


def test_one_fails_one_is_the_last_before_a_kill_and_each_gets_one_mail(url: str, mail: CountingMailServer) -> None:
    mail.order(not_now(THREE))
    assert start(url, mail, FOUR).wait() == -signal.SIGKILL
    assert counts(mail) == {**ONCE, THREE: 0, FIVE: 0}
    with opened(url, mail.port) as cf:
        told = mail_all(cf)
        assert told == {**dict.fromkeys(ADDRESSES, "receipt"), THREE: "effect", FIVE: "effect"}
        assert cf.operations.counts(tenant="t")["succeeded"] == 5
        receipts = [cf.operations.get(f"newsletter:7:{_escaped(to)}", tenant="t").receipt for to in ADDRESSES]
    assert [receipt.value["accepted"] for receipt in receipts if receipt] == [[to] for to in ADDRESSES]
    assert counts(mail) == ONCE


def _escaped(address: str) -> str:
    return address.replace("@", "%40")


def test_a_kill_between_mail_and_receipt_leaves_one_unknown_and_nobody_is_mailed_twice(
    url: str, mail: CountingMailServer
) -> None:
    mail.order(MailFault(phase="dot", does="hold"))
    first = start(url, mail)
    mail.wait_held()
    first.kill()
    first.wait()
    with opened(url, mail.port) as cf:
        for _ in range(2):
            assert mail_all(cf)[ONE] == "outcome-unknown"
        (case,) = cf.review.list(tenant="t").items
        cf.review.resolve(
            case.case_id,
            tenant="t",
            verdict=Verdict.HAPPENED,
            by="ann",
            evidence="it lies in the mailbox",
            expect_version=case.version,
        )
        assert set(mail_all(cf).values()) == {"receipt"}
    assert counts(mail) == ONCE


@pytest.mark.parametrize("phase", ["mail", "rcpt", "data"])
def test_a_kill_before_the_mail_has_left_is_unknown_too_and_is_not_sent_again_by_itself(
    url: str, mail: CountingMailServer, phase: Any
) -> None:
    mail.order(MailFault(phase=phase, does="hold"))
    first = start(url, mail)
    mail.wait_held()
    first.kill()
    first.wait()
    mail.release()
    with opened(url, mail.port) as cf:
        told = mail_all(cf)
    assert told == {**dict.fromkeys(ADDRESSES, "effect"), ONE: "outcome-unknown"}
    assert counts(mail) == {**ONCE, ONE: 0}


class State(TypedDict, total=False):
    told: list[str]


def mail_everybody(state: State) -> State:
    return {"told": [perform(newsletter, issue=7, address=address).answered_from for address in ADDRESSES]}


def test_a_node_that_fails_in_the_middle_goes_on_where_it_was(url: str, mail: CountingMailServer) -> None:
    mail.order(not_now(THREE))
    builder = StateGraph(State).add_node(mail_everybody).add_edge(START, "mail_everybody")
    with opened(url, mail.port) as cf:
        graph = cf.compile(builder)
        with pytest.raises(EffectNotSent):
            cf.run(graph, {}, tenant="t", request_id="r-1", thread_id="n-1")
        assert counts(mail) == {**ONCE, THREE: 0, FOUR: 0, FIVE: 0}
        told = cf.run(graph, None, tenant="t", request_id="r-1", thread_id="n-1")["told"]
    assert told == ["receipt", "receipt", "effect", "effect", "effect"]
    assert counts(mail) == ONCE


def test_a_recipient_refused_for_good_costs_the_others_nothing(url: str, mail: CountingMailServer) -> None:
    mail.order(not_now(THREE, "550 5.1.1 no such user"))
    with opened(url, mail.port) as cf:
        for others in ("effect", "receipt"):
            assert mail_all(cf) == {**dict.fromkeys(ADDRESSES, others), THREE: "effect-refused"}
    assert counts(mail) == {**ONCE, THREE: 0}


def test_two_senders_with_one_list_mail_everybody_once(url: str, mail: CountingMailServer) -> None:
    with opened(url, mail.port) as one, opened(url, mail.port) as other, ThreadPoolExecutor(2) as pool:
        told = list(pool.map(mail_all, (one, other)))
    assert {frozenset(each.values()) for each in told} <= {
        frozenset({"effect"}),
        frozenset({"receipt"}),
        frozenset({"effect", "receipt"}),
    }
    assert counts(mail) == ONCE


def letters(url: str, folder: Path, *more: str) -> int:
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    argv = [sys.executable, "-m", "tests.cases.mass_letters", url, str(folder), *more]
    return subprocess.run(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=60).returncode


@pytest.mark.slow
def test_enqueued_by_one_step_of_a_graph_each_gets_one_letter_over_a_failure_and_a_kill(
    url: str, tmp_path: Path
) -> None:
    assert letters(url, tmp_path, "die") == -signal.SIGKILL
    tally = mass_letters.tally_in(tmp_path)
    assert (tally.count("three"), tally.count("four")) == (0, 1)
    until = time.monotonic() + 60
    while tally.count() < len(mass_letters.ADDRESSES) and time.monotonic() < until:
        assert letters(url, tmp_path) == 0  # started again, as a supervisor does; what the dead one held is due later
    assert [tally.count(address) for address in mass_letters.ADDRESSES] == [1] * 5
    with Counterfoil.open(url) as cf:
        cf.resources.provide(TallyFile, lambda: tally)
        assert len(cf.operations.list(tenant="t").items) == 5
