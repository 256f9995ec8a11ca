"""What one operation costs in flushes, commits, statements and connections: exact numbers, which no load can blur.

Commits, statements and connections are counted inside the process and always asserted. Flushes (fdatasync, fsync) are
counted from outside by strace; where that is missing or may not trace, those tests are skipped and the commits alone
speak: at `synchronous=full`, SQLite flushes its write-ahead log once for each commit that wrote something.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("child.py")
STRACE = ["strace", "-f", "-e", "trace=fsync,fdatasync"]
NO_STRACE = "flushes are counted by strace, which is missing here or may not trace (apt-get install strace)"
CHECKPOINT_FLUSHES = 6
"""SQLite moves a full write-ahead log into the database now and then: a flush of each, and of a folder."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What the child saw, and how often it flushed in each phase if that could be traced."""

    phases: dict[str, dict[str, float]]
    blobs: dict[str, int]
    nodes: int
    flushes: dict[str, int] | None

    def flushed(self, phase: str) -> int:
        if self.flushes is None:
            pytest.skip(NO_STRACE)
        return self.flushes[phase]


def traces(folder: Path) -> bool:
    if shutil.which("strace") is None:
        return False
    done = subprocess.run([*STRACE, "-o", str(folder / "try"), "true"], capture_output=True, check=False)
    return done.returncode == 0


def between_marks(trace: str) -> Iterator[int]:
    """Count the flushes between each pair of marks; a call during another thread's is written on two lines."""
    calls = re.findall(r"\b(?:fsync|fdatasync)\(.*|<\.\.\. f(?:data)?sync resumed>.*", trace)
    ended = [call for call in calls if "<unfinished" not in call]
    marks = [number for number, call in enumerate(ended) if "EBADF" in call]
    for start, stop in zip(marks[::2], marks[1::2], strict=True):
        yield stop - start - 1


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    folder = tmp_path_factory.mktemp("counts")
    trace = folder / "trace"
    tracing = [*STRACE, "-o", str(trace)] if traces(folder) else []
    done = subprocess.run(
        [*tracing, sys.executable, str(CHILD), str(folder)], capture_output=True, text=True, check=True, timeout=120
    )
    told: dict[str, Any] = json.loads(done.stdout)
    flushes = dict(zip(told["phases"], between_marks(trace.read_text()), strict=True)) if tracing else None
    return Counted(**told, flushes=flushes)


def per_operation(counted: Counted, phase: str) -> tuple[float, float]:
    seen = counted.phases[phase]
    return seen["statements"], seen["commits"]


def test_a_remote_effect_takes_two_commits_and_three_statements(counted: Counted) -> None:
    assert per_operation(counted, "remote") == (3, 2)  # look, claim, settle


def test_a_remote_effect_flushes_exactly_twice(counted: Counted) -> None:
    assert counted.flushed("remote") == 2 * counted.phases["remote"]["times"]


@pytest.mark.parametrize("phase", ["receipt", "local-receipt"])
def test_an_answer_from_a_receipt_takes_one_read(counted: Counted, phase: str) -> None:
    assert per_operation(counted, phase) == (1, 0)


@pytest.mark.parametrize("phase", ["receipt", "local-receipt"])
def test_an_answer_from_a_receipt_flushes_nothing(counted: Counted, phase: str) -> None:
    assert counted.flushed(phase) == 0


def test_a_local_effect_takes_the_one_transaction_that_holds_its_rows(counted: Counted) -> None:
    assert per_operation(counted, "local") == (3, 1)  # look, look again inside the transaction, record


def test_a_local_effect_flushes_once(counted: Counted) -> None:
    assert counted.flushed("local") == counted.phases["local"]["times"]


def test_a_joined_effect_takes_two_statements_and_no_transaction_of_its_own(counted: Counted) -> None:
    assert per_operation(counted, "joined") == (2, 0)  # look, record
    seen = counted.phases["joined"]
    assert (seen["own-begin"], seen["own-commit"], seen["own-rollback"]) == (1, 1, 0)  # the caller's


def test_a_joined_effect_flushes_no_more_than_its_callers_transaction(counted: Counted) -> None:
    assert counted.flushed("joined") == counted.flushed("own-transaction") == counted.phases["joined"]["times"]


def test_no_operation_opens_a_connection_or_leaves_a_file_open(counted: Counted) -> None:
    opened = {phase: (seen["connects"], seen["descriptors"]) for phase, seen in counted.phases.items()}
    assert opened == dict.fromkeys(counted.phases, (0, 0))


@pytest.mark.parametrize(("phase", "claims"), [("plain-graph", 0), ("managed-graph", 2)])
def test_a_superstep_takes_a_commit_for_its_checkpoint_and_at_most_one_for_its_tasks_writes(
    counted: Counted, phase: str, claims: int
) -> None:
    supersteps = counted.nodes + 1  # the input is one, and has a checkpoint more
    commits = counted.phases[phase]["commits"]  # LangGraph writes from several threads, and some meet in one commit
    assert supersteps + 1 + claims <= commits <= 2 * supersteps + 1 + claims


@pytest.mark.parametrize("phase", ["plain-graph", "managed-graph"])
def test_a_superstep_flushes_no_more_than_it_commits(counted: Counted, phase: str) -> None:
    assert counted.flushed(phase) <= counted.phases[phase]["commits"] + CHECKPOINT_FLUSHES


def test_a_large_value_that_does_not_change_is_not_written_again(counted: Counted) -> None:
    assert counted.blobs[str(counted.nodes)] == counted.blobs["1"]
