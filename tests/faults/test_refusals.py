"""A server that gives no connection, or not the one that is wanted: its reason reaches the caller, no secret does."""

import re
import time
import traceback
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from counterfoil import Counterfoil, NotSent
from counterfoil.drivers import postgres_open
from counterfoil.errors import EffectNotSent, InvalidUrl, PoolExhausted, Retry, StoreUnavailable
from tests.conformance.subject import SYNC, Background, Gate
from tests.faults.subject import Wired, wired
from tests.postgres.databases import Database
from tests.postgres.servers import PrivateServer

SECRET = "hunter-22"


def url_of(database: Database, netloc: str, name: str) -> str:
    """Return a URL with this database's user, place and name where they are asked for."""
    user, _, place = database.url.removeprefix("postgresql://").partition("/")[0].rpartition("@")
    return f"postgresql://{netloc}/{name}".format(user=user, place=place, name=database.name)


@pytest.mark.parametrize(
    ("netloc", "name", "said", "retry"),
    [
        (f"postgres:{SECRET}@{{place}}", "{name}", 'password authentication failed for user "postgres"', Retry.NEVER),
        (f"nobody:{SECRET}@{{place}}", "{name}", 'password authentication failed for user "nobody"', Retry.NEVER),
        ("postgres@{place}", "{name}?passfile=/nowhere", "no password supplied", Retry.NEVER),
        ("{user}@{place}", "missing", 'database "missing" does not exist', Retry.NEVER),
        ("{user}@{place}", "{name}?options=-cnonsense%3D1", 'configuration parameter "nonsense"', Retry.NEVER),
        (f"postgres:{SECRET}@no.such.host.invalid", "{name}", "no.such.host.invalid", Retry.SAFE),
        (f"postgres:{SECRET}@127.0.0.1:1", "{name}", "Connection refused", Retry.SAFE),
        ("{user}@{place}", f"{{name}}?passfile=/nowhere&sslpassword={SECRET}&sslmode=require", "SSL", Retry.NEVER),
    ],
)  # fmt: skip
def test_what_keeps_it_from_opening_is_told_without_the_password(
    postgres_database: Database, netloc: str, name: str, said: str, retry: Retry
) -> None:
    url = url_of(postgres_database, netloc, name)
    with pytest.raises(StoreUnavailable) as caught:
        Counterfoil.open(url)
    assert said in str(caught.value)
    assert "Nothing was written" in str(caught.value)
    for secret in (SECRET, f":{urlsplit(postgres_database.url).password or SECRET}@"):
        assert secret not in str(caught.value)
    assert caught.value.retry is retry
    assert not re.search(r"[\n\t]|  |\?\.|\.\.", str(caught.value)), "one line, with nothing ragged in it"


@pytest.mark.parametrize(
    ("netloc", "name", "said"),
    [
        (f"postgres:{SECRET}%zz@{{place}}", "{name}", "%25"),
        ("{user}@{place}", "{name}?nonsense=1", "no option nonsense"),
        ("{user}@{place}", "{name}?sslmode=hunter", "option sslmode"),
        ("{user}@{place}", "{name}?target_session_attrs=hunter&application_name=x", "option target_session_attrs"),
        ("{user}@{place}", "{name}?connect_timeout=hunter", "option connect_timeout"),
        ("{user}@{place}", "{name}?port=hunter", "option port"),
        (f"127.0.0.1:{SECRET}", "{name}", "no port"),
        ("{user}@127.0.0.1:99999", "{name}", "no port"),
        ("{user}@[::1]:0", "{name}", "no port"),
        ("{user}@{place},127.0.0.1:hunter", "{name}", "no port"),
        (f"postgres:1/{SECRET}?{SECRET}@{{place}}", "{name}", "libpq does not understand it"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_url_is_one_and_what_is_wrong_is_not_quoted(
    postgres_database: Database, netloc: str, name: str, said: str
) -> None:
    with pytest.raises(InvalidUrl) as caught:
        Counterfoil.open(url_of(postgres_database, netloc, name))
    assert said in str(caught.value)
    assert "hunter" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.retry is Retry.NEVER


@pytest.mark.parametrize("password", ["p", "e", "postgres", "FATAL"])
def test_a_short_password_spoils_no_word_of_a_message(postgres_database: Database, password: str) -> None:
    place = postgres_database.url.rpartition("@")[2]
    with pytest.raises(StoreUnavailable) as caught:
        Counterfoil.open(f"postgresql://nobody:{password}@{place}")
    assert 'FATAL: password authentication failed for user "nobody"' in str(caught.value)
    assert "***" not in str(caught.value)
    assert f":{password}@" not in str(caught.value)


def test_a_database_that_goes_away_for_good_is_told_at_once(
    own_server: PrivateServer, colour: str, tmp_path: Path
) -> None:
    subject = wired(own_server.create_database("leaving"), colour, tmp_path)
    create = subject.ticket()
    own_server.drop_database("leaving")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not exist") as caught:
        subject.perform(create, title="a")
    assert (caught.value.retry, len(subject.sent)) == (Retry.NEVER, 0)
    assert time.monotonic() - began < postgres_open.WAIT_S / 2
    subject.close()


@pytest.mark.parametrize("password", ["a/b", "a@b/c", "a?b", "a#b"])
def test_a_password_that_is_not_escaped_is_not_taken_for_a_part_of_the_name(password: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        Counterfoil.open(f"postgresql://postgres:{password}@127.0.0.1/name")
    assert password not in str(caught.value)


def test_a_password_with_every_character_is_taken_when_it_is_escaped(postgres_database: Database) -> None:
    odd = "a/b@c?d#e%f:g h&i=j+k"
    postgres_database.execute("create role odd superuser login password 'a/b@c?d#e%f:g h&i=j+k'")
    try:
        place = postgres_database.url.rpartition("@")[2]
        with Counterfoil.open(f"postgresql://odd:{quote(odd, safe='')}@{place}") as cf:
            assert cf.desk.store.path == f"postgresql://odd@{place}"
    finally:
        postgres_database.execute("drop role odd")


def test_another_encoding_is_refused(own_server: PrivateServer) -> None:
    own_server.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
    try:
        with pytest.raises(StoreUnavailable, match=r"LATIN1.*UTF8") as caught:
            Counterfoil.open(own_server.url("latin"))
        assert caught.value.retry is Retry.NEVER
    finally:
        own_server.drop_database("latin")


@pytest.mark.usefixtures("impatient")
def test_all_connections_in_use(subject: Wired, wired_url: str) -> None:
    gate = Gate()
    narrow = subject.open(connections=1)
    create = subject.ticket(gate)
    worker = Background(lambda: subject.perform(create, cf=narrow, title="a"))
    gate.wait()
    gate.open()  # no effect holds a connection: this one did not either
    assert worker.result().value["id"] == 1
    with subject.holding(narrow), pytest.raises(PoolExhausted) as caught:
        subject.perform(create, cf=narrow, request_id="r-2", title="b")
    assert "All 1 connections" in str(caught.value)
    assert (caught.value.retry, len(subject.sent)) == (Retry.SAFE, 1)
    assert subject.perform(create, cf=narrow, request_id="r-2", title="b").value["id"] == 2


def test_whoever_waits_longest_gets_the_next_connection(subject: Wired) -> None:
    narrow = subject.open(connections=1)
    create = subject.ticket()
    ids = count()
    done = subject.at_once(lambda: subject.perform(create, cf=narrow, request_id=f"r-{next(ids)}", title="a"), 24)
    assert [each for each in done if isinstance(each, BaseException)] == []
    assert (len(subject.sent), subject.lent(narrow)) == (24, 0)


@pytest.fixture
def scarce_url(postgres_database: Database) -> Iterator[str]:
    """The URL of a role that may have one connection."""
    name = f"scarce_{postgres_database.name}"
    postgres_database.execute(f"create role {name} login password 'p' connection limit 1")
    for things in ("tables", "sequences"):
        postgres_database.execute(f"grant all on all {things} in schema public to {name}")
    yield f"postgresql://{name}:p@{postgres_database.url.rpartition('@')[2]}"
    postgres_database.execute(f"drop owned by {name}")
    postgres_database.execute(f"drop role {name}")


@pytest.mark.usefixtures("impatient")
def test_a_server_that_has_no_connection_left(scarce_url: str, tmp_path: Path) -> None:
    subject = wired(scarce_url, SYNC, tmp_path)
    create = subject.ticket()
    subject.forget_connections()
    with psycopg.connect(scarce_url), pytest.raises(StoreUnavailable, match="too many connections for role") as caught:
        subject.perform(create, title="a")
    assert (caught.value.retry, len(subject.sent)) == (Retry.SAFE, 0)
    assert subject.perform(create, title="a").value["id"] == 1
    subject.close()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_stays_away(own_server: PrivateServer, own_url: str, colour: str, tmp_path: Path) -> None:
    subject = wired(own_url, colour, tmp_path)
    create = subject.ticket()
    own_server.stop()
    with pytest.raises(StoreUnavailable, match="Connection refused"):
        subject.perform(create, title="a")
    own_server.start()
    assert subject.perform(create, title="a").value["id"] == 1
    assert len(subject.sent) == 1
    subject.close()


def test_a_server_that_comes_back(own_server: PrivateServer, own_url: str, colour: str, tmp_path: Path) -> None:
    """Refusing connections, then recovering from its crash: callers wait through both."""
    subject = wired(own_url, colour, tmp_path)
    create = subject.ticket()
    own_server.stop("immediate")
    callers = [Background(partial(subject.perform, create, request_id=f"r-{n}", title="a")) for n in range(3)]
    own_server.start()
    assert sorted(each.result().value["id"] for each in callers) == [1, 2, 3]
    subject.close()


def test_a_standby(own_server: PrivateServer, own_url: str, colour: str, tmp_path: Path) -> None:
    """What is promoted later is used again without opening anything anew."""
    subject = wired(own_url, colour, tmp_path)
    create = subject.ticket()
    first = subject.perform(create, title="a")
    own_server.stop()
    own_server.become_standby()
    own_server.start()
    with pytest.raises(StoreUnavailable, match=r"read-only.*target_session_attrs=read-write") as caught:
        subject.perform(create, request_id="r-2", title="b")
    assert (caught.value.retry, len(subject.sent)) == (Retry.SAFE, 1)
    key = subject.operation["operation_id"]
    assert subject.settle(subject.cf.operations.get(key, tenant="team-a")).receipt.value == first.value
    with pytest.raises(StoreUnavailable, match="read-only"):
        subject.settle(subject.cf.review.open(key, tenant="team-a"))
    own_server.execute("select pg_promote()")
    assert subject.perform(create, request_id="r-2", title="b").value["id"] == 2
    subject.close()


def test_a_schema_that_is_upgraded_under_prepared_statements(
    fresh_database: Database, colour: str, tmp_path: Path
) -> None:
    """Others work while an upgrade adds a column: their sessions have plans without it."""

    def end() -> None:
        raise NotSent

    subject = wired(fresh_database.url, colour, tmp_path)
    create, refuse = subject.ticket(), subject.ticket(end)

    def perform(name: str) -> None:
        subject.perform(create, request_id=f"a-{name}", title="a")
        with pytest.raises(EffectNotSent):
            subject.perform(refuse, request_id=f"b-{name}", title="a")

    for number in range(8):
        perform(str(number))
    fresh_database.execute("alter table counterfoil_operation add column later bigint")
    perform("after")
    assert len(subject.rows("operation")) == 18
    subject.close()
