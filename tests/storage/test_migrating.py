"""The schema is made and upgraded inside a transaction of the caller's own, and counts once that commits."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import counterfoil
from counterfoil import Counterfoil
from counterfoil.drivers.probes import Point
from counterfoil.drivers.urls import parse_url
from counterfoil.errors import ForeignTransaction, SchemaAltered
from counterfoil.storage import migrator
from tests.storage import opener
from tests.storage.conftest import Place

INITIAL = tuple(f"{each.number:04} {each.name}" for each in migrator.migrations("sqlite"))
SOURCE = str(Path(counterfoil.__file__).parents[1])


def opened_url(place: Place) -> str:
    return f"postgresql+psycopg{place.url.removeprefix('postgresql')}" if place.database else place.url


@contextmanager
def driver(place: Place) -> Iterator[Any]:
    """A driver's connection in the state in which it begins transactions by itself."""
    connection: Any = psycopg.connect(place.url) if place.database else sqlite3.connect(parse_url(place.url).path)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def alchemy(place: Place, kind: Callable[[Any], Any]) -> Iterator[Any]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(opened_url(place))
    with kind(engine) as transaction:
        yield transaction
    engine.dispose()


def session(engine: Any) -> Any:
    from sqlalchemy.orm import Session

    return Session(engine)


KINDS: dict[str, Callable[[Place], Any]] = {
    "driver": driver,
    "connection": lambda place: alchemy(place, lambda engine: engine.connect()),
    "session": lambda place: alchemy(place, session),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Place], Any]:
    return KINDS[request.param]


def writes_nothing(place: Place) -> bool:
    points: list[Point] = []
    Counterfoil.open(place.url, probe=lambda point, _name: points.append(point)).close()
    return Point.BEFORE_COMMIT not in points


def test_it_commits_with_the_callers_transaction(place: Place, kind: Callable[[Place], Any]) -> None:
    with kind(place) as transaction:
        assert counterfoil.migrate(transaction) == INITIAL
        assert counterfoil.migrate(transaction) == ()
        transaction.commit()
    assert place.applied() == list(range(1, len(INITIAL) + 1))
    assert writes_nothing(place)


def test_it_rolls_back_with_the_callers_transaction(place: Place, kind: Callable[[Place], Any]) -> None:
    with kind(place) as transaction:
        counterfoil.migrate(transaction)
        transaction.rollback()
    assert place.ours() == []


def test_rows_of_the_same_transaction_stay_when_it_is_refused(place: Place) -> None:
    Counterfoil.open(place.url).close()
    place.execute("alter table counterfoil_case add column note text")
    place.execute("create table seat (id integer)")
    with driver(place) as connection:
        connection.execute("insert into seat values (1)")
        with pytest.raises(SchemaAltered, match="in counterfoil_case"):
            counterfoil.migrate(connection)
        connection.execute("insert into seat values (2)")
        connection.commit()
    assert place.execute("select id from seat order by 1") == [(1,), (2,)]


def test_it_upgrades_as_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    Counterfoil.open(place.url).close()
    for name, value in opener.newer(place.dialect).items():
        monkeypatch.setattr(migrator, name, value)
    with driver(place) as connection:
        assert counterfoil.migrate(connection) == (f"{len(INITIAL) + 1:04} added",)
        connection.commit()
    assert writes_nothing(place)


def test_without_an_open_transaction_it_is_refused(place: Place) -> None:
    with driver(place) as connection:
        if place.database:
            connection.autocommit = True
        else:
            connection.isolation_level = None
        with pytest.raises(ForeignTransaction, match="no transaction open"):
            counterfoil.migrate(connection)
    assert place.ours() == []


def test_another_thing_is_refused_by_name() -> None:
    with pytest.raises(ForeignTransaction, match=r"not builtins\.str.*counterfoil db sql"):
        counterfoil.migrate("postgresql://somewhere/agents")


DJANGO = """
import json, sys
import django
from django.conf import settings
settings.configure(DATABASES={"default": json.loads(sys.argv[1])})
django.setup()
from django.db import connection, transaction
import counterfoil
with transaction.atomic():
    assert [*counterfoil.migrate(connection)] == json.loads(sys.argv[2])
try:
    with transaction.atomic():
        assert counterfoil.migrate(connection) == ()
        raise LookupError
except LookupError:
    pass
"""


@pytest.mark.slow
def test_django_hands_over_its_connection(place: Place) -> None:
    pytest.importorskip("django")
    url: Any = parse_url(place.url)
    options = {"ENGINE": "django.db.backends.sqlite3"}
    if place.database:
        info = conninfo_to_dict(place.url)
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
        options = {
            "ENGINE": "django.db.backends.postgresql",
            **{key: str(info.get(name, "")) for key, name in names.items()},
        }
    given = json.dumps({"NAME": url.path, **options})
    subprocess.run(
        [sys.executable, "-c", DJANGO, given, json.dumps(INITIAL)], check=True, env={**os.environ, "PYTHONPATH": SOURCE}
    )
    assert writes_nothing(place)
