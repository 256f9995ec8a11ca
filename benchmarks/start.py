"""What does starting cost, beside a bare interpreter? CPU of a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.kit import Comparison, compare, once


def run(_disk: Path, _memory: Path) -> list[Comparison]:
    use = "from counterfoil import Counterfoil; Counterfoil.open('sqlite:///:memory:').close()"
    variants = {
        "python -c pass": process("-c", "pass"),
        "import counterfoil": process("-c", "import counterfoil"),
        "open a database": process("-c", use),
        "counterfoil --help": process("-m", "counterfoil", "--help"),
    }
    return [compare("Starting a process", variants, rounds=12, calls=1, clock=once)]


def process(*arguments: str) -> Callable[[], float]:
    def start() -> float:
        child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
        _pid, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        return used.ru_utime + used.ru_stime

    return start
