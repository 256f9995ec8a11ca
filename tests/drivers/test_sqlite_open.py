"""What cannot be a database is refused at once, with our error; what can be is in WAL with full durability."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from counterfoil.drivers import sqlite_open
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.sqlite_open import connect, open_file
from counterfoil.drivers.sqlstate import from_sqlite
from counterfoil.drivers.urls import SqliteUrl
from counterfoil.errors import Busy, ConstraintViolated, NetworkFilesystem, StoreUnavailable


def url(path: Path) -> SqliteUrl:
    return SqliteUrl(str(path))


def test_a_connection_is_in_wal_with_full_durability(tmp_path: Path) -> None:
    open_file(url(tmp_path / "t.db"))
    with closing(connect(url(tmp_path / "t.db"))) as connection:
        settings = {
            name: connection.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        }
        assert settings == {"journal_mode": "wal", "synchronous": 2}
        assert connection.execute("pragma foreign_keys").fetchone() == (1,)


def test_a_file_in_rollback_journal_mode_is_taken_over_with_its_rows(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("create table mine (n)")
        connection.execute("insert into mine values (1)")
        connection.commit()
    SqliteStore(url(tmp_path / "t.db")).close()
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert connection.execute("select n from mine").fetchall() == [(1,)]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="folder does not exist"):
        open_file(url(tmp_path / "nowhere" / "t.db"))


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="SQLITE_CANTOPEN"):
        open_file(url(tmp_path))


def test_another_file_is_no_database_and_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("a letter, not a database, and longer than a header " * 20, "utf-8")
    before = (tmp_path / "t.db").read_bytes()
    with pytest.raises(StoreUnavailable, match="SQLITE_NOTADB"):
        open_file(url(tmp_path / "t.db"))
    assert (tmp_path / "t.db").read_bytes() == before


def test_a_network_file_system_is_refused_before_the_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise NetworkFilesystem(str(path))

    monkeypatch.setattr(sqlite_open, "refuse_network", refuse)
    with pytest.raises(NetworkFilesystem):
        SqliteStore(url(tmp_path / "t.db"))
    assert list(tmp_path.iterdir()) == []
    SqliteStore(url(tmp_path / "t.db"), network_filesystem=True).close()


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreUnavailable, match="too old"):
        open_file(url(tmp_path / "t.db"))


@pytest.mark.parametrize("lock", ["begin", "begin immediate", "begin exclusive"])
def test_a_file_that_others_keep_locked_is_told_after_the_time_out(tmp_path: Path, lock: str) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        other.execute("create table mine (n)")
        other.execute(lock)
        other.execute("select n from mine").fetchall()
        began = time.monotonic()
        with pytest.raises(Busy):
            open_file(url(tmp_path / "t.db"), busy_timeout=50)
        assert time.monotonic() - began < 2


def test_a_file_system_that_cannot_do_wal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SQLite answers with the old mode and raises nothing.
    monkeypatch.setattr(sqlite_open, "connect", lambda *_args, **_options: sqlite3.connect(":memory:"))
    with pytest.raises(StoreUnavailable, match="write-ahead log"):
        open_file(url(tmp_path / "t.db"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_BUSY, Busy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Busy),
        (sqlite3.SQLITE_LOCKED, Busy),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, ConstraintViolated),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_READONLY, StoreUnavailable),
    ],
)
def test_errors_are_told_apart_by_code(code: int, error: type[Exception]) -> None:
    raised = sqlite3.OperationalError("words that nobody reads")
    raised.sqlite_errorcode = code
    raised.sqlite_errorname = "NAME"
    assert type(from_sqlite(raised, "t.db")) is error
