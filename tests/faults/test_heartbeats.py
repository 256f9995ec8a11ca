"""Claims while the database is away: kept as long as nobody else took them, and not a moment longer."""

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from counterfoil import Effect
from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown, OutcomeUnknown
from counterfoil.model import OperationKey
from counterfoil.storage.scripts import leases
from counterfoil.testing.wire import Wire
from tests.conformance.subject import SYNC, Background, Gate
from tests.conformance.test_commits import LostAndGone
from tests.faults.subject import Wired, wired
from tests.postgres.databases import Database

RENEWED = "renew_lease_if_fenced"


class Renewals:
    """Lets a test wait for the next renewal that the server has confirmed."""

    def __init__(self) -> None:
        self._next = threading.Event()

    def __call__(self, point: Point, name: str) -> None:
        if (point, name) == (Point.AFTER_STATEMENT, RENEWED):
            self._next.set()

    def wait(self) -> None:
        self._next.clear()
        assert self._next.wait(20), "nothing was renewed"


def lease_left(database: Database) -> int:
    ((left,),) = database.execute(
        "select lease_until - cast(floor(extract(epoch from clock_timestamp()) * 1000) as bigint)"
        " from counterfoil_operation"
    )
    return int(left)


def test_a_claim_outlives_an_outage_that_is_longer_than_its_lease(
    subject: Wired, wire: Wire, postgres_database: Database
) -> None:
    renewals = Renewals()

    def outage() -> None:
        renewals.wait()
        wire.refuse()
        wire.cut()
        while lease_left(postgres_database) > 0:  # as long as the lease that was renewed last
            pass
        wire.restore()
        renewals.wait()
        assert lease_left(postgres_database) > 0

    create = subject.ticket(outage, lease="1s", time_limit="60s")
    with subject.probe.during(renewals):
        assert subject.perform(create, title="a").value["id"] == 1
    assert (len(subject.sent), subject.attempts(), subject.cases()) == (1, ["succeeded"], [])


def test_a_claim_that_another_took_meanwhile_is_not_renewed(
    subject: Wired, wire: Wire, postgres_database: Database
) -> None:
    renewals, gate = Renewals(), Gate()
    create = subject.ticket(gate, lease="1s", time_limit="60s")
    with subject.probe.during(renewals):
        worker = Background(lambda: subject.perform(create, title="a"))
        gate.wait()
        renewals.wait()
        wire.refuse()
        wire.cut()
        while lease_left(postgres_database) > 0:
            pass
        taken_over(subject, create, postgres_database)
        wire.restore()
        gate.open()
        assert worker.result().value["id"] == 1
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "succeeded", [])
    assert subject.evidence() == ["late_reply"]


def taken_over(subject: Wired, create: Effect[Any], database: Database) -> None:
    """Let somebody with a better way to the server find that the claim ran out."""
    other = subject.open(database.url)
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, cf=other, title="a")


def test_a_renewal_does_not_wait_for_a_connection_that_nobody_answers(
    wire: Wire, postgres_database: Database, tmp_path: Path
) -> None:
    """With a lease of three seconds, a server that counts as silent only after half a minute."""
    server = postgres_database.server
    with Wire(server.host, server.port) as other_way:
        both = f"{wire.host}:{wire.port},{other_way.host}:{other_way.port}"
        parts = urlsplit(postgres_database.url)
        url = f"postgresql://{parts.netloc.rpartition('@')[0]}@{both}{parts.path}"
        subject, renewals = wired(url, SYNC, tmp_path), Renewals()

        def lose_the_way() -> None:
            wire.black_hole()
            wire.refuse()
            renewals.wait()
            assert lease_left(postgres_database) > 0

        create = subject.ticket(lose_the_way, lease="3s", time_limit="60s")
        with subject.probe.during(renewals):
            assert subject.perform(create, title="a").value["id"] == 1
        subject.close()


def test_a_renewal_that_may_be_stored_is_not_said_to_be_lost(blocking: Wired) -> None:
    key = OperationKey(tenant="team-a", operation_id="ticket:r-1")

    def renew(within: float) -> bool:
        renewed: bool = blocking.cf.desk.store.renew(lambda: leases.renew(key, fence=1, lease=1000), within=within)
        return renewed

    def act() -> None:
        with blocking.probe.during(LostAndGone()), pytest.raises(CommitUnknown):
            renew(5.0)

    blocking.perform(blocking.ticket(act, lease="1s", time_limit="60s"), title="a")
