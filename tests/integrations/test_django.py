"""Django's `atomic` on both databases: joined, used by an effect's body, and left as it was."""

import unittest
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from counterfoil import Counterfoil, Effect, Provider, Receipt, Statement, effect
from counterfoil.errors import ForeignTransaction, GuardedTransaction, NestedEffect

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        USE_TZ=True,
        INSTALLED_APPS=[],
    )

import django
from django import test as django_test
from django.db import IntegrityError, connection, connections, models, transaction
from django.db.utils import OperationalError

django.setup()

SQLITE, POSTGRES = "sqlite", "postgres"
ALIAS = "business"
TENANT = {"tenant": "team-a"}


class Booking(models.Model):  # type: ignore[misc]  # Django has no types
    """A row of the application's own."""

    seat = models.TextField(unique=True)

    class Meta:
        app_label = "integrations"
        db_table = "booking"

    def __str__(self) -> str:
        return str(self.seat)


class Full(Exception):
    """A business error."""


after_commit: list[str] = []


@effect("django.orm", key="{request_id}", provider=Provider.transactional())
def orm(tx: Any, *, seat: str) -> Any:
    made = Booking.objects.using(ALIAS).create(seat=seat)
    transaction.on_commit(lambda: after_commit.append(seat), using=ALIAS)
    if seat == "full":
        raise Full
    return {"seat": made.seat, "all": sorted(Booking.objects.using(ALIAS).values_list("seat", flat=True))}


@effect("django.statement", key="{request_id}", provider=Provider.one_statement())
def statement(call: Any, *, seat: str) -> Statement[Any]:
    return Statement("insert into booking (seat) values (:seat) returning seat", seat=seat)


@effect("django.text", key="{request_id}", provider=Provider.transactional())
def by_text(tx: Any, *, sql: str) -> Any:
    return [list(row) for row in tx.execute(sql).fetchall()]


@effect("django.changing", key="{request_id}", provider=Provider.one_statement())
def changing(call: Any) -> Statement[Any]:
    return Statement("update booking set seat = seat || '!' returning seat")


@effect("django.remote", key="{request_id}")
def remote(call: Any) -> Any:
    return {}


@pytest.fixture(params=[SQLITE, POSTGRES])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if dialect == POSTGRES:
        return str(request.getfixturevalue("postgres_database").url)
    return f"sqlite:///{tmp_path}/app.db"


def database_settings(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path.removeprefix("/")}
    named = {"NAME": parts.path[1:], "HOST": parts.hostname, "PORT": parts.port}
    return {"ENGINE": "django.db.backends.postgresql", "USER": parts.username, "PASSWORD": parts.password, **named}


@pytest.fixture
def django_connection(url: str) -> Iterator[Any]:
    """Django's connection to the business database, known by an alias as in an application's settings."""
    connections.settings[ALIAS] = connections.configure_settings({"default": {}, ALIAS: database_settings(url)})[ALIAS]
    made = connections[ALIAS]
    with made.schema_editor() as editor:
        editor.create_model(Booking)
    after_commit.clear()
    yield made
    made.close()
    del connections[ALIAS]
    del connections.settings[ALIAS]


@pytest.fixture
def cf(url: str, django_connection: Any) -> Iterator[Counterfoil]:
    with Counterfoil.open(url, wait="0s") as opened:
        yield opened


def seats() -> list[str]:
    return sorted(Booking.objects.using(ALIAS).values_list("seat", flat=True))


def operations(cf: Counterfoil) -> int:
    return len(cf.operations.list(tenant="team-a").items)


def perform(cf: Counterfoil, made: Effect[Any] = orm, /, **given: Any) -> Receipt[Any]:
    done: Receipt[Any] = cf.join(connections[ALIAS]).perform(made, **{**TENANT, "request_id": "r-1", **given})
    return done


class RolledBack(Exception):
    """What a test raises to roll back."""


@pytest.mark.parametrize("form", [orm, statement])
@pytest.mark.parametrize("kept", [True, False])
def test_it_shares_the_fate_of_the_block(cf: Counterfoil, form: Effect[Any], *, kept: bool) -> None:
    with suppress(RolledBack), transaction.atomic(using=ALIAS):
        Booking.objects.using(ALIAS).create(seat="own")
        first, again = perform(cf, form, seat="12a"), perform(cf, form, seat="12a")
        assert (first.value, first.already_happened, again.already_happened) == (again.value, False, True)
        if not kept:
            raise RolledBack
    assert (seats(), operations(cf)) == ((["12a", "own"], 1) if kept else ([], 0))
    assert after_commit == (["12a"] if kept and form is orm else [])


def test_a_failing_body_takes_back_its_own_part_only(cf: Counterfoil) -> None:
    with transaction.atomic(using=ALIAS):
        Booking.objects.using(ALIAS).create(seat="own")
        with pytest.raises(Full):
            perform(cf, seat="full")
        assert perform(cf, request_id="r-2", seat="12a").value["all"] == ["12a", "own"]
    assert (seats(), operations(cf), after_commit) == (["12a", "own"], 1, ["12a"])


@pytest.mark.parametrize("form", [orm, statement])
def test_the_databases_refusal_is_djangos_error_and_the_block_goes_on(cf: Counterfoil, form: Effect[Any]) -> None:
    with transaction.atomic(using=ALIAS):
        Booking.objects.using(ALIAS).create(seat="own")
        with pytest.raises(IntegrityError):
            perform(cf, form, seat="own")
        Booking.objects.using(ALIAS).create(seat="later")
    assert (seats(), operations(cf)) == (["later", "own"], 0)


def test_blocks_of_the_application_stay_its_own(cf: Counterfoil) -> None:
    with transaction.atomic(using=ALIAS):
        perform(cf, request_id="r-1", seat="kept")
        with suppress(RolledBack), transaction.atomic(using=ALIAS):
            perform(cf, request_id="r-2", seat="undone")
            raise RolledBack
        perform(cf, request_id="r-3", seat="after")
    assert (seats(), operations(cf), after_commit) == (["after", "kept"], 2, ["kept", "after"])


def test_a_text_for_the_driver_is_taken_as_everywhere_else(cf: Counterfoil) -> None:
    sql = "insert into booking (seat) values ('12a') returning seat"
    with transaction.atomic(using=ALIAS):
        assert perform(cf, by_text, sql=sql).value == [["12a"]]
    with pytest.raises(GuardedTransaction), transaction.atomic(using=ALIAS):
        perform(cf, by_text, request_id="r-2", sql="commit")
    assert seats() == ["12a"]


def test_settings_of_the_connection_stay(cf: Counterfoil, django_connection: Any) -> None:
    before = (django_connection.autocommit, django_connection.isolation_level if dialect_of(cf) == POSTGRES else None)
    with transaction.atomic(using=ALIAS):
        perform(cf, seat="12a")
        with django_connection.cursor() as cursor:
            cursor.execute("select seat from booking where seat = %s", ["12a"])
            assert cursor.fetchall() == [("12a",)]
    after = (django_connection.autocommit, django_connection.isolation_level if dialect_of(cf) == POSTGRES else None)
    assert before == after


def dialect_of(cf: Counterfoil) -> str:
    return cf.desk.store.dialect


def test_a_serialization_failure_can_be_handled_as_djangos(cf: Counterfoil, dialect: str, request: Any) -> None:
    if dialect == SQLITE:
        return
    database = request.getfixturevalue("postgres_database")
    Booking.objects.using(ALIAS).create(seat="12a")
    with transaction.atomic(using=ALIAS):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
        seats()
        database.execute("update booking set seat = '12b'")
        with pytest.raises(OperationalError) as caught:
            perform(cf, changing)
    assert getattr(caught.value.__cause__, "sqlstate", None) == "40001"
    with transaction.atomic(using=ALIAS):
        assert perform(cf, changing).value == {"seat": "12b!"}


# --- what cannot be joined -------------------------------------------------------------------------------------------


def test_no_block(cf: Counterfoil) -> None:
    with pytest.raises(ForeignTransaction, match=r"transaction\.atomic"):
        perform(cf, seat="12a")
    assert seats() == []


def test_a_block_that_will_be_rolled_back(cf: Counterfoil) -> None:
    with transaction.atomic(using=ALIAS):
        transaction.set_rollback(True, using=ALIAS)
        with pytest.raises(ForeignTransaction, match="broken"):
            perform(cf, seat="12a")


def test_the_connection_of_another_database(cf: Counterfoil) -> None:
    with transaction.atomic(), pytest.raises(ForeignTransaction):
        cf.join(connection)  # the default one


def test_something_else_of_djangos(cf: Counterfoil) -> None:
    with pytest.raises(ForeignTransaction, match="no connection of Django's"):
        cf.join(Booking(seat="x"))


# --- what is called inside a block without joining it ----------------------------------------------------------------


@pytest.mark.parametrize("made", [remote, by_text])
def test_a_call_inside_a_block_is_refused_at_once(cf: Counterfoil, made: Effect[Any]) -> None:
    given = {"sql": "select 1"} if made is by_text else {}
    with transaction.atomic(using=ALIAS), pytest.raises(NestedEffect, match=r"cf\.join\(connection\)"):
        cf.perform(made, **TENANT, request_id="r-1", **given)
    assert operations(cf) == 0
    assert not cf.perform(made, **TENANT, request_id="r-1", **given).already_happened


def test_a_block_on_another_database_is_nobodys_business(cf: Counterfoil) -> None:
    with transaction.atomic():
        assert not cf.perform(remote, **TENANT, request_id="r-1").already_happened


def test_a_block_of_djangos_own_test_case_does_not_count(cf: Counterfoil) -> None:
    class Case(django_test.TestCase):  # type: ignore[misc]  # Django has no types
        databases = {ALIAS}  # noqa: RUF012 - Django's way

        def runTest(self) -> None:  # noqa: N802 - unittest's name
            assert connections[ALIAS].in_atomic_block
            assert not cf.perform(remote, **TENANT, request_id="r-1").already_happened
            with transaction.atomic(using=ALIAS), pytest.raises(NestedEffect):
                cf.perform(remote, **TENANT, request_id="r-2")

    result = unittest.TestResult()
    unittest.TestSuite([Case()]).run(result)
    assert (result.errors, result.failures, result.testsRun) == ([], [], 1)
