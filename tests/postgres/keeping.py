"""Start servers for the tests: each under a keeper, so that none outlives the session that started it."""

import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
PORTS = range(15_000, 32_000)
"""Below the ports from which systems take those of outgoing connections, so that a server finds its own free again."""


class NotStarted(Exception):
    """A server could not be started; says why."""


def unprivileged() -> dict[str, object]:
    """Choose the user of a server: PostgreSQL and PgBouncer refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    entry = service_account()
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def service_account() -> pwd.struct_passwd:
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a keeper is told: commands that must succeed first, and the server to keep in the foreground."""

    folder: str
    session: int
    prepare: Sequence[Sequence[str]] = ()
    serve: Sequence[str]
    user: dict[str, object] = field(default_factory=unprivileged)
    detached: bool = False


class Kept:
    """A server under a keeper that is this process's child."""

    def __init__(self, order: Order) -> None:
        self._keeper = keeper(order)
        self.pid = reported_pid(self._keeper, order)

    def is_running(self) -> bool:
        return self._keeper.poll() is None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the server has ended, by itself or on a signal; say whether it has."""
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(seconds)
        return not self.is_running()

    def end(self) -> None:
        self._keeper.terminate()
        self._keeper.wait()


def leave(order: Order) -> int:
    """Start a server that only the end of the session will end; return its process id."""
    with keeper(order) as starter:
        return reported_pid(starter, order)


def keeper(order: Order) -> "subprocess.Popen[bytes]":
    # -I -S: it needs the standard library only, and starts the sooner. A session of its own: no Ctrl-C reaches it.
    command = [sys.executable, "-I", "-S", str(KEEPER), json.dumps(asdict(order))]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def reported_pid(process: "subprocess.Popen[bytes]", order: Order) -> int:
    assert process.stdout is not None
    with process.stdout as pipe:
        report = json.loads(pipe.readline() or '{"error": "its keeper died"}')
    if "pid" not in report:
        process.wait()
        raise NotStarted(f"{order.serve[0]} did not start: {report['error']}")
    return int(report["pid"])


def session_process() -> int:
    """Name the process whose end is the end of the session: under xdist, the parent of the workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def new_folder(prefix: str) -> Path:
    """Make a folder for a server, its own from here on; the path is short, since sockets in it have little room."""
    # Root's own temporary folder may be closed to the user that the server runs as.
    place = "/tmp" if os.geteuid() == 0 else None  # noqa: S108 - mkdtemp makes a name that nobody can foresee
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    if os.geteuid() == 0:
        entry = service_account()
        shutil.chown(folder, entry.pw_uid, entry.pw_gid)
    return folder


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def last_words(folder: Path, lines: int = 8) -> str:
    with suppress(OSError):
        return "\n".join((folder / "log").read_text(errors="replace").splitlines()[-lines:])
    return "it left no log"
