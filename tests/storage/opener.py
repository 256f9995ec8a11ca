"""A process that opens a database when it is told to, dies where it is told to, and may know one migration more.

`opener.py URL CODE`: says `ready`, waits for a line, and opens. `opener.py URL CODE pause`: stops inside its
transaction, says `here`, and waits to be killed. `opener.py URL CODE kill`: forks a child for each point in turn, which
kills itself there.
"""

import os
import signal
import sys
from typing import Any

from counterfoil import Counterfoil
from counterfoil.drivers.probes import Point, Probe, no_probe
from counterfoil.storage import migrator
from counterfoil.storage.migrator import Migration, migrations

NEXT = Migration(
    number=len(migrations("sqlite")) + 1, name="added", sql="create table counterfoil_added (id integer primary key);\n"
)
ADDED = {
    "sqlite": "CREATE TABLE counterfoil_added (id integer primary key)",
    "postgres": "create table counterfoil_added (id integer not null, PRIMARY KEY (id))",
}


def newer(dialect: str) -> dict[str, Any]:
    """Return what code with one migration more has in place of this code's."""
    schema = {**migrator.expected_schema(dialect), "counterfoil_added": ADDED[dialect]}
    return {"migrations": lambda _: (*migrations(dialect), NEXT), "expected_schema": lambda _: schema}


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Killer:
    """A probe that kills its process at the point of one number."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, _point: Point, _name: str) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def pause(point: Point, name: str) -> None:
    """Stop for ever inside the transaction, its own row written."""
    if (point, name) == (Point.AFTER_STATEMENT, "insert_migration"):
        say("here")
        sys.stdin.readline()


def open_once(url: str, probe: Probe = no_probe) -> None:
    Counterfoil.open(url, upgrade=True, probe=probe).close()


def kill_at_each_point(url: str) -> None:
    """Fork children that die, until one lives to the end; this process itself never has a thread."""
    killed = 0
    while True:
        child = os.fork()
        if not child:
            open_once(url, Killer(killed))
            os._exit(0)
        if os.waitpid(child, 0)[1] != signal.SIGKILL:
            break
        killed += 1
    say(str(killed))


def main() -> None:
    url, code, *how = sys.argv[1:]
    if code == "newer":
        for name, value in newer(url.partition(":")[0].replace("postgresql", "postgres")).items():
            setattr(migrator, name, value)
    match how:
        case ["kill"]:
            kill_at_each_point(url)
        case ["pause"]:
            open_once(url, pause)
        case _:
            say("ready")
            sys.stdin.readline()
            open_once(url)


if __name__ == "__main__":
    main()
