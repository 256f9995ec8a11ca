"""B68: a transaction that reads first and then writes failed at once when another connection wrote meanwhile.

Sources: https://github.com/python/cpython/issues/124510, https://github.com/Dictionarry-Hub/profilarr/pull/519,
https://github.com/xerrors/Yuxi/issues/875
"""

import sqlite3
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from counterfoil import Counterfoil, effect
from tests import children

ROOT = Path(__file__).parents[2]
STEPS = 200
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from counterfoil import Counterfoil, effect

@effect("cases.lock", key="{n}")
def act(call, *, n):
    return n

with Counterfoil.open(sys.argv[2]) as cf:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[3])):
        assert cf.perform(act, tenant=sys.argv[4], n=n).value == n
"""


@effect("cases.lock-held", key="{n}")
def act(call: Any, *, n: int) -> int:
    return n


@pytest.mark.slow
@pytest.mark.parametrize("journal", ["fresh", "rollback-journal"])
def test_two_processes_of_two_hundred_steps_each(tmp_path: Path, journal: str) -> None:
    file = tmp_path / "agent.db"
    if journal == "rollback-journal":
        with sqlite3.connect(file) as connection:
            connection.execute("pragma journal_mode=delete")
            connection.execute("create table business (id integer)")
        connection.close()
    arguments = (str(ROOT / "src"), f"sqlite:///{file}", str(STEPS))
    piped: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    writers = [
        children.start([sys.executable, "-c", WRITER, *arguments, tenant], text=True, **piped)
        for tenant in ("one", "two")
    ]
    assert [writer.stdout.readline() for writer in writers if writer.stdout] == ["ready\n"] * 2
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    told = [writer.communicate(timeout=120)[1] for writer in writers]
    assert told == ["", ""]
    with sqlite3.connect(file) as connection:
        order = [tenant for (tenant,) in connection.execute("select tenant from counterfoil_operation order by seq")]
        assert sum(one != other for one, other in pairwise(order)) >= STEPS / 10, "they hardly met"
        assert connection.execute("select count(*) from counterfoil_operation").fetchone() == (2 * STEPS,)
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_writer_that_holds_the_lock_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    with Counterfoil.open(f"sqlite:///{file}") as cf:
        cf.perform(act, tenant="t", n=0)
        other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        other.execute("begin immediate")
        release = threading.Timer(0.5, lambda: other.execute("rollback"))
        release.start()
        assert cf.perform(act, tenant="t", n=1).value == 1
        release.join()
        other.close()
