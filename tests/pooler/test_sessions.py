"""Sessions that are shared with other clients: nothing is left in them, and nothing is expected of them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, NotSent
from counterfoil.drivers import postgres_open
from counterfoil.errors import Busy, EffectNotSent
from counterfoil.storage.migrator import migrations
from tests.faults.subject import Wired, wired
from tests.faults.test_conflicts import locked
from tests.faults.test_settings import another_role, transactional
from tests.postgres.databases import Database
from tests.postgres.pooler import Pooler

SETTINGS = (
    "lock_timeout",
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "default_transaction_isolation",
    "default_transaction_read_only",
)


@pytest.fixture
def pooled(url: str, colour: str, tmp_path: Path) -> Iterator[Wired]:
    made = wired(url, colour, tmp_path, wait="20s")
    yield made
    made.close()


@pytest.fixture
def role(postgres_database: Database) -> Iterator[str]:
    """A role that may settle an operation, and is another than the one that is connected."""
    with another_role(postgres_database) as name:
        yield name


def not_sent() -> None:
    raise NotSent


def sessions(url: str, question: str) -> list[Any]:
    """Ask each of the server's sessions that the pooler has, by a transaction on all of them at once."""
    with ExitStack() as at_once:
        asked = [at_once.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(5)]
        answers = [each.execute(question).fetchone() for each in asked]
        assert len({each.execute("select pg_backend_pid()").fetchone() for each in asked}) == len(asked)
    return answers


@pytest.mark.parametrize("kind", [Counterfoil, AsyncCounterfoil])
def test_the_store_tells_that_a_pooler_stands_before_the_server(
    kind: Any, url: str, postgres_database: Database
) -> None:
    for where, behind in ((url, True), (postgres_database.url, False)):
        cf = kind.open(where)
        assert cf.desk.store.behind_pooler is behind
        cf.desk.async_store.retire()
        cf.desk.store.close()


def test_no_setting_and_no_prepared_statement_is_left_to_others(pooled: Wired, url: str) -> None:
    create, refuse, ids = pooled.ticket(), pooled.ticket(not_sent), count()

    def both() -> None:
        pooled.perform(create, request_id=f"a-{next(ids)}", title="a")
        with pytest.raises(EffectNotSent):
            pooled.perform(refuse, request_id=f"b-{next(ids)}", title="a")

    before = [sessions(url, f"show {name}") for name in SETTINGS]
    for _ in range(4):  # often enough for psycopg to prepare what it executes
        assert pooled.at_once(both, 4) == [None] * 4
    assert [sessions(url, f"show {name}") for name in SETTINGS] == before
    assert sessions(url, "select count(*) from pg_prepared_statements") == [(0,)] * 5


def test_what_a_transactional_effect_sets_is_not_left_to_others(pooled: Wired, url: str, role: str) -> None:
    statements = ("set search_path to public, elsewhere", "set timezone to 'Asia/Tokyo'", "set lock_timeout to '1h'",
                  "select pg_advisory_lock(4711)", f"set role {role}")  # fmt: skip
    asked = ["show search_path", "show timezone", "show lock_timeout", "show client_encoding", "select current_user",
             "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711"]  # fmt: skip
    before = [sessions(url, question) for question in asked]
    for number in range(6):
        pooled.perform(transactional(pooled, *statements), request_id=f"r-{number}", title="a")
    assert [sessions(url, question) for question in asked] == before


def test_locks_are_waited_for_in_bounds_all_the_same(
    pooled: Wired, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_open, "WAIT_S", 0.3)
    refuse = pooled.ticket(not_sent)
    with pytest.raises(EffectNotSent):
        pooled.perform(refuse, title="a")
    with locked(postgres_database), pytest.raises(Busy):
        pooled.perform(refuse, title="a")
    assert len(pooled.sent) == 1


def test_more_clients_than_the_pooler_has_sessions(pooled: Wired) -> None:
    create, ids = pooled.ticket(), count()
    done = pooled.at_once(lambda: pooled.perform(create, request_id=f"r-{next(ids) % 8}", title="a").value["id"], 32)
    assert Counter(done) == dict.fromkeys(range(1, 9), 4)
    assert len(pooled.sent) == 8


@pytest.mark.parametrize("command", ["reconnect", "kill {name}"])
def test_sessions_that_the_pooler_exchanges_or_ends(
    pooled: Wired, postgres_pooler: Pooler, postgres_database: Database, command: str
) -> None:
    create = pooled.ticket()
    pooled.perform(create, title="a")
    postgres_pooler.console(command.format(name=postgres_database.name))
    if command.startswith("kill"):
        postgres_pooler.console(f"resume {postgres_database.name}")
    assert pooled.perform(create, request_id="r-2", title="b").value["id"] == 2
    assert len(pooled.sent) == 2


def test_replicas_make_one_schema(postgres_pooler: Pooler, postgres_server: Any, postgres_names: Iterator[str]) -> None:
    name = next(postgres_names)
    postgres_server.create_database(name)
    try:
        url = postgres_pooler.url(name)
        Wired.at_once(lambda: Counterfoil.open(url).close(), 3)
        applied = postgres_server.execute("select number from counterfoil_migration", database=name)
        assert applied == [(each.number,) for each in migrations("postgres")]
    finally:
        postgres_server.drop_database(name)
