"""The command line on PostgreSQL: what it says of a server, a database or a schema that is not as it must be."""

import json
import sys
from urllib.parse import urlsplit

import pytest

from counterfoil.errors import Exit
from counterfoil.extras import shown
from tests.cli.conftest import RESOLVE, Line
from tests.postgres.databases import Database
from tests.stores import tables

SECRET = "hunter-22"
VERBS = ("ops list", "ops show x", "find x", "explain x", "receipts show x", "review list", RESOLVE, "db status")


def at(database: Database, **parts: str) -> str:
    """Return a database's URL with another user, password, place or name."""
    url = urlsplit(database.url)
    user, password = parts.get("user", url.username or ""), parts.get("password", url.password or "")
    place = parts.get("place", f"{url.hostname}:{url.port}")
    return f"postgresql://{user}:{password}@{place}/{parts.get('name', database.name)}"


@pytest.mark.parametrize("verb", [*VERBS, "db upgrade", "db sql --missing"])
@pytest.mark.parametrize(
    "wrong", [{"password": SECRET}, {"place": "127.0.0.1:1", "password": SECRET}, {"name": "missing"}],
    ids=["password", "port", "database"],
)  # fmt: skip
def test_a_database_that_does_not_open_is_told_without_its_password(
    postgres_database: Database, wrong: dict[str, str], verb: str
) -> None:
    line = Line(at(postgres_database, **wrong))
    for result in (line(verb, exit_code=1), line(verb, "--json", exit_code=1)):
        assert result.stdout == ""
        assert "store-unavailable" in result.stderr
        assert urlsplit(postgres_database.url).hostname in result.stderr  # type: ignore[operator]
        for secret in (SECRET, urlsplit(postgres_database.url).password or SECRET):
            assert secret not in result.stderr


def test_what_is_shown_of_a_database_is_not_its_password(postgres_database: Database) -> None:
    line = Line(at(postgres_database))
    shown = "".join(line(verb).output for verb in ("db status", "db status --json", "db upgrade", "db sql"))
    assert f"@{urlsplit(postgres_database.url).hostname}" in shown
    assert str(urlsplit(postgres_database.url).password) not in shown


def test_a_database_without_our_tables_is_refused_and_can_be_given_them(fresh_database: Database) -> None:
    fresh_database.execute("drop schema public cascade")
    fresh_database.execute("create schema public")
    fresh_database.execute("create table booking (seat text)")
    line, before = Line(fresh_database.url), tables(fresh_database.url)
    for verb in ("ops list", "find x", "explain x", "review list", "review open x", RESOLVE):
        error = line.error(verb, exit_code=5)
        assert error["code"] == "schema-outdated"
        assert "holds no tables of Counterfoil. Nothing in it was changed." in error["message"]
    assert "check --url" in line("db status", exit_code=Exit.CHECK_FOUND).stdout
    assert "create table" in line("db sql --missing").stdout
    status = json.loads(line("db status --json", exit_code=Exit.CHECK_FOUND).stdout)
    assert (status["ours"], status["current"]) == (False, False)
    assert tables(fresh_database.url) == before
    assert len(status["missing"]) == len(line.json("db upgrade")["applied"])
    assert line.json("ops list") == []
    assert tables(fresh_database.url) > before


def test_an_altered_schema_is_found(fresh_database: Database) -> None:
    fresh_database.execute("drop index counterfoil_case_open")
    line = Line(fresh_database.url)
    assert "counterfoil_case_open" in line("db status", exit_code=Exit.CHECK_FOUND).stdout
    assert line.error("ops list", exit_code=5)["code"] == "schema-altered"


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("counterfoil.drivers.postgres")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    error = Line("postgresql://app@127.0.0.1:1/agent").error("ops list", exit_code=2)
    assert error["code"] == "missing-extra"
    assert error["message"].endswith(" -m pip install 'counterfoil[postgres]' 'psycopg[binary]'")
    assert shown(sys.executable) in error["message"]
