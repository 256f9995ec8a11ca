"""A store and its process: forks, other processes on the same file, and a lock that one of them keeps."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests import children

FORK = """
import asyncio, os, sys, threading
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.sqlite_async import AsyncSqliteStore
from counterfoil.drivers.urls import parse_url
from counterfoil.errors import StoreClosed
from counterfoil.storage.script import Ddl

def sql(text):
    def script():
        return (yield Ddl(text))
    return script

store = SqliteStore(parse_url(sys.argv[1]))
store.write(sql("create table t (n integer)"))
store.read(sql("select 1"))
twin = AsyncSqliteStore(store)

async def awaiting(use):
    await use(sql("insert into t values (1)"))

def refused(call):
    try:
        call()
    except StoreClosed as error:
        assert "before the process forked" in str(error)
        return
    os._exit(2)

store.writer._mutex.acquire()  # as another thread might at the moment of the fork
child = os.fork()
if not child:
    for use in (store.write, store.write_alone, store.read):
        refused(lambda: use(sql("insert into t values (1)")))
    for use in (twin.write, twin.write_alone, twin.read):
        refused(lambda: asyncio.run(awaiting(use)))
    store.close()  # harmless
    asyncio.run(twin.close())
    own = SqliteStore(parse_url(sys.argv[1]))
    own.write(sql("insert into t values (2)"))
    own.close()
    os._exit(0)
store.writer._mutex.release()
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
store.write(sql("insert into t values (3)"))
assert [row["n"] for row in store.read(sql("select n from t order by n"))] == [2, 3]
store.close()
"""


@pytest.mark.slow
def test_a_forked_child_is_refused_and_its_parent_goes_on(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, f"sqlite:///{tmp_path / 't.db'}"], check=True, timeout=60)


STEPS = """
import sys, time
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.urls import parse_url
from counterfoil.storage.script import Ddl

url, steps, hold_at, hold_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])

def read_then_add(step):
    def script():
        (row,) = yield Ddl("select n from counter")
        if step == hold_at:
            time.sleep(hold_s)  # the case itself: one process sits on the write lock
        yield Ddl(f"update counter set n = {row['n'] + 1}")
    return script

print("ready", flush=True)
sys.stdin.readline()
store = SqliteStore(parse_url(url))
for step in range(steps):
    store.write(read_then_add(step))
store.close()
"""


def start(url: str, steps: int, hold_at: int, hold_s: float) -> subprocess.Popen[bytes]:
    process = children.start(
        [sys.executable, "-c", STEPS, url, str(steps), str(hold_at), str(hold_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(processes: list[subprocess.Popen[bytes]]) -> list[tuple[int, bytes]]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    return [(process.returncode, errors) for process in processes for _, errors in [process.communicate(timeout=60)]]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_two_processes_that_read_then_write_never_hear_of_a_lock(tmp_path: Path, mode: str) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as connection:
        connection.execute(f"pragma journal_mode={mode}")
        connection.execute("create table counter (n integer)")
        connection.execute("insert into counter values (0)")
    url = f"sqlite:///{tmp_path / 't.db'}"
    ended = finish([start(url, 200, 50, 1.0), start(url, 200, -1, 0.0)])
    assert ended == [(0, b"")] * 2
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        assert connection.execute("select n from counter").fetchone() == (400,)


FULL = """
import json, resource, signal, sys
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.urls import parse_url
from counterfoil.errors import StoreError
from counterfoil.storage.script import Ddl

def sql(text):
    def script():
        return (yield Ddl(text))
    return script

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SqliteStore(parse_url(sys.argv[1]))
store.write(sql("create table t (n integer, x blob)"))
store.write(sql("insert into t values (1, null)"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
found = []
try:
    store.write(sql("insert into t values (2, zeroblob(1000000))"))
except StoreError as error:
    found.append(error.code)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.write(sql("insert into t values (3, null)"))
found.append([row["n"] for row in store.read(sql("select n from t order by n"))])
store.close()
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX resource limits")
def test_a_full_disk_writes_nothing_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, f"sqlite:///{tmp_path / 't.db'}"], check=True, timeout=60, stdout=subprocess.PIPE
    )
    # COMMIT itself failed and SQLite undid it; its frames may have reached the log, so it is looked up, never assumed
    assert json.loads(done.stdout) == ["commit-unknown", [1, 3]]
