"""A connection that dies at any moment: the database's part is done again or looked up, an effect never."""

import threading
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from counterfoil import Absent, CannotTell, Found, NotSent, Provider
from counterfoil.errors import CommitUnknown, EffectNotSent, OutcomeUnknown, StoreUnavailable, VerdictConflict
from counterfoil.testing.wire import Wire
from tests.conformance.subject import ASYNC
from tests.faults.subject import MANNERS, Wired, at_each_point, cut
from tests.postgres.databases import Database


def sends(subject: Wired, request_id: str) -> int:
    return [body["title"] for body in subject.sent.bodies].count(request_id)


def row_of(subject: Wired, request_id: str) -> Any:
    (row,) = [each for each in subject.rows("operation") if each["request_id"] == request_id]
    return row


def outcomes(subject: Wired, request_id: str) -> list[str]:
    key = row_of(subject, request_id)["operation_id"]
    detail = subject.settle(subject.cf.operations.get(key, tenant="team-a"))
    return [str(each.outcome) for each in detail.attempts]


def test_an_effect_happens_once_and_its_receipt_comes_back(subject: Wired, wire: Wire) -> None:
    create = subject.ticket()

    def act(request_id: str) -> None:
        assert subject.perform(create, request_id=request_id, title=request_id).value["title"] == request_id

    def check(request_id: str) -> None:
        assert sends(subject, request_id) == 1
        assert (row_of(subject, request_id)["state"], outcomes(subject, request_id)) == ("succeeded", ["succeeded"])

    assert len(at_each_point(subject, wire, act, check)) >= 6
    assert subject.cases() == []


@pytest.mark.parametrize(
    ("ending", "error", "state", "outcome"),
    [(OSError(), OutcomeUnknown, "unknown", "unknown"), (NotSent(), EffectNotSent, "pending", "not_sent")],
)
def test_an_outcome_that_takes_several_statements_is_recorded_once(
    subject: Wired, wire: Wire, ending: Exception, error: type[Exception], state: str, outcome: str
) -> None:
    def end() -> None:
        raise ending

    create = subject.ticket(end)

    def act(request_id: str) -> None:
        with pytest.raises(error):
            subject.perform(create, request_id=request_id, title=request_id)

    def check(request_id: str) -> None:
        assert (sends(subject, request_id), row_of(subject, request_id)["state"]) == (1, state)
        assert outcomes(subject, request_id) == [outcome]

    runs = at_each_point(subject, wire, act, check)
    assert "before before-statement archive_attempt" in runs
    assert len(subject.cases()) == (len(runs) + 1 if state == "unknown" else 0)


def test_what_a_look_up_found_is_recorded_once(subject: Wired, wire: Wire) -> None:
    desk_is_open = threading.Event()

    def lookup(call: Any, *, title: str) -> Any:
        if not desk_is_open.is_set():
            return CannotTell("closed")
        one = subject.sent.tally.find(call.provider_key)
        return Absent() if one is None else Found({"id": one.number, "title": title})

    def end() -> None:
        raise OSError

    create = subject.ticket(end, provider=subject.provider(lookup=lookup, lookup_lag="0s"))

    def lose(request_id: str) -> None:
        desk_is_open.clear()
        with pytest.raises(OutcomeUnknown):
            subject.perform(create, request_id=request_id, title=request_id)

    def act(request_id: str) -> None:
        desk_is_open.set()
        try:
            subject.perform(create, request_id=request_id, title=request_id)
        except OutcomeUnknown:  # the answer's COMMIT was lost: asked again next time
            subject.perform(create, request_id=request_id, title=request_id)

    def check(request_id: str) -> None:
        assert subject.perform(create, request_id=request_id, title=request_id).value["title"] == request_id
        assert (sends(subject, request_id), row_of(subject, request_id)["state"]) == (1, "succeeded")

    assert "after before-commit" in at_each_point(subject, wire, act, check, arrange=lose)
    assert subject.cases() == []


def test_a_person_s_verdict_is_recorded_once(subject: Wired, wire: Wire) -> None:
    def end() -> None:
        raise OSError

    create = subject.ticket(end)

    def lose(request_id: str) -> None:
        with pytest.raises(OutcomeUnknown):
            subject.perform(create, request_id=request_id, title=request_id)

    def act(request_id: str) -> None:
        opened = subject.settle(subject.cf.review.open(row_of(subject, request_id)["operation_id"], tenant="team-a"))
        said = {"verdict": "happened", "by": "ann", "evidence": '{"id": 7}', "expect_version": opened.version}
        try:
            subject.settle(subject.cf.review.resolve(opened.case_id, tenant="team-a", **said))
        except CommitUnknown:  # it had not arrived when it was looked up: a person gives it again, or is too late
            with suppress(VerdictConflict):
                subject.settle(subject.cf.review.resolve(opened.case_id, tenant="team-a", **said))

    def check(request_id: str) -> None:
        row = row_of(subject, request_id)
        assert subject.perform(create, request_id=request_id, title=request_id).value == {"id": 7}
        given = [each for each in subject.rows("evidence") if each["operation_id"] == row["operation_id"]]
        assert [each["kind"] for each in given] == ["verdict"]

    assert "reply before-commit" in at_each_point(subject, wire, act, check, arrange=lose)
    assert subject.cases() == []


def test_a_transactional_effect_s_rows_and_receipt_come_together(
    subject: Wired, wire: Wire, postgres_database: Database
) -> None:
    postgres_database.execute("create table booking (seat text primary key)")
    began: list[str] = []

    def blocking(tx: Any, *, seat: str) -> str:
        began.append(seat)
        tx.execute("insert into booking values (%s)", (seat,))
        return seat

    async def awaiting(tx: Any, *, seat: str) -> str:
        began.append(seat)
        await tx.execute("insert into booking values (%s)", (seat,))
        return seat

    book = subject.effect(awaiting if subject.colour == ASYNC else blocking, provider=Provider.transactional())

    def act(request_id: str) -> None:
        for _ in range(2):
            try:
                assert subject.perform(book, request_id=request_id, seat=request_id).value == request_id
                return
            except (StoreUnavailable, CommitUnknown, psycopg.OperationalError):
                continue
        pytest.fail("it failed again, undisturbed")

    def check(request_id: str) -> None:
        assert postgres_database.execute("select count(*) from booking where seat = %s", request_id) == [(1,)]
        assert row_of(subject, request_id)["state"] == "succeeded"
        assert began.count(request_id) <= 2

    assert len(at_each_point(subject, wire, act, check)) >= 9
    assert began.count("before-0") == 1  # nothing had begun: the driver tried again by itself


@pytest.mark.parametrize("manner", MANNERS)
def test_user_code_in_a_transaction_is_not_run_again_by_itself(
    subject: Wired, wire: Wire, postgres_database: Database, manner: str
) -> None:
    postgres_database.execute("create table booking (seat text primary key)")
    began: list[str] = []

    def begin(seat: str) -> tuple[str, tuple[str]]:
        began.append(seat)
        if len(began) == 1:
            cut(wire, manner)
        return "insert into booking values (%s)", (seat,)

    def blocking(tx: Any, *, seat: str) -> str:
        tx.execute(*begin(seat))
        return seat

    async def awaiting(tx: Any, *, seat: str) -> str:
        await tx.execute(*begin(seat))
        return seat

    book = subject.effect(awaiting if subject.colour == ASYNC else blocking, provider=Provider.transactional())
    with pytest.raises(psycopg.OperationalError):
        subject.perform(book, seat="12a")
    assert (began, subject.rows("operation")) == (["12a"], [])
    assert postgres_database.execute("select * from booking") == []
    assert subject.perform(book, seat="12a").value == "12a"


def test_a_verification_is_recorded_though_its_commit_was_lost(subject: Wired, wire: Wire) -> None:
    def lookup(call: Any, *, title: str) -> Any:
        return Found({"id": 1, "title": title})

    create = subject.ticket(provider=subject.provider(lookup=lookup, lookup_lag="0s"))

    def send(request_id: str) -> None:
        subject.perform(create, request_id=request_id, title=request_id)

    def act(request_id: str) -> None:
        assert subject.verify(create, request_id=request_id, title=request_id).state == "succeeded"

    def check(request_id: str) -> None:
        assert sends(subject, request_id) == 1
        assert row_of(subject, request_id)["state"] == "succeeded"

    assert at_each_point(subject, wire, act, check, arrange=send)


def test_reads_are_simply_done_again(subject: Wired, wire: Wire) -> None:
    create = subject.ticket()
    subject.perform(create, title="a")
    for manner in MANNERS:
        cut(wire, manner)
        assert subject.settle(subject.cf.operations.counts(tenant="team-a"))["succeeded"] == 1
        cut(wire, manner)
        assert subject.perform(create, title="a").already_happened
    assert wire.counts.cuts == 2 * len(MANNERS)
