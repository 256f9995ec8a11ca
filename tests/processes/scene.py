"""One database, one provider in another process, and the workers on them."""

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg

from counterfoil.storage.script import Ddl, Script
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests import children
from tests.processes.worker import Orders, arguments, opened, perform, tickets
from tests.stores import is_postgres

SESSIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
  and backend_start > (select backend_start from pg_stat_activity where pid = pg_backend_pid())
"""
ROOT = Path(__file__).parents[2]
KEYED = ("keyed", "both")


@dataclass
class Scene:
    """One database, one provider, and the workers on them."""

    url: str
    provider: CountingProvider

    def order(self, kind: str, **orders: Any) -> Orders:
        # An opaque provider and a merely queryable one ignore the key that they are sent.
        self.provider.configure(Settings(keys=kind in KEYED, lookup=kind in {"queryable", "both"}))
        return Orders(database=self.url, provider=self.provider.url, kind=kind, **orders)

    def start(self, orders: Orders) -> "subprocess.Popen[str]":
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return children.start(
            arguments(orders), env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
        )

    def later(self, kind: str, seconds: int = 60) -> dict[str, Any]:
        """Perform the operation in this process, at a time at which the first worker's claim is over."""
        clock = FakeClock(time.time_ns() // 1_000_000 + seconds * 1000)
        with opened(self.url, self.provider.url, clock=clock, wait="0s") as cf:
            return perform(cf, tickets(kind), "r-1")

    def rows(self, table: str) -> list[dict[str, Any]]:
        def script() -> Script[Any]:
            return (yield Ddl(f"select * from counterfoil_{table}"))  # noqa: S608 - a test's own table name

        with opened(self.url, self.provider.url) as cf:
            return list(cf.desk.store.read(script))

    def cases(self, state: str = "open") -> list[str]:
        return [row["kind"] for row in self.rows("case") if row["state"] == state]

    @property
    def state(self) -> str:
        (row,) = self.rows("operation")
        return str(row["state"])

    @property
    def lease_until(self) -> int:
        (row,) = self.rows("operation")
        return int(row["lease_until"])


def told(worker: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    out, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


class Connections:
    """Counts again and again how many sessions others have begun since on a PostgreSQL database; none on a file."""

    def __init__(self, url: str) -> None:
        self.most = 0
        self._url = url
        self._over, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._count)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(10)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self) -> None:
        if not is_postgres(self._url):
            self._begun.set()
            return
        with psycopg.connect(self._url, autocommit=True) as connection:
            self._begun.set()
            while not self._over.wait(0.02):
                self.most = max(self.most, int(connection.execute(SESSIONS).fetchall()[0][0]))
