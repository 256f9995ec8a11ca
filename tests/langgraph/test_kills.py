"""A graph whose process is killed anywhere is finished by another process with the same effects and the same state."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.langgraph.killing import VARIANTS
from tests.strides import NEAR

LIMIT_S = 1200


def kills(url: str, folder: Path, *arguments: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the undisturbed run and the killed ones."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.langgraph.killing", url, str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))},
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
        check=True,
    )
    first, *others = json.loads(done.stdout)
    return first, others


def assert_same(first: dict[str, Any], killed: list[dict[str, Any]]) -> None:
    assert (first["tickets"], first["mails"]) == (1, 1)
    assert first["values"]["log"] == ["prepare", "ticket", "ask", "mail"]
    assert first["operations"] == ["succeeded", "succeeded"]
    assert first["children"] == 1
    for run in killed:
        told = {name: run[name] for name in first if name not in ("point", "killed")}
        assert told == {name: first[name] for name in told}, run["point"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "where", "count"),
    [pytest.param("blocking", "around", 36, marks=pytest.mark.soak), ("awaiting", "after", 14)],
)
def test_a_kill_on_either_side_of_any_commit_leaves_one_effect_and_the_same_state(
    url: str, tmp_path: Path, variant: str, where: str, count: int
) -> None:
    every = 1 if where == "around" else NEAR
    first, killed = kills(url, tmp_path, variant, where, str(every))
    assert_same(first, killed)
    assert first["threads"] == [["idle", None]]
    assert sum(run["killed"] for run in killed) >= count // every  # commits may be grouped, so that a few fewer are met


@pytest.mark.soak
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_kill_at_any_moment_leaves_one_effect_and_the_same_state(url: str, tmp_path: Path, variant: str) -> None:
    first, killed = kills(url, tmp_path, variant, "100")
    assert_same(first, killed)
