"""PgBouncer in transaction mode: each transaction of a client may run on another connection to the server."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.postgres.keeping import Kept, NotStarted, Order, free_port, last_words, new_folder
from tests.postgres.servers import Server

START_LIMIT = 20.0
"""Seconds; a start takes a few hundredths of one."""

# What is not set here is as PgBouncer ships it; it refuses the start-up parameter `options`, for one.
CONFIGURATION = """
[databases]
* = {upstream}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
; all clients come in as the one user above, and anybody may use the console and give it orders
auth_type = any
admin_users = postgres
default_pool_size = 5
max_client_conn = 300
"""


def upstream(root: str) -> str:
    parts = conninfo_to_dict(root)
    return " ".join(f"{name}='{parts[name]}'" for name in ("host", "port", "user", "password") if parts.get(name))


class Pooler(Server):
    """A server's databases, reached through transaction-mode pooling."""

    def __init__(self, program: Path, server: Server) -> None:
        self._folder, port = new_folder("counterfoil-pool-"), free_port()
        super().__init__(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        self._settings = self._folder / "pgbouncer.ini"
        self._settings.write_text(CONFIGURATION.format(upstream=upstream(server.root), port=port))
        command = [str(program), "-q", str(self._settings)]
        self._kept = Kept(Order(folder=str(self._folder), session=os.getpid(), serve=command))
        self._wait_until_ready()

    def console(self, command: str) -> list[tuple[object, ...]]:
        """Ask or tell PgBouncer itself: `show pools`, `reconnect`, `kill_client` ..."""
        # The console knows the simple protocol only, which a cursor without parameters speaks.
        with psycopg.connect(self.url("pgbouncer"), autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            cursor = connection.execute(command.encode())
            return cursor.fetchall() if cursor.description else []

    def url_of(self, url: str) -> str:
        """Return the URL by which clients come in as the user of this one, and to its database."""
        parts = conninfo_to_dict(url)
        entry = f"{parts['user']} = {upstream(url)} dbname='{parts['dbname']}'"
        self._settings.write_text(self._settings.read_text().replace("[databases]\n", f"[databases]\n{entry}\n"))
        self.console("reload")
        return self.url(str(parts["user"]))

    def close(self) -> None:
        self._kept.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + START_LIMIT
        while time.monotonic() < until and self._kept.is_running():
            with suppress(psycopg.OperationalError):
                self.console("show version")
                return
            time.sleep(0.02)
        raise NotStarted(f"PgBouncer does not take connections:\n{last_words(self._folder)}")
