"""A demo process that breaks is never taken for one that was killed or that finished."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from counterfoil.demo.hiring.office import Office
from counterfoil.demo.hiring.worker import Drainer
from counterfoil.demo.stage import DemoBroken, launch
from counterfoil.demo.steps import GoOn, Start, Step
from tests.strides import EVERY


@pytest.fixture(autouse=True)
def _fresh_forkserver() -> None:
    """Let processes begin with this test's standard error, and not with that of the test that had the first of them."""
    running: Any = forkserver
    running._forkserver._stop()


def a_step(database: Path, given: Start | GoOn) -> Step:
    return Step(
        column="plain",
        url="http://127.0.0.1:9",  # the discard port: nobody listens
        database=str(database),
        given=given,
        tenant="team-A",
        request_id="r-1",
        thread_id="t-1",
    )


def test_a_broken_process_is_an_error_and_shows_its_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DemoBroken, match="exit code 1"):
        launch(a_step(tmp_path / "missing" / "file.db", GoOn())).report()
    assert "unable to open database file" in capfd.readouterr().err


def test_a_failed_run_reports_why_and_that_the_effect_line_was_entered(tmp_path: Path) -> None:
    report = launch(a_step(tmp_path / "plain.db", Start({"title": "Printer offline"}))).report()
    assert (report.end, report.receipts) == ("failed", ())
    assert report.calls == 3  # the retry policy's
    assert report.detail.startswith("ConnectError")


ROUNDS = 20 if EVERY == 1 else 6
"""In each of four lanes; a launch takes a second."""


@pytest.mark.slow
def test_lanes_that_start_and_reap_processes_at_once_are_each_told_the_right_exit_code(tmp_path: Path) -> None:
    nowhere = Office(url="sqlite:///never-opened.db", mail_port=9, gateway="http://127.0.0.1:9", reports=tmp_path)

    def lane(_number: int) -> list[int | None]:
        codes = []
        for _ in range(ROUNDS):
            worker = Drainer(nowhere)
            worker.close()
            codes.append(worker.process.exitcode)
        return codes

    with ThreadPoolExecutor(4) as lanes:
        assert {code for codes in lanes.map(lane, range(4)) for code in codes} == {0}
