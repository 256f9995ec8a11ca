"""Run a server of the tests in a process of its own, and talk to the desk behind it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterfoil.testing.children import first_line
from counterfoil.testing.provider_client import ProviderClient

ROOT = Path(__file__).parents[2]


@contextmanager
def served(module: str) -> Iterator[ProviderClient]:
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield ProviderClient(first_line(process))
    finally:
        process.kill()
        process.communicate()
