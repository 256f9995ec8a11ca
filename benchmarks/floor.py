"""What a careful person would write by hand: the least that keeps an effect from being sent twice, and nothing more."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

SCHEMA = """
create table if not exists op (tenant text, id text, state text, payload blob, receipt blob, primary key (tenant, id))
without rowid
"""


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute(SCHEMA)
    return connection


class Floor:
    """One connection: an intent, the effect, the receipt; two commits."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path)

    def perform(self, key: str) -> None:
        payload = json.dumps({"priority": 2, "title": "Printer on fire"}, sort_keys=True)
        new = "insert into op values (?, ?, 'in_flight', ?, null) on conflict do nothing returning id"
        assert self.connection.execute(new, ("t", key, payload)).fetchall()
        receipt = json.dumps({"id": 1, "title": "Printer on fire"})
        done = "update op set state = 'succeeded', receipt = ? where tenant = ? and id = ? and state = 'in_flight'"
        self.connection.execute(done, (receipt, "t", key))

    def read(self, key: str) -> None:
        found = self.connection.execute("select state, receipt from op where tenant = ? and id = ?", ("t", key))
        assert found.fetchone()
