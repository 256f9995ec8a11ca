"""`db status` tells what bears on a database's promises: its mode, where it lies, and whether clocks agree."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from counterfoil import Counterfoil
from counterfoil.clock import SystemClock
from counterfoil.testing.clock import FakeClock
from tests.cli.conftest import Line, ticket

AN_HOUR_MS = 3_600_000


@pytest.fixture
def agent(tmp_path: Path) -> Line:
    return Line(f"sqlite:///{tmp_path}/agent.db")


def test_the_files_mode_place_and_size_are_told(agent: Line) -> None:
    Counterfoil.open(agent.url).close()
    file = agent.json("db status")["file"]
    assert (file["write_ahead_log"], file["network_file_system"], file["log_bytes"]) == (True, False, 0)
    assert file["bytes"] == file["pages"] * file["page_size"] > 0
    assert f"{file['bytes']} bytes" in agent("db status").stdout


def test_the_log_of_a_database_in_use_is_counted_and_nothing_is_left_behind(agent: Line, tmp_path: Path) -> None:
    with Counterfoil.open(agent.url) as cf:
        cf.perform(ticket, tenant="t", request_id="r", title="done")
        before = sorted(path.name for path in tmp_path.iterdir())
        assert agent.json("db status")["file"]["log_bytes"] == (tmp_path / "agent.db-wal").stat().st_size > 0
        assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_file_without_a_write_ahead_log_is_told(agent: Line, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "agent.db")) as connection:
        connection.execute("create table business (id integer)")
    assert "rollback journal" in agent("db status", exit_code=8).stdout


def test_clocks_that_agree_are_told(agent: Line) -> None:
    with Counterfoil.open(agent.url) as cf:
        cf.perform(ticket, tenant="t", request_id="r", title="done")
    clock = agent.json("db status")["clock"]
    assert (clock["rows_ahead_ms"], abs(clock["host_ahead_ms"]) < AN_HOUR_MS) == (0, True)
    assert "agrees" in agent("db status").stdout


def test_rows_from_the_future_are_told(agent: Line) -> None:
    later = FakeClock(SystemClock().now_ms() + AN_HOUR_MS)
    with Counterfoil.open(agent.url, clock=later) as cf:
        cf.perform(ticket, tenant="t", request_id="r", title="done")
    clock = agent.json("db status")["clock"]
    assert AN_HOUR_MS / 2 < clock["rows_ahead_ms"] <= AN_HOUR_MS
    assert clock["newest_row_at"] == later.now_ms()
    assert "in the future" in agent("db status").stdout
