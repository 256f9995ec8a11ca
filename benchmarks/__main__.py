"""Run the benchmarks, all or those named: `python -m benchmarks effects canonical`."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.kit import save

ALL = (
    "effects",
    "threads",
    "processes",
    "checkpoints",
    "postgres",
    "colliding",
    "draining",
    "claiming",
    "canonical",
    "start",
)
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, where there is one: no disk, CPU alone


def machine() -> dict[str, object]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "in_memory": MEMORY.is_dir(),
    }


def main(names: list[str]) -> None:
    here = Path(__file__).parent
    memory = MEMORY if MEMORY.is_dir() else here
    for name in names or ALL:
        with TemporaryDirectory(dir=here, prefix=".data-") as on_disk, TemporaryDirectory(dir=memory) as in_memory:
            answers = import_module(f"benchmarks.{name}").run(Path(on_disk), Path(in_memory))
        save(name, machine(), answers)


if __name__ == "__main__":
    main(sys.argv[1:])
