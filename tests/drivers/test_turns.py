"""Processes take turns in front of SQLite's write lock; a turn that does not come holds nobody up for long."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from counterfoil import Counterfoil, EffectCall, effect
from counterfoil.drivers import turns
from counterfoil.drivers.turns import Turns

HOLD = """
import fcntl, sys
with open(sys.argv[1], "ab") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held_elsewhere(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the turn until it is told to end."""
    command = [sys.executable, "-c", HOLD, f"{database}-turn"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Turns]:
    """Return the queue of one who is not alone."""
    with closing(Turns(str(tmp_path / "a.db"))), closing(Turns(str(tmp_path / "a.db"))) as made:
        yield made


def is_free(database: Path) -> bool:
    """Say whether nobody has the turn."""
    with Path(f"{database}-turn").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_who_is_alone_takes_no_turn(tmp_path: Path) -> None:
    with closing(Turns(str(tmp_path / "a.db"))) as alone, alone:
        assert is_free(tmp_path / "a.db")


def test_what_is_shared_has_its_place_on_the_disk(tmp_path: Path) -> None:
    with closing(Turns(str(tmp_path / "a.db"))):
        assert (tmp_path / "a.db-turn").stat().st_blocks > 0  # or a full disk would kill who touches it


def test_what_stands_in_the_file_is_not_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.db-turn").write_bytes(b"somebody's")
    with closing(Turns(str(tmp_path / "a.db"))):
        assert (tmp_path / "a.db-turn").stat().st_size == len("somebody's")


def test_all_queue_once_there_are_two_and_until_the_last_has_gone(tmp_path: Path) -> None:
    database = str(tmp_path / "a.db")
    log = tmp_path / "a.db-wal"
    log.touch()  # there as long as anybody has the database open
    with closing(Turns(database)) as first:
        with first, closing(Turns(database)) as second, second:  # who is under way when another one comes has no turn
            assert not is_free(tmp_path / "a.db")
        with first:
            assert not is_free(tmp_path / "a.db")
        log.unlink()
    assert not (tmp_path / "a.db-turn").exists()
    with closing(Turns(database)) as alone, alone:
        assert is_free(tmp_path / "a.db")


def test_what_a_dead_process_left_counts_as_somebody(tmp_path: Path) -> None:
    (tmp_path / "a.db-turn").touch()
    with closing(Turns(str(tmp_path / "a.db"))) as late, late:
        assert not is_free(tmp_path / "a.db")


def test_processes_see_each_other(tmp_path: Path) -> None:
    code = "import sys; from counterfoil.drivers.turns import Turns; Turns(sys.argv[1]); print('open')"
    with closing(Turns(str(tmp_path / "a.db"))) as first:
        command = [sys.executable, "-c", code, str(tmp_path / "a.db")]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "open\n"
        with first:
            assert not is_free(tmp_path / "a.db")


def let_go(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()


def test_a_turn_is_waited_for(tmp_path: Path, queue: Turns) -> None:
    entered = threading.Event()

    def enter() -> None:
        with queue:
            entered.set()

    with held_elsewhere(tmp_path / "a.db") as holder:
        waiter = threading.Thread(target=enter)
        waiter.start()
        assert not entered.wait(0.1)
        let_go(holder)
        assert entered.wait(10)
        waiter.join()


def test_the_turn_is_given_back(tmp_path: Path, queue: Turns) -> None:
    with queue:
        pass
    with held_elsewhere(tmp_path / "a.db"):
        pass


def test_a_turn_that_does_not_come_is_done_without(
    tmp_path: Path, queue: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", 0.01)
    with held_elsewhere(tmp_path / "a.db"), queue:
        pass


def test_a_wait_that_was_given_up_is_not_begun_again(
    tmp_path: Path, queue: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", 0.01)
    with held_elsewhere(tmp_path / "a.db"):
        with queue:
            pass
        monkeypatch.setattr(turns, "LONGEST_WAIT_S", 1_000.0)
        with queue:
            pass


def test_a_wait_that_was_given_up_does_not_keep_the_turn(
    tmp_path: Path, queue: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", 0.01)
    with held_elsewhere(tmp_path / "a.db") as holder:
        with queue:
            pass
        let_go(holder)
        assert holder.wait(10) == 0
    for thread in threading.enumerate():
        if thread.name == "counterfoil-turn":
            thread.join(10)
    with (tmp_path / "a.db-turn").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_takes_no_file_costs_the_turn_alone(tmp_path: Path) -> None:
    with Turns(str(tmp_path / "missing" / "a.db")):
        pass


@effect("turns.note", key="{request_id}/note")
def note(call: EffectCall, *, text: str) -> str:
    return text


def test_a_stopped_process_with_the_turn_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONGEST_WAIT_S", 0.01)
    database = tmp_path / "a.db"
    with held_elsewhere(database), Counterfoil.open(f"sqlite:///{database}") as cf:
        assert cf.perform(note, tenant="t", request_id="r", text="x").value == "x"
