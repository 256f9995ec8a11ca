"""Lists are paged by key and use indexes; every read is within one tenant unless its name says otherwise."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil import effect
from counterfoil.core.provider_key import provider_key
from counterfoil.core.states import OperationState
from counterfoil.errors import InvalidArguments, OperationNotFound, TenantMissing
from counterfoil.model import OperationKey, Origin, Trusted
from counterfoil.storage import catalog
from counterfoil.storage.migrator import migrations, statements
from counterfoil.storage.scripts import reads
from counterfoil.storage.scripts.reads import Wish
from tests.colours import COLOURS, Coloured


@effect("reads.note", key="{request_id}/note")
def note(call: Any, *, text: str = "") -> str:
    if text == "lost":
        raise OSError("the wire broke")
    return text


@effect("reads.mail", key="{request_id}/mail")
def mail(call: Any) -> None:
    """Do nothing."""


@pytest.fixture(params=COLOURS)
def each(request: pytest.FixtureRequest, url: str) -> Iterator[Coloured]:
    made = Coloured(request.param, url)
    yield made
    made.close()


def fill(each: Coloured) -> None:
    for number in range(6):
        tenant = ("team-A", "team-B")[number % 2]
        each.call("perform", note, tenant=tenant, request_id=f"r-{number}", text="x")
        each.clock.advance("1m")
    with pytest.raises(Exception, match="unknown"):
        each.call("perform", note, tenant="team-A", request_id="r-8", text="lost")
    each.call("perform", mail, tenant="team-A", request_id="r-4")


def ids(page: Any) -> list[str]:
    return [operation.operation_id for operation in page.items]


def list_(each: Coloured, **asked: Any) -> list[str]:
    return ids(each.call("operations.list", tenant="team-A", **asked))


def test_lists_are_narrowed_and_newest_first(each: Coloured) -> None:
    fill(each)
    assert list_(each) == ["r-4/mail", "r-8/note", "r-4/note", "r-2/note", "r-0/note"]
    assert list_(each, state="unknown") == ["r-8/note"]
    assert list_(each, state="succeeded", effect="reads.note") == ["r-4/note", "r-2/note", "r-0/note"]
    assert list_(each, request_id="r-4") == ["r-4/mail", "r-4/note"]
    assert list_(each, request_id="r-4", effect="reads.mail") == ["r-4/mail"]
    assert list_(each, older_than="3m") == ["r-2/note", "r-0/note"]
    assert list_(each, newer_than="3m") == ["r-4/mail", "r-8/note", "r-4/note"]
    assert list_(each, state="unknown", older_than="1h") == []
    assert ids(each.call("operations.list", tenant="team-C")) == []


def test_pages_follow_one_another_without_gap_or_repeat(each: Coloured) -> None:
    fill(each)
    seen, before = [], None
    while True:
        page = each.call("operations.list", tenant="team-A", limit=2, before=before)
        seen += ids(page)
        if (before := page.next) is None:
            break
    assert seen == list_(each)


def test_a_row_that_comes_between_two_pages_moves_nothing(each: Coloured) -> None:
    fill(each)
    page = each.call("operations.list", tenant="team-A", limit=3)
    each.call("perform", note, tenant="team-A", request_id="r-9", text="new")
    assert ids(each.call("operations.list", tenant="team-A", before=page.next)) == ["r-2/note", "r-0/note"]


@pytest.mark.parametrize("bad", [{"state": "lost"}, {"limit": 0}, {"limit": 1001}])
def test_what_cannot_be_asked_is_refused(each: Coloured, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        list_(each, **bad)


def test_a_tenant_is_required_and_another_tenants_operation_looks_unknown(each: Coloured) -> None:
    fill(each)
    for name, arguments in (("list", ()), ("counts", ()), ("get", ("x",)), ("find", ("x",)), ("explain", ("x",))):
        with pytest.raises(TenantMissing):
            each.call(f"operations.{name}", *arguments, tenant="")
    with pytest.raises(OperationNotFound):
        each.call("operations.get", "r-0/note", tenant="team-B")
    assert each.call("operations.find", "r-0", tenant="team-B") == ()


def test_one_operation_comes_with_its_attempts_cases_and_receipt(each: Coloured) -> None:
    fill(each)
    done = each.call("operations.get", "r-0/note", tenant="team-A")
    assert done.receipt.value == "x"
    assert (done.operation.state, done.operation.age, done.operation.trusted.request_id) == (
        "succeeded",
        360_000,
        "r-0",
    )
    lost = each.call("operations.get", "r-8/note", tenant="team-A")
    assert lost.receipt is None
    assert [(a.attempt, a.outcome, a.error_class) for a in lost.attempts] == [(1, "unknown", "builtins.OSError")]
    assert [case.kind for case in lost.cases] == ["unknown_outcome"]


def attempts(each: Coloured, operation_id: str) -> list[tuple[int, str, bool, int | None]]:
    seen = each.call("operations.get", operation_id, tenant="team-A").attempts
    assert all(a.holder and a.started_at < a.deadline for a in seen)
    return [(a.attempt, a.outcome, a.fence == a.attempt, a.ended_at) for a in seen]


def test_an_attempt_shows_wherever_its_record_is(each: Coloured) -> None:
    start = each.clock.now_ms()
    running = each.abandon(note, tenant="team-A", request_id="r-1", text="x")
    assert attempts(each, running) == [(1, "running", True, None)]
    assert each.call("operations.get", running, tenant="team-A").operation.holder
    each.call("perform", note, tenant="team-A", request_id="r-2", text="x")
    assert attempts(each, "r-2/note") == [(1, "succeeded", True, start)]
    assert each.call("operations.get", "r-2/note", tenant="team-A").operation.holder is None
    each.clock.advance("2m")
    case = each.call("review.open", running, tenant="team-A")
    assert attempts(each, running) == [(1, "unknown", True, start + 120_000)]
    verdict = {"verdict": "did_not_happen_retry", "by": "eve", "reason": "x", "expect_version": case.version}
    each.call("review.resolve", case.case_id, tenant="team-A", **verdict)
    each.call("perform", note, tenant="team-A", request_id="r-1", text="x")
    now = start + 120_000
    assert attempts(each, running) == [(1, "not_sent", True, now), (2, "succeeded", True, now)]


def test_counts_name_every_state(each: Coloured) -> None:
    fill(each)
    counts = each.call("operations.counts", tenant="team-A")
    assert counts == dict.fromkeys(OperationState, 0) | {"succeeded": 4, "unknown": 1}


def test_every_kind_of_id_leads_to_its_operation(each: Coloured) -> None:
    place = Origin(thread_id="t-1", checkpoint_id="c-1", run_id="run-1", trace_id="trace-1")
    trusted = Trusted(tenant="team-A", request_id="r-1", workflow_id="w-1", thread_id="t-1")
    each.call("perform_as", note, {}, trusted, place)
    with pytest.raises(Exception, match="unknown"):
        each.call("perform", note, tenant="team-A", request_id="r-2", text="lost")
    key = provider_key(OperationKey(tenant="team-A", operation_id="r-1/note"))
    expected = {
        "r-1/note": "operation", "r-1": "request", "w-1": "workflow", "t-1": "thread", "c-1": "checkpoint",
        "run-1": "run", "trace-1": "trace", key: "provider key", key[:32]: "provider key",
        "r-1/n": "beginning of the operation id",
    }  # fmt: skip
    for text, found_by in expected.items():
        (hit,) = each.call("operations.find", text, tenant="team-A")
        assert (hit.found_by, hit.operation.operation_id) == (found_by, "r-1/note"), text
    (hit,) = each.call("operations.find", "case-1", tenant="team-A")
    assert (hit.found_by, hit.operation.operation_id) == ("case", "r-2/note")
    for nothing in ("nope", "f" * 64, "case-77", "", "%", "r-_"):
        hits = each.call("operations.find", nothing, tenant="team-A")
        assert hits == (), nothing


def test_the_operator_reads_across_tenants(each: Coloured) -> None:
    fill(each)
    store = each.desk.store
    page = store.read(lambda: reads.list_operations(None, Wish(limit=3)))
    rest = store.read(lambda: reads.list_operations(None, Wish(before=page.next or 0)))
    assert len(page.items) == 3
    assert len({operation.seq for operation in (*page.items, *rest.items)}) == 8
    assert ids(store.read(lambda: reads.list_operations(None, Wish(state=OperationState.UNKNOWN)))) == ["r-8/note"]
    assert ids(store.read(lambda: reads.list_operations(None, Wish(request_id="r-3")))) == ["r-3/note"]
    assert {hit.operation.tenant for hit in store.read(lambda: reads.find(None, "r-", limit=50))} == {
        "team-A",
        "team-B",
    }


# --- the statements --------------------------------------------------------------------------------------------------

READS = catalog.parse((Path(catalog.__file__).parent / "statements" / "reads.sql").read_text("utf-8"))


def plan(name: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    for migration in migrations("sqlite"):
        for text in statements(migration.sql):
            connection.execute(text)
    statement = catalog.load("sqlite")[name]
    rows = connection.execute(f"explain query plan {statement.sql}", dict.fromkeys(statement.params, None))
    found = [row[3] for row in rows]
    connection.close()
    return found


@pytest.mark.parametrize("name", READS)
def test_every_statement_is_within_a_tenant_or_says_so(name: str) -> None:
    sql = READS[name].sql
    tables = sql.count("from counterfoil_")
    assert sql.count("tenant = :tenant") == (0 if name.endswith("_any_tenant") else tables)


@pytest.mark.parametrize("name", READS)
def test_no_statement_scans_a_table_or_skips_rows_by_offset(name: str) -> None:
    assert "offset" not in READS[name].sql
    assert [step for step in plan(name) if step.startswith("SCAN counterfoil_")] == []


ORDERED = ("list_operations", "list_operations_of_request", "list_operations_of_thread", "list_operations_in_state")


@pytest.mark.parametrize("name", [*ORDERED, "list_cases_in_state"])
def test_pages_come_in_the_order_of_the_index(name: str) -> None:
    assert not any("TEMP B-TREE" in step for step in plan(name))


def test_operations_in_an_unusual_state_are_found_by_the_small_index() -> None:
    assert any("counterfoil_operation_state" in step for step in plan("list_operations_in_state"))
