"""A tally file counts across threads, processes and kills, and knows nothing of rollbacks."""

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.testing.tally import KeyMismatch, Tallied, TallyFile

# Fresh interpreters share no descriptor and no lock with this one.
SPAWN = multiprocessing.get_context("spawn")


def accept_many(path: Path, worker: int) -> None:
    tally = TallyFile(path)
    for turn in range(50):
        tally.accept("tickets", f"w{worker}-{turn}")


def accept_same(path: Path, _: int) -> None:
    tally = TallyFile(path, honours_keys=True)
    assert {tally.accept("tickets", "k-1", {"title": "T"}) for _ in range(50)} == {1}


def accept_and_die(path: Path) -> None:
    TallyFile(path).accept("tickets", "k-1")
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_accepted_effect_is_numbered_found_and_counted(tmp_path: Path) -> None:
    tally = TallyFile(tmp_path / "tally")

    assert [tally.accept("tickets", "k-1", {"title": "T"}), tally.accept("charges")] == [1, 2]
    assert tally.find("k-1") == Tallied(number=1, kind="tickets", key="k-1", body={"title": "T"})
    assert tally.find("k-2") is None
    assert (tally.count(), tally.count("charges"), tally.count(key="k-1")) == (2, 1, 1)


def test_a_tally_without_effects_is_empty(tmp_path: Path) -> None:
    assert TallyFile(tmp_path / "tally").accepted() == []


def test_a_repeated_key_is_accepted_again_unless_keys_are_honoured(tmp_path: Path) -> None:
    plain = TallyFile(tmp_path / "plain")
    keyed = TallyFile(tmp_path / "keyed", honours_keys=True)

    assert [plain.accept("tickets", "k-1") for _ in range(2)] == [1, 2]
    assert [keyed.accept("tickets", "k-1") for _ in range(2)] == [1, 1]
    assert [keyed.accept("tickets") for _ in range(2)] == [2, 3]


def test_a_key_with_other_content_is_refused(tmp_path: Path) -> None:
    tally = TallyFile(tmp_path / "tally", honours_keys=True)
    tally.accept("tickets", "k-1", {"title": "T"})

    with pytest.raises(KeyMismatch):
        tally.accept("tickets", "k-1", {"title": "U"})
    assert tally.count() == 1


@pytest.mark.parametrize(("work", "expected"), [(accept_many, 200), (accept_same, 1)])
def test_four_processes_share_one_tally(tmp_path: Path, work: Callable[[Path, int], None], expected: int) -> None:
    path = tmp_path / "tally"
    workers = [SPAWN.Process(target=work, args=(path, worker)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert [one.number for one in TallyFile(path).accepted()] == list(range(1, expected + 1))


def test_an_accepted_effect_survives_the_kill_of_its_caller(tmp_path: Path) -> None:
    child = SPAWN.Process(target=accept_and_die, args=(tmp_path / "tally",))
    child.start()
    child.join()

    assert child.exitcode == -signal.SIGKILL
    assert TallyFile(tmp_path / "tally").count(key="k-1") == 1


def test_a_torn_line_is_not_counted_and_spoils_no_other(tmp_path: Path) -> None:
    tally = TallyFile(tmp_path / "tally")
    tally.accept("tickets", "k-1")
    with tally.path.open("ab") as file:
        file.write(b'\n{"number": 2, "kind": "tick')

    assert tally.accept("tickets", "k-2") == 2
    assert [one.key for one in tally.accepted()] == ["k-1", "k-2"]


def test_a_rollback_takes_nothing_back(tmp_path: Path) -> None:
    tally = TallyFile(tmp_path / "tally")
    connection = sqlite3.connect(tmp_path / "agent.db")
    connection.execute("begin")
    connection.execute("create table receipts (id integer)")
    tally.accept("tickets", "k-1")
    connection.rollback()
    connection.close()

    assert tally.count() == 1
