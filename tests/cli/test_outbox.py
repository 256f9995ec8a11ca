"""What the commands on the outbox print, and how they exit; and what `review show` tells a person."""

from typing import Any

import pytest

from counterfoil import Counterfoil, Delivery, Found, NotSent, Provider, effect
from tests.cli.conftest import Line

TERMS = Delivery(max_attempts=1, stream="desk/{request_id}")


@effect("cli.queued", key="{request_id}/queued", delivery=TERMS)
def queued(call: Any, *, title: str) -> Any:
    if title == "later":
        raise NotSent("closed on Sundays")
    if title == "lost":
        raise OSError("the wire broke")
    return title


@effect(
    "cli.sure",
    key="{request_id}/sure",
    provider=Provider(key_lifetime="24h", lookup=lambda _call, **_more: Found(), lookup_lag="1m"),
)
def sure(call: Any, *, title: str) -> Any:
    raise OSError("the wire broke")


@pytest.fixture
def outbox(empty: Line) -> Line:
    with Counterfoil.open(empty.url) as cf:
        for title in ("done", "later", "lost"):
            cf.enqueue(queued, tenant="team-A", request_id=title, title=title)
        cf.drain(queued)
        cf.enqueue(queued, tenant="team-A", request_id="new", title="new", delivery=Delivery(delay="5m"))
        cf.enqueue(queued, tenant="team-B", request_id="later", title="other")
    return empty


WHY = ("--by", "mei", "--reason", "it works again")


def test_what_is_not_settled_is_listed_with_when_it_is_due(outbox: Line) -> None:
    rows = [row.split() for row in outbox("outbox list --tenant team-A").stdout.splitlines()]
    assert rows[0] == ["OPERATION", "STATE", "DUE", "EFFECT", "STREAM", "ATTEMPTS", "AGE"]
    assert [row[:3] for row in rows[1:]] == [
        ["new/queued", "pending", "in"],
        ["lost/queued", "unknown", "-"],
        ["later/queued", "parked", "-"],
    ]
    assert outbox("outbox list").stdout.splitlines()[0].split()[0] == "TENANT"
    (one,) = outbox.json("outbox list --tenant team-A --state parked")
    assert (one["stream"], one["max_attempts"], one["error_text"]) == ("desk/later", 1, "closed on Sundays")
    assert [one["state"] for one in outbox.json("outbox list --state succeeded")] == ["succeeded"]
    assert len(outbox.json("outbox list --state all")) == 5
    assert outbox("outbox list --effect none").stdout == "Nothing waits to be sent.\n"
    first = outbox("outbox list --limit 1")
    assert first.stderr.startswith("More: add --before ")
    assert outbox.error("outbox list --state asleep", exit_code=2)["code"] == "invalid-arguments"


def test_one_is_shown_with_what_holds_it_back(outbox: Line) -> None:
    with Counterfoil.open(outbox.url) as cf:
        cf.enqueue(queued, tenant="team-A", request_id="next", title="x", delivery=Delivery(stream="desk/later"))
    outbox("outbox pause --effect cli.queued", *WHY)
    text = outbox("outbox show next/queued").stdout
    assert "It is sent after later/queued, of the same stream." in text
    assert "mei paused effect cli.queued: it works again" in text
    shown = outbox.json("outbox show next/queued")
    assert (shown["behind"], shown["pauses"][0]["paused_by"]) == ("later/queued", "mei")
    assert "payload" not in shown
    assert "DUE" in outbox("outbox list").stdout
    assert outbox.error("outbox show later/queued", exit_code=2)["message"].endswith("--tenant team-A, team-B")
    assert outbox.error("outbox show none", exit_code=3)["code"] == "operation-not-found"


def test_a_pause_that_holds_nothing_back_says_so(outbox: Line) -> None:
    assert outbox("outbox pause --effect cli.queued", *WHY).stderr == ""
    told = outbox("outbox pause --effect cli.qeued", *WHY)
    assert told.stderr == "Nothing that waits now is held by it. What waits: counterfoil outbox list\n"
    assert "cli.qeued" in told.stdout


def test_a_pause_is_made_listed_and_lifted(outbox: Line) -> None:
    made = outbox.json("outbox pause --tenant team-A --stream desk/new", *WHY)
    assert [(one["tenant"], one["effect"], one["stream"]) for one in made] == [("team-A", None, "desk/new")]
    rows = outbox("outbox list --paused").stdout.splitlines()
    assert rows[1].split()[:4] == ["team-A", "-", "desk/new", "mei"]
    assert outbox("outbox list").stderr == "Paused: 1; see: counterfoil outbox list --paused\n"
    assert " paused " in outbox("outbox list --stream desk/new").stdout
    assert outbox.error("outbox resume --tenant team-A", exit_code=3)["code"] == "pause-not-found"
    assert outbox.json("outbox resume --tenant team-A --stream desk/new")["paused_by"] == "mei"
    assert outbox.json("outbox list --paused") == []
    assert outbox.error("outbox pause --reason x", exit_code=2)["code"] == "invalid-arguments"
    assert outbox.error("outbox pause --effect e", exit_code=2)["code"] == "invalid-command"


def test_a_dead_letter_is_requeued_once_and_the_second_is_told_by_whom(outbox: Line) -> None:
    done = outbox("outbox requeue later/queued --tenant team-A --attempts 3", *WHY)
    assert done.stdout.splitlines() == [
        "recorded  later/queued  requeue  by=mei  state=pending",
        "It is due now and has 3 tries left.",
        "A worker sends it at once, as soon as it is its turn.",
    ]
    error = outbox.error("outbox skip later/queued --tenant team-A --reason x", exit_code=5)
    assert error["code"] == "verdict-conflict"
    assert "mei was here before" in error["message"]
    assert outbox.json("review list --state resolved")[0]["verdict"] == "did_not_happen_retry"


def test_a_dead_letter_is_skipped_if_it_is_as_it_was_seen(outbox: Line) -> None:
    (seen,) = outbox.json("outbox list --state parked")
    command = "outbox skip later/queued --tenant team-A --expect-version"
    assert outbox.error(command, str(seen["version"] - 1), *WHY, exit_code=5)["code"] == "verdict-conflict"
    assert outbox(command, str(seen["version"]), *WHY).stdout.splitlines() == [
        "recorded  later/queued  skip  by=mei  state=failed",
        "Nothing is sent any more; the next one of stream desk/later goes.",
    ]
    assert "mei  did_not_happen_close: it works again" in outbox("ops show later/queued --tenant team-A").stdout


def test_what_was_not_sent_is_cancelled_and_what_may_have_been_is_not(outbox: Line) -> None:
    assert outbox.json("ops cancel new/queued", *WHY)["state"] == "cancelled"
    error = outbox.error("ops cancel lost/queued", *WHY, exit_code=6)
    assert error["code"] == "outcome-unknown"
    assert "counterfoil review open lost/queued --tenant team-A" in error["message"]
    assert outbox.error("ops cancel done/queued", *WHY, exit_code=5)["code"] == "verdict-conflict"
    assert outbox.error("ops cancel new/queued --tenant team-B", *WHY, exit_code=3)["code"] == "operation-not-found"


def test_what_backs_off_is_retried_now(outbox: Line) -> None:
    with Counterfoil.open(outbox.url) as cf:
        cf.enqueue(queued, tenant="team-A", request_id="off", title="later", delivery=Delivery(max_attempts=5))
        cf.drain(queued)
    assert "It is due now and has 4 tries left." in outbox("ops retry off/queued", *WHY).stdout
    assert outbox.error("ops retry new/queued", *WHY, exit_code=5)["code"] == "verdict-conflict"


# --- what a person needs ---------------------------------------------------------------------------------------------


def test_a_case_says_all_that_a_person_needs(outbox: Line) -> None:
    number = next(case["case_id"] for case in outbox.json("review list") if case["operation_id"] == "lost/queued")
    text = outbox(f"review show {number}").stdout
    for told in (
        "cli.queued v1",
        "request       lost",
        "stream        desk/lost",
        "1        unknown",
        "builtins.OSError",
        "The provider neither honours a key nor can be asked by this program: look there yourself.",
        "Without a verdict: It is not sent again: the provider neither honours a key nor can be asked.",
        "All later ones of stream desk/lost wait for it.",
        "a worker sends it at once, with 20 new tries",
        f"\ncounterfoil review resolve {number} --expect-version 1 --happened --value JSON --evidence TEXT\n",
        f"\ncounterfoil review resolve {number} --expect-version 1 --did-not-happen --retry --reason TEXT\n",
        f"\ncounterfoil review resolve {number} --expect-version 1 --did-not-happen --close --reason TEXT\n",
    ):
        assert told in text, told
    shown = outbox.json(f"review show {number}")
    assert [each["verdict"] for each in shown["choices"]] == shown["permitted"]
    done = outbox(f"review resolve {number} --expect-version 1 --did-not-happen --retry", "--reason", "not in the list")
    assert "A worker sends it at once" in done.stdout
    assert "counterfoil review resolve" not in outbox(f"review show {number}").stdout


def test_a_case_says_what_its_provider_can_do(outbox: Line) -> None:
    with Counterfoil.open(outbox.url) as cf:
        cf.enqueue(sure, tenant="team-A", request_id="r", title="x")
        cf.drain(sure)
    text = outbox("review show case-3").stdout
    assert "The provider makes a repeat under its key harmless for 1d (until " in text
    assert " and can be asked whether it happened (it shows what happened after 1m)." in text
    assert "Without a verdict: A worker asks the provider. A no counts from " in text


def test_a_caller_is_told_how_its_operation_goes_on(line: Line) -> None:
    text = line("review show case-1").stdout
    assert "the next perform sends it. Call perform again with the same arguments" in text
    assert "stream" not in text


# --- worker ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "told"),
    [
        ("nothing", "write MODULE:NAME"),
        ("no_such_module_here:cf", "No module named"),
        ("tests.cli.test_outbox:nothing", "has no attribute 'nothing'"),
        ("tests.cli.test_outbox:WHY", "names 'tuple', not an opened Counterfoil"),
    ],
)
def test_a_program_that_cannot_be_loaded_is_a_usage_error(outbox: Line, app: str, told: str) -> None:
    error = outbox.error(f"worker --drain --app {app}", exit_code=2)
    assert (error["code"], told in error["message"]) == ("invalid-command", True), error


opened_by_test: list[str] = []


def program() -> Counterfoil:
    return Counterfoil.open(opened_by_test[-1])


async def later() -> Any:
    from counterfoil import AsyncCounterfoil

    return AsyncCounterfoil.open(opened_by_test[-1])


@pytest.mark.parametrize("name", ["program", "later"])
def test_a_worker_drains_and_says_what_it_did(outbox: Line, name: str) -> None:
    opened_by_test.append(outbox.url)
    command = f"worker --drain --effects cli.sure,cli.queued --app tests.cli.test_outbox:{name}"
    first = outbox(command)
    assert first.stdout.startswith("Sending cli.queued, cli.sure of ")
    assert first.stdout.endswith("\nDone: 1 claimed, 1 settled.\n")
    assert outbox.json("outbox list --tenant team-B") == []
    again = outbox(command, "--json")
    assert '"claimed": 0' in again.stdout
    assert again.stderr.startswith("Sending ")
    error = outbox(f"{command} --effects nothing", exit_code=2).stderr
    assert "no effect nothing that a worker sends" in error
    assert "batch is 0" in outbox(f"{command} --batch 0", exit_code=2).stderr
