"""Killed at any moment, a graph and its dispatcher leave an operation for each stored result, and none without one.

COUNTERFOIL_SOAK_SECONDS and COUNTERFOIL_SOAK_KILLS say how long each variant is killed, and how often at the least.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SECONDS = os.environ.get("COUNTERFOIL_SOAK_SECONDS", "20")
KILLS = os.environ.get("COUNTERFOIL_SOAK_KILLS", "20")
ROOT = Path(__file__).parents[2]


def kills(url: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Kill in a process that stays free of threads, and return what it told."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.langgraph.enqueue_killing", url, str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))},
        stdout=subprocess.PIPE,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_an_operation_is_in_the_outbox_if_and_only_if_the_result_of_its_node_is_stored(
    url: str, tmp_path: Path, colour: str, durability: str
) -> None:
    told = kills(url, tmp_path, colour, durability, SECONDS, KILLS)
    assert told["violations"] == []
    assert told["kills"] >= int(KILLS)
    assert told["accepted"] > told["threads"]
