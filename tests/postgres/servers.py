"""A PostgreSQL for the tests: one that a session shares, or one that a test has to itself and may stop."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.postgres import binaries
from tests.postgres.keeper import is_alive
from tests.postgres.keeping import Kept, NotStarted, Order, free_port, last_words, leave, new_folder, session_process

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # Pools of several processes and their left-overs; the default of 100 is soon used up.
    "max_connections": "300",
    # Text in the log is compared by no test; a fixed language keeps it readable.
    "lc_messages": "C",
}
"""Durability stays as PostgreSQL ships it: fsync, synchronous_commit and full_page_writes are on."""
NATURAL = ["--locale-provider=icu", "--icu-locale=en-US"]
"""Sort text as people do, where PostgreSQL can: a query that counts on byte order fails here as it would for users."""
FIRST_NATURAL = 15
"""The first version whose databases can sort so by default."""
STOP_LIMIT = 30.0
START_LIMIT = 60.0
"""Seconds; a start takes about one, and recovery after a crash under load a few."""

Mode = Literal["fast", "immediate"]
SIGNALS: dict[Mode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Server:
    """A PostgreSQL server on which databases may be made."""

    def __init__(self, root: str) -> None:
        self.root = root
        """The URL of its maintenance database, as its superuser."""

    def url(self, database: str) -> str:
        return urlsplit(self.root)._replace(path=f"/{database}").geturl()

    @property
    def host(self) -> str:
        return urlsplit(self.root).hostname or "localhost"

    @property
    def port(self) -> int:
        return urlsplit(self.root).port or 5432

    @property
    def major(self) -> int:
        return int(self.execute("show server_version_num")[0][0]) // 10_000

    def execute(self, statement: str, *parameters: object, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, outside any transaction, and return its rows."""
        url = self.root if database is None else self.url(database)
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Make a database, or a clone of one that nobody is connected to; return its URL."""
        statement = sql.SQL("create database {} template {}")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(template or "template1")))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, and end the sessions on it."""
        self._execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.root, autocommit=True) as connection:
            connection.execute(statement)


class PrivateServer(Server):
    """A server of the test's own, to be stopped and started."""

    def __init__(self, plan: "Plan") -> None:
        super().__init__(plan.root)
        self._plan = plan
        self._kept = start(plan)

    @property
    def pid(self) -> int:
        return self._kept.pid

    def stop(self, mode: Mode = "fast") -> None:
        """Stop: `fast` ends all sessions and writes everything out, `immediate` is a crash.

        One that does not end in time, as when a process of its own was killed meanwhile, is crashed as well.
        """
        if self._kept.is_running():
            os.kill(self.pid, SIGNALS[mode])
            if not self._kept.wait(STOP_LIMIT):
                os.kill(self.pid, SIGNALS["immediate"])
                self._kept.wait()

    def start(self) -> None:
        if not self._kept.is_running():
            self._kept = start(self._plan)

    def become_standby(self) -> None:
        """Let the next start be that of a standby, which takes no writes until `pg_promote()`."""
        mark = self._plan.folder / "data" / "standby.signal"
        mark.touch()
        owner = self._plan.folder.stat()
        os.chown(mark, owner.st_uid, owner.st_gid)

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End the server and remove its folder."""
        self._kept.end()
        shutil.rmtree(self._plan.folder, ignore_errors=True)  # a stopped server has no keeper that would


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where a new cluster lives, and how it is made and served."""

    bindir: Path
    folder: Path
    port: int
    password: str

    @property
    def root(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def is_made(self) -> bool:
        return (self.folder / "data" / "PG_VERSION").exists()

    def initdb(self) -> list[str]:
        secret = self.folder / "password"
        secret.write_text(verifier(self.password))
        secret.chmod(0o644)  # the folder is closed to others
        natural = NATURAL if binaries.major(self.bindir) >= FIRST_NATURAL else []
        return [
            *(str(self.bindir / "initdb"), "--pgdata=data", "--username=postgres", f"--pwfile={secret}"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", *natural),
            *("--no-sync", "--no-instructions"),
        ]

    def postgres(self) -> list[str]:
        settings = SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self.bindir / "postgres"), "-D", "data", *options]

    def order(self, *, detached: bool = False) -> Order:
        return Order(
            folder=str(self.folder),
            session=session_process() if detached else os.getpid(),
            prepare=[] if self.is_made else [self.initdb()],
            serve=self.postgres(),
            detached=detached,
        )


def verifier(password: str) -> str:
    """Return what the server keeps of a password, made in one round: this one is random, and the usual 4096 take time.

    https://www.rfc-editor.org/rfc/rfc5802#section-3
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations=1)
    client, server = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    salt64, stored64, server64 = (
        base64.b64encode(each).decode() for each in (salt, hashlib.sha256(client).digest(), server)
    )
    return f"SCRAM-SHA-256$1:{salt64}${stored64}:{server64}"


def new_plan(bindir: Path) -> Plan:
    folder = new_folder("counterfoil-pg-")
    return Plan(bindir=bindir, folder=folder, port=free_port(), password=secrets.token_urlsafe(12))


def start(plan: Plan) -> Kept:
    kept = Kept(plan.order())
    wait_until_ready(plan, kept.is_running)
    return kept


def start_shared(bindir: Path) -> Server:
    """Start a server that stays until the session is over."""
    plan = new_plan(bindir)
    pid = leave(plan.order(detached=True))
    wait_until_ready(plan, lambda: is_alive(pid))
    return Server(plan.root)


def wait_until_ready(plan: Plan, is_running: Callable[[], bool]) -> None:
    """Wait until the server takes connections, of which PostgreSQL gives no signal."""
    until = time.monotonic() + START_LIMIT
    while time.monotonic() < until and is_running():
        with suppress(psycopg.OperationalError):
            psycopg.connect(plan.root).close()
            return
        time.sleep(0.02)
    words = last_words(plan.folder)
    if not is_running():  # of one that runs, its keeper removes the folder
        shutil.rmtree(plan.folder, ignore_errors=True)
    raise NotStarted(f"PostgreSQL does not take connections:\n{words}")


def shared(notes: Path, bindir: Path) -> Server:
    """Return the session's one server: the first that asks starts it, the others read where it is."""
    with locked(notes.with_suffix(".lock")):
        if notes.exists():
            return Server(**json.loads(notes.read_text()))
        server = start_shared(bindir)
        notes.write_text(json.dumps({"root": server.root}))
        return server


@contextmanager
def locked(path: Path) -> Iterator[None]:
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
