"""Find the programs of an installed PostgreSQL, and PgBouncer."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MISSING = (
    "PostgreSQL 13 or newer is needed: apt-get install postgresql (elsewhere: put initdb on PATH), "
    "or set COUNTERFOIL_TEST_POSTGRES_URL to a server on which databases may be created"
)
MISSING_PGBOUNCER = "PgBouncer is needed: apt-get install pgbouncer (elsewhere: put pgbouncer on PATH)"


def folders() -> Iterator[Path]:
    """List where the programs may be, the most deliberate choice first."""
    if found := shutil.which("initdb"):
        yield Path(found).parent
        yield Path(found).resolve().parent
    if config := shutil.which("pg_config"):
        done = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(done.stdout.strip())
    versions = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(versions, key=version_in_path, reverse=True)
    yield Path("/usr/local/pgsql/bin")


def version_in_path(path: Path) -> int:
    with suppress(IndexError):
        return int(re.findall(r"\d+", str(path))[-1])
    return 0


def find() -> Path | None:
    """Return the first folder that holds both programs."""
    complete = (each for each in folders() if (each / "initdb").is_file() and (each / "postgres").is_file())
    return next(complete, None)


def major(folder: Path) -> int:
    done = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
    return int(re.findall(r"\d+", done.stdout)[0])


def find_pgbouncer() -> Path | None:
    # Debian puts it where only root's PATH leads.
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
    found = shutil.which("pgbouncer", path=os.pathsep.join(places))
    return Path(found) if found else None
