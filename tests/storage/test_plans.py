"""On PostgreSQL no statement reads a large table through, nor a tenant's or a thread's rows for one page of them.

Each statement is run and undone in a ledger of a realistic size, with each kind of plan that it may meet: made for its
parameters, made for any, and what the server chooses by itself after it has been run a few times.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from counterfoil.drivers.postgres import PostgresStore
from counterfoil.drivers.urls import PostgresUrl
from counterfoil.storage import catalog
from counterfoil.storage.script import Ddl, Script
from counterfoil.storage.scripts.reads import Wish, get_operation, list_operations
from tests.postgres.databases import Database
from tests.postgres.servers import Server
from tests.storage.asking import LARGE, asked

STATEMENTS = catalog.load("postgres")
CROWD = Path(__file__).with_name("crowd.sql").read_text("utf-8")
SMALL = "tenant-small"

COLD = {
    # whole tables, for those who judge a database
    "list_all_attempts", "list_all_cases", "list_all_evidence", "list_all_operations", "list_migrations",
    # the catalog, when a database is opened
    "find_ours", "list_rights", "list_schema",
    # a person counts a tenant's operations
    "count_operations",
}  # fmt: skip
BOUND = 400
"""Rows that a statement may look at: a page of 51 with what belongs to it, or a thread."""
CUSTOM, GENERIC, AUTO = "force_custom_plan", "force_generic_plan", "auto"


def kinds_of_plans(name: str) -> tuple[str, ...]:
    """A statement with optional parts is never prepared, so that each of its plans is made for its parameters."""
    return (CUSTOM,) if STATEMENTS[name].varies else (CUSTOM, GENERIC, AUTO)


def named_in(*files: str) -> set[str]:
    folder = Path(catalog.__file__).parent / "statements"
    texts = (path.read_text("utf-8") for file in files for path in folder.rglob(file))
    return {name for text in texts for name in re.findall(r"^-- name: (\w+)", text, re.MULTILINE)}


ON_THE_WAY = named_in("ledger.sql", "threads.sql", "checkpoints.sql") - COLD
"""What operations and checkpoints wait for, also before the tables were ever analyzed; the rest is for people."""

THROUGH = (
    named_in("history.sql") | {name for name in STATEMENTS if name.startswith("delete_thread_")} | {"list_lineage"}
)
"""What goes through a whole thread because that is what is asked for: once, however long it is."""
FEW_ROWS = {"counterfoil_pause"}
"""Tables with a row for each thing that a person did and has not undone; they are read through."""
LENGTH = 10_000
"""Checkpoints of the long thread; each has two channel values and two writes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a plan did: the tables that it read through, and how many rows it looked at."""

    scanned: list[str]
    rows: int
    text: str


class Crowd:
    """A connection to the large ledger, on which statements are explained as they run, and undone."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def run(self, sql: str) -> None:
        self._connection.execute(sql.encode())

    def fetched(self, sql: str) -> list[Any]:
        return self._connection.execute(sql.encode()).fetchall()

    def seen(self, name: str, how: str, **differently: Any) -> Seen:
        """Run a prepared statement with one kind of plan."""
        params = {**asked(name), **differently}
        numbered = {key: f"${number}" for number, key in enumerate(params, start=1)}
        sql = re.sub(r"(?<![:\w]):([a-z_]+)", lambda found: numbered[found[1]], STATEMENTS[name].sql)
        call = f"execute it ({', '.join(['%s'] * len(params))})" if params else "execute it"
        client = psycopg.ClientCursor(self._connection)
        with self._connection.transaction(force_rollback=True):
            self.run(f"set local plan_cache_mode = {how}; deallocate all; prepare it as {sql}")
            for _ in range(6 if how == AUTO else 0):  # the server makes up its mind after five
                client.execute(f"explain {call}".encode(), [*params.values()])
            client.execute(f"explain (analyze, timing off, format json) {call}".encode(), [*params.values()])
            ((found,),) = client.fetchall()
        return read(found[0]["Plan"])

    def worst(self, name: str) -> Seen:
        """Return the worst of a statement's plans, for a tenant with half of everything and one with very little."""
        tenants = ({"tenant": tenant} for tenant in (LARGE, SMALL)) if "tenant" in asked(name) else ({},)
        each = [(tenant, how) for tenant in tenants for how in kinds_of_plans(name)]
        return max((self.seen(name, how, **tenant) for tenant, how in each), key=lambda seen: (seen.scanned, seen.rows))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def read(plan: dict[str, Any]) -> Seen:
    reading = [node for node in nodes(plan) if "Relation Name" in node and "Scan" in node["Node Type"]]
    return Seen(
        sorted(
            node["Relation Name"]
            for node in reading
            if node["Node Type"].endswith("Seq Scan") and node["Relation Name"] not in FEW_ROWS
        ),
        sum(looked_at(node) for node in reading),
        ", ".join(f"{n['Node Type']} {n.get('Index Name', n['Relation Name'])} {looked_at(n)}" for n in reading),
    )


def looked_at(node: dict[str, Any]) -> int:
    names = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return int(sum(node.get(name, 0) for name in names) * node["Actual Loops"])


@pytest.fixture(scope="module")
def crowd(postgres_server: Server, postgres_names: Iterator[str], postgres_template: str) -> Iterator[Crowd]:
    name = next(postgres_names)
    url = postgres_server.create_database(name, template=postgres_template)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        connection.execute("set statement_timeout = '60s'")  # ends what compares each row of a thread with each other
        connection.execute(CROWD.encode())
        yield Crowd(connection)
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def analyzed(crowd: Crowd) -> Crowd:
    crowd.run("analyze")
    return crowd


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(ON_THE_WAY - THROUGH))
def test_what_others_wait_for_is_read_by_keys_before_any_analysis(crowd: Crowd, name: str) -> None:
    seen = crowd.worst(name)
    assert (seen.scanned, seen.rows <= BOUND) == ([], True), seen


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - COLD - THROUGH))
def test_no_statement_reads_a_table_a_tenant_or_a_long_thread_through(analyzed: Crowd, name: str) -> None:
    seen = analyzed.worst(name)
    assert (seen.scanned, seen.rows <= BOUND) == ([], True), seen


@pytest.mark.parametrize("name", sorted(THROUGH))
def test_what_goes_through_a_thread_does_so_once(analyzed: Crowd, name: str) -> None:
    seen = analyzed.worst(name)
    assert (seen.scanned, seen.rows <= 5 * LENGTH) == ([], True), seen


def test_a_line_is_read_no_further_back_than_is_asked(analyzed: Crowd) -> None:
    for how in kinds_of_plans("list_lineage"):
        ((seq,),) = analyzed.fetched("select seq from counterfoil_checkpoint where checkpoint_id = 'l-8990'")
        for oldest, most in ((seq, 24), (2**63 - 1, 4)):
            seen = analyzed.seen("list_lineage", how, oldest=oldest)
            assert (seen.scanned, seen.rows <= most) == ([], True), seen


@pytest.mark.parametrize("name", sorted(each for each in COLD if each.startswith(("list_all_", "count_"))))
def test_what_is_called_cold_is(analyzed: Crowd, name: str) -> None:
    assert analyzed.worst(name).rows > BOUND


def test_a_statement_with_optional_parts_is_never_prepared(worker_database: Database) -> None:
    store = PostgresStore(PostgresUrl(worker_database.url), connections=1)
    wish = Wish()

    def prepared() -> Script[Any]:
        return (yield Ddl("select statement from pg_prepared_statements"))

    try:
        for _ in range(8):
            store.read(lambda: list_operations("t", wish))
            store.read(lambda: get_operation("t", "o"))
        texts = [row["statement"] for row in store.read(prepared)]
    finally:
        store.close()
    assert len(texts) == 1
    assert "operation_id = $2" in texts[0]
