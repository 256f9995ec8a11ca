"""A process that a test has left behind is gone before the next one begins."""

import signal
import subprocess
import sys

from tests import children

LEFT: "list[subprocess.Popen[str]]" = []


def test_one_that_a_test_leaves_running() -> None:
    LEFT.append(children.start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert LEFT[0].poll() is None
    children.end_all()
    assert LEFT[0].returncode == -signal.SIGKILL
    assert [pipe is not None and pipe.closed for pipe in (LEFT[0].stdin, LEFT[0].stdout)] == [True, True]


def test_one_that_has_ended_keeps_its_exit_code() -> None:
    ended = children.start([sys.executable, "-c", "raise SystemExit(3)"])
    assert ended.wait(60) == 3
    children.end_all()
    assert ended.returncode == 3
