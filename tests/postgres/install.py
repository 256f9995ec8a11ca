"""Install the servers of the tests, where this is root's to do and apt's to provide; else say what is missing."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import binaries

CLUSTERS = Path("/etc/postgresql-common/createcluster.conf")


def apt(*arguments: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    program = shutil.which("apt-get")
    assert program is not None
    done = subprocess.run([program, "-qqy", *arguments], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - make shows it


def install(package: str) -> bool:
    return apt("install", package) or (apt("update") and apt("install", package))


@contextmanager
def no_cluster() -> Iterator[None]:
    """Keep the package from starting a server of its own beside those of the tests."""
    install("postgresql-common")
    before = CLUSTERS.read_text() if CLUSTERS.exists() else None
    if before is not None:
        CLUSTERS.write_text(re.sub(r"(?m)^#?\s*create_main_cluster\b.*$", "create_main_cluster = false", before))
    yield
    if before is not None:
        CLUSTERS.write_text(before)


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def provide_postgresql() -> None:
    if os.environ.get("COUNTERFOIL_TEST_POSTGRES_URL") or binaries.find():
        return
    if may_install():
        say("Installing PostgreSQL ...")
        with no_cluster():
            install("postgresql")
    if not binaries.find():
        say(f"{binaries.MISSING}. Without it its tests are skipped; where CI=true they fail.")


def provide_pgbouncer() -> None:
    if binaries.find_pgbouncer():
        return
    if may_install():
        say("Installing PgBouncer ...")
        install("pgbouncer")
    if not binaries.find_pgbouncer():
        say(f"{binaries.MISSING_PGBOUNCER}. Without it the tests of a pooler are skipped.")


if __name__ == "__main__":
    provide_postgresql()
    provide_pgbouncer()
