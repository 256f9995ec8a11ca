"""Run the mail demo on each store, in a process of its own, and judge what the mailbox held."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from counterfoil import Counterfoil, effect
from counterfoil.cli.main import cli
from counterfoil.demo import tickets, unknown
from counterfoil.demo.unknown import Lost, Played, Settled, Verdict
from counterfoil.testing.mail_desk import Mail
from tests import stores
from tests.cli.conftest import Line

COUNTS = {"mails_plain": 2, "mails_counterfoil": 1, "reviews": 1}
CASE = {"case_id": "case-1", "version": 1, "operation_id": unknown.OPERATION}


def demo(*arguments: str, stdin: Any = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "counterfoil", "demo", "unknown", *arguments]
    return subprocess.run(line, stdin=stdin, capture_output=True, text=True, timeout=120, check=False)


# --- really played ----------------------------------------------------------------------------------------------------


@effect("demo.their-mail", key="{request_id}/invitation")
def theirs(call: Any, *, address: str) -> str:
    return address


@pytest.mark.slow
@stores.on_each(*stores.SHARED)
def test_one_mail_and_a_review_where_a_blind_retry_leaves_two_mails(url: str) -> None:
    with Counterfoil.open(url) as cf:  # somebody else's operation of the same name
        cf.perform(theirs, tenant="team-A", request_id="r-1", address="bob@example.org")
    everything = "select * from counterfoil_operation order by seq"
    before = stores.execute(url, everything)
    done = demo("--json", "--url", url)
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (0, "", COUNTS)
    assert stores.execute(url, everything)[:1] == before
    ours = "select tenant, state, settled_by, attempt from counterfoil_operation where tenant <> 'team-A'"
    ((tenant, *told),) = stores.execute(url, ours)
    assert told == ["succeeded", "verdict", 1]
    assert Line(url).json(f"ops show {unknown.OPERATION} --tenant", tenant)["state"] == "succeeded"


@pytest.mark.slow
def test_the_review_the_verdict_and_how_it_goes_on_are_shown() -> None:
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    told = [
        "plain LangGraph, which tries again:\n  1. to ann@example.org  <",
        "\n  2. to ann@example.org  <",
        "$ counterfoil review show case-1\n\n  case-1 is open (version 1): unknown_outcome;",
        "provider key  ",
        "$ counterfoil review resolve case-1 --expect-version 1 --by ada --happened --value ",
        "recorded  case-1  verdict=happened  by=ada",
        "The workflow goes on, and ends finished. Mails in the mailbox now:\n  1. to ann@example.org  <",
        "for one invitation plain LangGraph sent 2 mails, Counterfoil 1, with 1 outcome reported as unknown",
    ]
    places = [done.stdout.find(each) for each in told]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.slow
def test_on_a_terminal_a_person_may_judge() -> None:
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"n\n")
        done = demo("--ask", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Did {unknown.OPERATION} happen? [Y/n]" in done.stdout
    assert "--did-not-happen --close" in done.stdout
    assert "goes on, and ends effect-refused. Mails in the mailbox now:\n  1. to" in done.stdout


# --- as if ------------------------------------------------------------------------------------------------------------


def mails(number: int) -> tuple[Mail, ...]:
    return tuple(a_mail(each) for each in range(1, number + 1))


def a_mail(number: int) -> Mail:
    return Mail(
        number=number,
        sender="jobs@example.org",
        recipients=("ann@example.org",),
        message_id=f"<{number}@example.org>",
        subject="",
        content="",
    )


def a_story(plain: int, before: int, reviews: int, after: int, end: str) -> Played:
    lost = Lost(plain=mails(plain), counterfoil=mails(before), end="parked", cases=(CASE,) * reviews)
    then = Settled(verdict=unknown.look(lost), told="", end=end, mails=mails(after)) if reviews else None
    return Played(lost=lost, settled=then)


GOOD = a_story(2, 1, 1, 1, "finished")


@pytest.mark.parametrize(
    ("story", "counted"),
    [
        (a_story(1, 1, 1, 1, "finished"), (1, 1, 1)),
        (a_story(2, 1, 1, 2, "finished"), (2, 2, 1)),
        (a_story(2, 1, 1, 1, "parked"), (2, 1, 1)),
        (a_story(2, 1, 0, 1, ""), (2, 1, 0)),
        (a_story(2, 0, 1, 0, "effect-refused"), (2, 0, 1)),
    ],
    ids=["no blind retry", "two mails", "it waits still", "no review", "no mail"],
)
def test_a_count_that_is_not_what_it_must_be_exits_with_8(
    monkeypatch: pytest.MonkeyPatch, story: Played, counted: tuple[int, ...]
) -> None:
    monkeypatch.setattr(unknown, "lose", lambda *_: story.lost)
    monkeypatch.setattr(unknown, "settle", lambda *_: story.settled)
    told = CliRunner().invoke(cli, ["demo", "unknown"])
    assert (told.exit_code, "NOT AS IT MUST BE" in told.output) == (8, True)
    as_json = CliRunner().invoke(cli, ["demo", "unknown", "--json"])
    assert (as_json.exit_code, tuple(json.loads(as_json.output).values())) == (8, counted)


def test_counts_that_are_right_exit_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "lose", lambda *_: GOOD.lost)
    monkeypatch.setattr(unknown, "settle", lambda *_: GOOD.settled)
    told = CliRunner().invoke(cli, ["demo", "unknown"])
    assert (told.exit_code, "NOT AS IT MUST BE" in told.output) == (0, False)


def test_whoever_looks_finds_the_mail_by_its_message_id() -> None:
    verdict = unknown.look(GOOD.lost)
    assert verdict.happened
    assert json.loads(verdict.words[verdict.words.index("--value") + 1])["message_id"] == "<1@example.org>"
    nothing = unknown.look(a_story(2, 0, 1, 0, "").lost)
    assert nothing == Verdict(happened=False, words=nothing.words)


def test_a_missing_extra_is_refused_with_the_line_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "find_spec", lambda _name: None)
    result = CliRunner().invoke(cli, ["demo", "unknown"])
    assert (result.exit_code, "pip install 'counterfoil[demo]'" in result.output) == (2, True)


def test_a_database_that_only_one_process_sees_is_refused() -> None:
    result = CliRunner().invoke(cli, ["demo", "unknown", "--url", "sqlite:///:memory:"])
    assert (result.exit_code, result.output.startswith("error[invalid-url]")) == (2, True)
