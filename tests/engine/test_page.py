"""What the page on engines shows: two workers in two processes, one is killed, and there is one charge and one mail."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil import Counterfoil
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.engine.fleet import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "engines.md").read_text("utf-8")
PROGRAM = re.search(r"^```python\n# shop\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = {
    "postgresql://me@localhost/agents": "{database}",
    "http://127.0.0.1:8000": "{provider}",
    "sleep(20)": "sleep(3)",
}


@pytest.fixture
def folder(tmp_path: Path, jobs_url: str, provider: CountingProvider) -> Path:
    """A folder with the page's program, for this database and this provider."""
    assert PROGRAM is not None
    program = PROGRAM[1]
    for shown, here in SHOWN.items():
        assert shown in program
        program = program.replace(shown, here)
    (tmp_path / "shop.py").write_text(program.replace("{database}", jobs_url).replace("{provider}", provider.url))
    return tmp_path


@pytest.fixture
def workers(folder: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    running = [start(folder, "-m", "counterfoil", "worker", "--app", "shop:cf") for _ in range(2)]
    yield running
    for worker in running:
        worker.kill()
        worker.communicate()


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )


def test_either_worker_may_be_killed(
    folder: Path, workers: list["subprocess.Popen[str]"], jobs_url: str, provider: CountingProvider
) -> None:
    provider.configure(Settings(keys=True))
    with start(folder, "shop.py") as order:
        assert order.wait(30) == 0
    provider.wait_accepted(1, timeout=30)
    with Counterfoil.open(jobs_url) as cf:
        row = cf.workflows.get("order-1", tenant="shop")
        (holder,) = [each for each in workers if f":{each.pid}:" in (row.holder or "")]
        holder.kill()
        until(lambda: True if cf.workflows.get("order-1", tenant="shop").status == "done" else None)
    assert (provider.count("charges"), provider.count("mails")) == (1, 1)
