"""The command line on files: what it makes, what it leaves alone, and what it needs to be allowed."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from counterfoil.errors import Exit
from tests.cli.conftest import RESOLVE, Line, perform
from tests.stores import FILE, file_of, on_each

NOBODY = 65_534


def test_nothing_but_upgrade_makes_a_database(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    line = Line(f"sqlite:///{file}")
    for command in (
        "ops list",
        "find x",
        "explain x",
        "receipts show x",
        "review list",
        "db status",
        "db sql --missing",
    ):
        assert line.error(command, exit_code=1)["code"] == "store-unavailable"
    assert not file.exists()
    assert len(line.json("db upgrade")["applied"]) >= 1
    assert line.json("ops list") == []


def test_a_file_without_our_tables_is_refused_and_can_be_given_them(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    connection = sqlite3.connect(file)
    connection.execute("create table booking (seat text)")
    connection.close()
    line = Line(f"sqlite:///{file}")
    before = file.read_bytes()
    for command in ("ops list", "find x", "explain x", "review list", "review open x", RESOLVE):
        error = line.error(command, exit_code=5)
        assert error["code"] == "schema-outdated"
        assert "holds no tables of Counterfoil. Nothing in it was changed." in error["message"]
    assert "check --url" in line("db status", exit_code=Exit.CHECK_FOUND).stdout
    assert "create table" in line("db sql --missing").stdout
    status = json.loads(line("db status --json", exit_code=Exit.CHECK_FOUND).stdout)
    assert (file.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (before, ["theirs.db"])
    assert (status["ours"], status["current"]) == (False, False)
    assert len(status["missing"]) == len(line.json("db upgrade")["applied"])


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_looking_leaves_no_trace_on_anybodys_database(tmp_path: Path, mode: str) -> None:
    theirs = tmp_path / "theirs" / "booking.db"
    theirs.parent.mkdir()
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute(f"pragma journal_mode={mode}")
        connection.execute("create table booking (seat text)")
    before = theirs.read_bytes()
    Line(f"sqlite:///{theirs}")("db status", exit_code=Exit.CHECK_FOUND)
    with closing(sqlite3.connect(theirs)) as connection:  # somebody has it open
        connection.execute("select * from booking").fetchall()
        Line(f"sqlite:///{theirs}")("db status", exit_code=Exit.CHECK_FOUND)
    assert (theirs.read_bytes(), [each.name for each in theirs.parent.iterdir()]) == (before, ["booking.db"])


@on_each(FILE)
def test_a_closed_database_of_ours_is_looked_at_as_it_is(empty: Line) -> None:
    file = file_of(empty.url)
    perform(empty, "done", "done")
    before = file.read_bytes()
    assert [row["state"] for row in empty.json("ops list")] == ["succeeded"]
    assert empty.json("db status")["operations"]["succeeded"] == 1
    assert (file.read_bytes(), [each.name for each in file.parent.iterdir()]) == (before, [file.name])


@pytest.fixture
def unwritable(line: Line) -> Iterator[Path]:
    """Make the database's folder one that this user may read and not write; the superuser becomes nobody for a time."""
    folder = Path(mkdtemp())
    user = os.geteuid()
    with closing(sqlite3.connect(file_of(line.url))) as connection:
        connection.execute("vacuum into ?", [str(folder / "copy.db")])
    with closing(sqlite3.connect(folder / "copy.db")) as connection:
        connection.execute("pragma journal_mode=wal")
    folder.chmod(0o555)
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        rmtree(folder)


@on_each(FILE)
def test_a_database_in_a_folder_without_write_permission_can_be_looked_at(unwritable: Path) -> None:
    line = Line(f"sqlite:///{unwritable}/copy.db")
    assert len(line.json("ops list")) == 5
    assert line.json("review list")[0]["case_id"] == "case-1"
    assert line.json("db status")["current"]
    assert line.error(RESOLVE, exit_code=1)["code"] == "store-unavailable"


@on_each(FILE)
def test_a_log_that_only_a_writer_can_read_is_said(unwritable: Path) -> None:
    user = os.geteuid()
    os.seteuid(os.getuid())
    unwritable.chmod(0o755)
    (unwritable / "copy.db-wal").write_bytes(b"")
    unwritable.chmod(0o555)
    os.seteuid(user)
    error = Line(f"sqlite:///{unwritable}/copy.db").error("ops list", exit_code=1)
    assert error["code"] == "store-unavailable"
    assert "can be read only by who may write its folder" in error["message"]


def test_the_schemas_sql_makes_the_schema(tmp_path: Path) -> None:
    file = tmp_path / "by-hand.db"
    line = Line(f"sqlite:///{file}")
    text = line("db sql").stdout
    connection = sqlite3.connect(file)
    connection.executescript(text)
    connection.close()
    assert line.json("db status")["current"] is True
    assert "create table" not in line("db sql --missing").stdout
    assert line.json("db sql") == {"dialect": "sqlite", "sql": text}


@on_each(FILE)
def test_an_altered_schema_is_found(line: Line) -> None:
    connection = sqlite3.connect(file_of(line.url))
    connection.execute("drop index counterfoil_case_open")
    connection.close()
    assert "counterfoil_case_open" in line("db status", exit_code=Exit.CHECK_FOUND).stdout
    assert line.error("ops list", exit_code=5)["code"] == "schema-altered"
