"""What the body of a transactional effect sets for its session is not met by whoever uses the connection next."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from counterfoil import Counterfoil, Provider
from counterfoil.drivers import postgres_open
from counterfoil.errors import CommitUnknown, ConstraintViolated, Retry, RightsMissing
from counterfoil.storage.script import Ddl, Script
from tests.conformance.subject import ASYNC
from tests.faults.subject import Wired, wired
from tests.postgres.databases import Database

SEEN = """current_setting('search_path') as path, current_setting('TimeZone') as zone, current_user as who,
  session_user as whose, current_setting('statement_timeout') as statements, current_setting('lock_timeout') as locks,
  current_setting('default_transaction_isolation') as isolation,
  nullif(current_setting('app.tenant', true), '') as tenant,
  current_setting('application_name') as name, current_setting('client_encoding') as encoding,
  to_regclass('pg_temp.scratch') as scratch, (select count(*) from pg_cursors where is_holdable) as cursors,
  (select count(*) from pg_locks where locktype = 'advisory' and database = (
    select oid from pg_database where datname = current_database())) as held,
  (select count(*) from pg_listening_channels()) as channels"""
BODY = (
    "set timezone to 'Asia/Tokyo'",
    "set search_path to public, elsewhere",
    "set lock_timeout to '1h'",
    "set statement_timeout to 0",
    "set default_transaction_isolation to 'serializable'",
    "set application_name to 'somebody'",
    "select set_config('app.tenant', 'team-a', false)",
    "select pg_advisory_lock(4711)",
    "create temporary table scratch (n bigint)",
    "declare kept cursor with hold for select 1",
    "listen news",
    "set role pg_read_all_data",
    "reset role",
    "set role {role}",
)


def transactional(subject: Wired, *statements: str, error: Exception | None = None) -> Any:
    """Return an effect whose body runs statements and then fails, if it is to."""

    def blocking(tx: Any, *, title: str) -> str:
        for each in statements:
            tx.execute(each)
        if error is not None:
            raise error
        return title

    async def awaiting(tx: Any, *, title: str) -> str:
        for each in statements:
            await tx.execute(each)
        if error is not None:
            raise error
        return title

    return subject.effect(awaiting if subject.colour == ASYNC else blocking, provider=Provider.transactional())


def seen(subject: Wired) -> Any:
    """Read what the next user of the connection finds."""

    def look() -> Script[Any]:
        (row,) = yield Ddl(f"select {SEEN}, pg_backend_pid() as session")
        return dict(row)

    store = subject.cf.desk.store if subject.colour != ASYNC else subject.cf.store
    return subject.settle(store.read(look))


@contextmanager
def another_role(postgres_database: Database) -> Iterator[str]:
    """Make a role that may settle an operation, and is another than the one that is connected."""
    name = f"other_{postgres_database.name}"
    postgres_database.execute(f"create role {name}")
    postgres_database.execute(f"grant all on all tables in schema public to {name}")
    yield name
    postgres_database.execute(f"drop owned by {name}")
    postgres_database.execute(f"drop role {name}")


@pytest.fixture
def role(postgres_database: Database) -> Iterator[str]:
    with another_role(postgres_database) as name:
        yield name


@pytest.fixture
def narrow(postgres_database: Database, colour: str, tmp_path: Path) -> Iterator[Wired]:
    """A subject with one connection."""
    made = wired(postgres_database.url, colour, tmp_path)
    made.cf = made.open(connections=1)
    yield made
    made.close()


def test_nothing_is_left_and_the_connection_is_kept(narrow: Wired, role: str) -> None:
    before = seen(narrow)
    for number in range(8):  # often enough for psycopg to prepare what it executes
        book = transactional(narrow, *(each.format(role=role) for each in BODY))
        assert narrow.perform(book, request_id=f"r-{number}", title="a").value == "a"
        assert seen(narrow) == before


def test_nothing_is_left_of_a_body_that_failed(narrow: Wired, role: str) -> None:
    before = seen(narrow)
    book = transactional(narrow, *(each.format(role=role) for each in BODY), error=LookupError("no seat"))
    with pytest.raises(LookupError):
        narrow.perform(book, title="a")
    assert seen(narrow) == before


def test_a_connection_whose_commit_was_refused_is_dropped(narrow: Wired, postgres_database: Database) -> None:
    postgres_database.execute("create table seat (n bigint primary key deferrable initially deferred)")
    try:
        before = seen(narrow)
        book = transactional(narrow, "select pg_advisory_lock(4711)", "insert into seat values (1), (1)")
        with pytest.raises(ConstraintViolated):
            narrow.perform(book, title="a")
        after = seen(narrow)
        assert after.pop("session") != before.pop("session")
        assert after == before
    finally:
        postgres_database.execute("drop table seat")


def test_deferred_triggers_see_what_the_body_set(narrow: Wired, postgres_database: Database) -> None:
    for each in (
        "create table seat (n bigint, tenant text)",
        """create function note_tenant() returns trigger language plpgsql as
           $$ begin update seat set tenant = current_setting('app.tenant'); return null; end $$""",
        """create constraint trigger noting after insert on seat deferrable initially deferred
           for each row execute function note_tenant()""",
    ):
        postgres_database.execute(each)
    try:
        settings = ("select set_config('app.tenant', 'team-a', false)", "insert into seat values (1)")
        narrow.perform(transactional(narrow, *settings), title="a")
        assert postgres_database.execute("select tenant from seat") == [("team-a",)]
    finally:
        postgres_database.execute("drop table seat; drop function note_tenant")


def test_what_is_cancelled_behind_the_commit_is_looked_up(narrow: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was the commit or what comes behind it, the answer is the truth."""
    monkeypatch.setattr(postgres_open, "_CLEAN", "set statement_timeout = 50; select pg_sleep(10)")
    narrow.forget_connections()
    book = transactional(narrow, "select 1")
    with suppress(CommitUnknown):  # told as unknown, and answered from the receipt when it is asked again
        assert narrow.perform(book, title="a").value == "a"
    assert narrow.perform(book, title="a").value == "a"
    assert len(narrow.rows("operation")) == 1


# --- a default of the administrator's ---------------------------------------------------------------------------------


def test_a_default_of_reading_only_is_respected_until_it_is_changed(
    fresh_database: Database, colour: str, tmp_path: Path
) -> None:
    """It is no error of the effect's: nothing was sent, and what was recorded can be read."""
    subject = wired(fresh_database.url, colour, tmp_path)
    create = subject.ticket()
    first = subject.perform(create, title="a")
    fresh_database.execute(f"alter database {fresh_database.name} set default_transaction_read_only to 'on'")
    subject.forget_connections()
    with pytest.raises(RightsMissing, match="default_transaction_read_only") as caught:
        subject.perform(create, request_id="r-2", title="b")
    assert (caught.value.retry, len(subject.sent)) == (Retry.NEVER, 1)
    key = subject.operation["operation_id"]
    assert subject.settle(subject.cf.operations.get(key, tenant="team-a")).receipt.value == first.value
    with psycopg.connect(fresh_database.url) as other:
        other.execute("set transaction read write")
        other.execute(f"alter database {fresh_database.name} reset default_transaction_read_only")
    assert subject.perform(create, request_id="r-2", title="b").value["id"] == 2
    subject.close()


def test_a_url_that_says_otherwise_overrides_the_default(fresh_database: Database, tmp_path: Path) -> None:
    fresh_database.execute(f"alter database {fresh_database.name} set default_transaction_read_only to 'on'")
    subject = wired(f"{fresh_database.url}?options=-cdefault_transaction_read_only%3Doff", "sync", tmp_path)
    assert subject.perform(subject.ticket(), title="a").value["id"] == 1
    subject.close()


def test_no_schema_is_made_where_the_default_is_to_read(fresh_database: Database) -> None:
    fresh_database.execute("drop schema public cascade")
    fresh_database.execute("create schema public")
    fresh_database.execute(f"alter database {fresh_database.name} set default_transaction_read_only to 'on'")
    with pytest.raises(RightsMissing, match="default_transaction_read_only"):
        Counterfoil.open(fresh_database.url)
