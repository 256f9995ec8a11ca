"""Processes that a test starts: whatever becomes of the test, none of them goes on after it."""

import subprocess
from typing import Any

_started: "list[subprocess.Popen[Any]]" = []


def start(command: list[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that is killed when the test is over, before its fixtures go, if it still runs then."""
    process = subprocess.Popen(command, **options)
    _started.append(process)
    return process


def end_all() -> None:
    """Kill those that still run, and close what they were read through: the next test must not hear of them."""
    while _started:
        with _started.pop() as process:
            process.kill()
