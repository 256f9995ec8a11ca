"""Keep one server process for a test session, and end it when that session is gone, however it went.

Run as a script with an order (`tests/postgres/keeping.py`) in JSON. It carries out the preparations, starts the server
and prints one line of JSON: the server's process id, or what went wrong. Then it waits. If the session ends, even by
SIGKILL, or this process is told to end (SIGTERM), the server goes and its folder with it. If the server ends by itself,
the folder stays: it can be started again.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

Order = dict[str, Any]

POLL = 0.1
"""Seconds between two looks at the processes, where the system cannot signal their end."""
PATIENCE = 10
"""Seconds for an immediate shutdown; PostgreSQL itself kills its children after five."""


def detach(order: Order) -> None:
    """Hand the order to a keeper that is nobody's child: the process that asked for it may end before the session."""
    again = json.dumps({**order, "detached": False})
    subprocess.Popen([sys.executable, "-I", "-S", __file__, again], start_new_session=True)


def launch(order: Order) -> "subprocess.Popen[bytes]":
    with Path(order["folder"], "log").open("ab") as log:
        settings = {"cwd": order["folder"], "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **order["user"]}
        for command in order["prepare"]:
            subprocess.run(command, check=True, **settings)
        return subprocess.Popen(order["serve"], **settings)


def wait_for_the_end(session: int, server: "subprocess.Popen[bytes]") -> None:
    """Block until the session or the server is gone."""
    try:
        with DefaultSelector() as selector:
            for pid in (session, server.pid):
                selector.register(os.pidfd_open(pid), EVENT_READ)
            selector.select()
    except (AttributeError, OSError):  # no pidfd here, or the session is gone already
        while is_alive(session) and server.poll() is None:
            time.sleep(POLL)


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def end(server: "subprocess.Popen[bytes]") -> None:
    """Shut down at once; one that a test has stopped wakes up for it."""
    server.send_signal(signal.SIGQUIT)
    server.send_signal(signal.SIGCONT)
    try:
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def tell(**report: object) -> None:
    # The reader may be gone by now; the server ends with the session all the same.
    with suppress(OSError):
        os.write(1, json.dumps(report).encode() + b"\n")


def keep(order: Order) -> None:
    server = None
    try:
        server = launch(order)
        tell(pid=server.pid)
        wait_for_the_end(order["session"], server)
    except (OSError, subprocess.SubprocessError) as error:
        tell(error=str(error))
    finally:
        if server is None:
            shutil.rmtree(order["folder"], ignore_errors=True)
        elif server.poll() is None:
            end(server)
            shutil.rmtree(order["folder"], ignore_errors=True)


def main() -> None:
    order: Order = json.loads(sys.argv[1])
    if order["detached"]:
        detach(order)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        keep(order)


if __name__ == "__main__":
    main()
