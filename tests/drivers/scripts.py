"""Scripts of one statement, and a store of one table, for tests of the drivers."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from counterfoil.drivers.probes import Point, Probe, no_probe
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.sqlite_unit import Unit
from counterfoil.drivers.urls import SqliteUrl
from counterfoil.storage.script import Ddl, Maker, Row, Script

SECONDS = 20.0
"""How long a thread is waited for before a test fails; far longer than it takes."""


def sql(text: str) -> Maker[list[Row]]:
    """Return a script of one statement."""

    def script() -> Script[list[Row]]:
        rows: list[Row] = yield Ddl(text)
        return rows

    return script


def add(n: int) -> Maker[list[Row]]:
    return sql(f"insert into t values ({n})")  # noqa: S608 - a number


def during(hook: Callable[[], object], then: Maker[Any]) -> Maker[Any]:
    """Return a script that calls a hook inside its transaction, before its statement."""

    def script() -> Script[Any]:
        hook()
        return (yield from then())

    return script


def numbers(store: SqliteStore) -> list[int]:
    return [row["n"] for row in store.read(sql("select n from t order by n"))]


def open_store(path: Path | str, probe: Probe = no_probe, **options: Any) -> SqliteStore:
    """Open a store with a table `t` of numbers."""
    store = SqliteStore(SqliteUrl(str(path)), probe=probe, **options)
    store.write(sql("create table if not exists t (n integer not null unique)"))
    return store


class Commits:
    """A probe that counts commits."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, point: Point, _name: str, /) -> None:
        self.count += point is Point.AFTER_COMMIT


class Gate:
    """Holds a leader inside its transaction until it is opened, and says when it got there."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._opened.wait(SECONDS)

    def open(self) -> None:
        self._opened.set()


class Waiting(deque[Unit]):
    """A writer's queue that says when units have joined it."""

    def __init__(self) -> None:
        super().__init__()
        self._joined = threading.Semaphore(0)

    def append(self, unit: Unit) -> None:
        super().append(unit)
        self._joined.release()

    def joined(self, n: int) -> None:
        """Wait until `n` more have joined."""
        for _ in range(n):
            assert self._joined.acquire(timeout=SECONDS)


def watch_queue(store: SqliteStore) -> Waiting:
    queue = Waiting()
    store.writer._queue = queue
    return queue


class Call(threading.Thread):
    """A call in a thread of its own; `result` waits for its end and raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._answer: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._answer = self._function()
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._error = error

    def result(self) -> Any:
        self.join(SECONDS)
        assert not self.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._answer
