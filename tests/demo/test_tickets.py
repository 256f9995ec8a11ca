"""Run the real demo once on each store, in a process of its own, and judge what the ticket server counted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from counterfoil import Counterfoil, effect
from tests import stores
from tests.cli.conftest import Line

pytestmark = pytest.mark.slow

# (situation, plain, Counterfoil, unknown): what the server must have counted.
COUNTS = [
    ("killed-after-post", 2, 1, 0),
    ("interrupt-after-post", 2, 1, 0),
    ("reply-lost", 3, 1, 0),
    ("reply-lost-no-lookup", 3, 1, 1),
    ("later-node-fails", 2, 1, 0),
    ("resumed-with-none", 1, 1, 0),
    ("earlier-checkpoint", 2, 1, 0),
    ("two-workers", 2, 1, 0),
    ("other-payload", 2, 1, 0),
    ("three-operations", 3, 3, 0),
    ("reviewer-rejects", 0, 0, 0),
    ("rejected-by-another-route", 1, 0, 0),
    ("parameters-changed", 1, 0, 0),  # until they are approved, too
]

# What Counterfoil's runs must have told: a right count alone could also come from a run that did nothing.
NOTES = {
    "killed-after-post": "killed; found by look-up, finished",
    "interrupt-after-post": "posted, waiting; answered from the receipt, finished",
    "reply-lost": "found by look-up, finished",
    "later-node-fails": "posted, failed; answered from the receipt, finished",
    "resumed-with-none": "posted, failed; finished",
    "earlier-checkpoint": "posted, finished; answered from the receipt, finished",
    "other-payload": "posted, finished; fingerprint-mismatch",
    "three-operations": "posted, finished; posted, finished; posted, finished",
    "reviewer-rejects": "waiting; finished",
    "rejected-by-another-route": "waiting; approval-rejected",
    "parameters-changed": "waiting; waiting; posted, finished",
}


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "counterfoil", "demo", "tickets", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "kept"


@pytest.fixture(scope="module")
def done(kept: Path) -> subprocess.CompletedProcess[str]:
    return demo("--json", "--keep", str(kept))


@pytest.fixture(scope="module")
def printed(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def rows(printed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["situation"]: row for row in printed["rows"]}


def test_nothing_is_said_on_standard_error(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stderr == ""


def test_the_rows_are_the_situations_in_order(rows: dict[str, dict[str, Any]]) -> None:
    assert list(rows) == [slug for slug, *_ in COUNTS]


@pytest.mark.parametrize(("slug", "plain", "counterfoil", "unknown"), COUNTS)
def test_the_server_counted(
    rows: dict[str, dict[str, Any]], slug: str, plain: int, counterfoil: int, unknown: int
) -> None:
    row = rows[slug]
    assert (row["plain"], row["counterfoil"], row["unknown"]) == (plain, counterfoil, unknown)


@pytest.mark.parametrize("slug", NOTES)
def test_the_runs_ended(rows: dict[str, dict[str, Any]], slug: str) -> None:
    assert rows[slug]["note"] == NOTES[slug]


def test_what_had_changed_is_sent_once_when_it_is_approved_too(rows: dict[str, dict[str, Any]]) -> None:
    again = {slug: row["approved_again"] for slug, row in rows.items()}
    assert again.pop("parameters-changed") == 1
    assert set(again.values()) == {None}


def test_an_unknown_outcome_parks_the_run_on_a_case(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["reply-lost-no-lookup"]["note"].startswith("parked on case ")


def test_the_losing_worker_is_refused_before_any_node_ran(rows: dict[str, dict[str, Any]]) -> None:
    first, *workers = rows["two-workers"]["note"].split("; ")
    assert first == "effect-not-sent"
    assert sorted(workers) == ["posted, finished", "thread-busy"]


def test_the_replay_is_shown_for_both(printed: dict[str, Any]) -> None:
    assert printed["replay"] == {
        "plain": {"node_calls": 2, "before": 1, "after": 2, "receipts": [1, 2]},
        "counterfoil": {"node_calls": 2, "before": 1, "after": 1, "receipts": [1, 1]},
    }


def test_the_versions_are_named(printed: dict[str, Any]) -> None:
    assert printed["versions"].keys() >= {"python", "counterfoil", "langgraph", "langgraph-checkpoint-sqlite"}


def test_the_databases_are_kept_on_request(done: subprocess.CompletedProcess[str], kept: Path) -> None:
    assert done.returncode == 0
    names = {path.name for path in kept.glob("*.db")}
    assert names == {"counterfoil.db", *(f"plain-{slug}.db" for slug, *_ in COUNTS)}


def test_a_folder_with_an_earlier_run_is_refused(done: subprocess.CompletedProcess[str], kept: Path) -> None:
    assert done.returncode == 0
    again = demo("--keep", str(kept))
    assert again.returncode == 2
    assert "is not empty" in again.stderr


# --- in a database that somebody names --------------------------------------------------------------------------------


@effect("demo.theirs", key="{request_id}/create-ticket")
def theirs(call: Any, *, title: str) -> str:
    return title


@stores.on_each(stores.POSTGRES)
def test_in_a_named_database_it_counts_the_same_and_touches_nobodys_rows(url: str) -> None:
    everything = "select * from counterfoil_operation order by seq"
    with Counterfoil.open(url) as cf:  # somebody else's operation, under the very names of a situation
        cf.perform(theirs, tenant="team-A", request_id="reply-lost", title="theirs")
    before = stores.execute(url, everything)
    done = demo("--json", "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    counted = [(row["situation"], row["plain"], row["counterfoil"], row["unknown"]) for row in told["rows"]]
    assert counted == COUNTS
    assert {row["situation"]: row["note"] for row in told["rows"] if row["situation"] in NOTES} == NOTES
    assert stores.execute(url, everything)[:1] == before
    tenants = told["kept"]["tenants"]
    for tenant, operations in zip(tenants, (15, 1), strict=True):
        assert len(Line(url).json("ops list --tenant", tenant)) == operations
    for table in ("operation", "thread", "checkpoint"):
        whose = f"select distinct tenant from counterfoil_{table}"  # noqa: S608 - ours
        assert {tenant for (tenant,) in stores.execute(url, whose)} <= {"team-A", *tenants}
    assert url.partition("@")[2] in told["kept"]["database"]
    assert url not in done.stdout
