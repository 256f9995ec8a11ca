"""The table, the sentence and the exit code follow from the counts alone."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from counterfoil.cli.main import cli
from counterfoil.demo import showing, stage, tickets
from counterfoil.demo.places import Places
from counterfoil.demo.situations import SITUATIONS
from counterfoil.demo.steps import Report
from counterfoil.demo.tickets import Played, Row
from tests.cli.conftest import Line
from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role

GONE = Places.in_folder(Path("/tmp/gone"), kept=False)  # noqa: S108 - nothing is written there
KEPT = Places.in_folder(Path("/tmp/kept"), kept=True)  # noqa: S108 - nor there
NAMED = Places(
    folder=Path("/tmp/gone"),  # noqa: S108 - nor there
    url="postgresql://me:hunter-22@db/agent",
    shown="postgresql://me@db/agent",
    prefix="demo-1a2b3c4d-",
    kept=True,
)
BY_SLUG = {situation.slug: situation for situation in SITUATIONS}
WAITED = Report(end="waiting", calls=1, receipts=(1,), sources=("effect",))


def played(*counts: int, ends: tuple[str, ...] = ("finished",)) -> Played:
    return Played(counts=counts, reports=tuple(Report(end=end) for end in ends))


def a_row(slug: str, plain: int, counterfoil: Played) -> Row:
    return Row(situation=BY_SLUG[slug], plain=played(plain), counterfoil=counterfoil)


def interrupted(*, after: int = 1, seen: int = 1, source: str = "receipt") -> Row:
    again = Report(end="finished", calls=1, receipts=(seen,), sources=(source,))
    plain = Report(end="finished", calls=1, receipts=(2,))
    return Row(
        situation=BY_SLUG["interrupt-after-post"],
        plain=Played(counts=(1, 2), reports=(WAITED, plain)),
        counterfoil=Played(counts=(1, after), reports=(WAITED, again)),
    )


PARKED = a_row("reply-lost-no-lookup", 3, Played(counts=(1,), reports=(Report(end="parked", detail="C-7"),)))
LOST = a_row("reply-lost", 3, played(1))
GOOD = [interrupted(), LOST, PARKED]


def test_the_columns_are_aligned_and_an_unknown_is_shown_beside_its_count() -> None:
    head, _, first, second, third = showing.table(GOOD).splitlines()
    assert [line.index(count) for line, count in ((first, "2"), (second, "3"), (third, "3"))] == [
        head.index(showing.PLAIN) + len(showing.PLAIN) // 2
    ] * 3
    assert first.endswith("1")
    assert third.endswith("1 (1 unknown)")


@pytest.mark.parametrize(("counts", "shown", "kept"), [((0, 0, 1), "0, then 1", True), ((0, 1, 1), "1, then 1", False)])
def test_what_is_approved_again_is_counted_before_and_after(
    counts: tuple[int, ...],
    shown: str,
    kept: bool,  # noqa: FBT001 - the expectation
) -> None:
    row = a_row("parameters-changed", 1, played(*counts, ends=("waiting", "waiting", "finished")))
    assert showing.table([row]).endswith(shown)
    assert (row.keeps_promise, showing.as_json([*GOOD, row], GONE)["rows"][-1]["approved_again"]) == (kept, 1)


def test_the_totals_are_one_sentence() -> None:
    assert showing.totals(GOOD).endswith(
        "where 3 tickets are right, plain LangGraph opened 8, Counterfoil 3, with 1 outcome reported as unknown and"
        " never guessed."
    )
    assert showing.totals(GOOD[:2]).endswith("opened 5, Counterfoil 2.")


def test_the_replay_names_calls_tickets_and_receipts() -> None:
    assert "plain LangGraph 2/1/2 [1, 2], with Counterfoil 2/1/1 [1, 1]" in showing.as_text(GOOD, GONE)


def test_the_next_step_names_the_kept_database() -> None:
    assert "sqlite:////tmp/kept/counterfoil.db" in showing.as_text(GOOD, KEPT)
    assert "--keep FOLDER" in showing.as_text(GOOD, GONE)
    assert showing.GRAPH.is_file()


@pytest.mark.parametrize(
    ("found", "command"), [("/bin/counterfoil", "counterfoil"), (None, f"{shlex.quote(sys.executable)} -m counterfoil")]
)
def test_the_next_step_can_be_pasted_where_the_command_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, found: str | None, command: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: found)
    told = showing.as_text(GOOD, GONE)
    assert f"\n  {command} demo tickets --keep FOLDER && {command} ops list --url sqlite:///" in told


def test_rows_in_a_named_database_are_said_to_stay_and_can_be_told_apart() -> None:
    told = showing.as_text(GOOD, NAMED)
    assert "rows stay in postgresql://me@db/agent\n" in told
    assert "demo-1a2b3c4d-team-A and demo-1a2b3c4d-team-B" in told
    assert "ops list --tenant demo-1a2b3c4d-team-A --url postgresql://me@db/agent\n" in told
    assert "hunter-22" not in told + json.dumps(showing.as_json(GOOD, NAMED))
    assert "rows stay" not in showing.as_text(GOOD, KEPT)


def test_the_json_says_what_is_kept() -> None:
    kept = {"database": "sqlite:////tmp/kept/counterfoil.db", "tenants": ["team-A", "team-B"]}
    assert showing.as_json(GOOD, KEPT)["kept"] == kept
    assert showing.as_json(GOOD, GONE)["kept"] is None
    assert showing.as_json(GOOD, NAMED)["kept"]["tenants"] == NAMED.tenants


def test_the_json_has_the_counts_and_what_the_runs_told() -> None:
    told = showing.as_json(GOOD, GONE)
    assert told["rows"][0] == {
        "situation": "interrupt-after-post",
        "plain": 2,
        "counterfoil": 1,
        "approved_again": None,
        "unknown": 0,
        "note": "posted, waiting; answered from the receipt, finished",
    }
    assert told["rows"][2]["unknown"] == 1
    assert told["rows"][2]["note"] == "parked on case C-7"
    assert told["replay"]["plain"] == {"node_calls": 2, "before": 1, "after": 2, "receipts": (1, 2)}


@pytest.mark.parametrize(
    "row",
    [
        a_row("reply-lost", 3, played(2)),
        a_row("reply-lost", 3, played(0)),
        a_row("reply-lost", 3, played(1, ends=("failed",))),
        a_row("reply-lost-no-lookup", 3, played(1)),
        a_row("three-operations", 3, played(1, 2, 2, ends=("finished", "finished", "finished"))),
        interrupted(after=2, seen=2, source="effect"),
    ],
    ids=["two", "none", "one but failed", "unknown was guessed", "one of three swallowed", "again after the answer"],
)
def test_a_broken_promise_is_named_and_exits_with_8(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not row.keeps_promise
    monkeypatch.setattr(tickets, "play_all", lambda _folder: [interrupted(), row])
    result = CliRunner().invoke(cli, ["demo", "tickets"])
    assert result.exit_code == 8
    assert f"NOT AS IT MUST BE: {row.situation.slug} " in result.output


def test_kept_promises_exit_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "play_all", lambda _folder: GOOD)
    result = CliRunner().invoke(cli, ["demo", "tickets"])
    assert (result.exit_code, "NOT AS IT MUST BE" in result.output) == (0, False)


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "postgresql://me:hunter-22@127.0.0.1:1/agent", "mysql://x/y"])
def test_a_database_that_cannot_be_used_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(tickets, "play_all", lambda _places: pytest.fail("it ran"))
    result = CliRunner().invoke(cli, ["demo", "tickets", "--url", url])
    assert result.exit_code in {1, 2}
    assert result.output.startswith("error[")
    assert "hunter-22" not in result.output


def test_a_folder_and_a_database_are_one_too_many(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["demo", "tickets", "--keep", str(tmp_path), "--url", "sqlite:///agent.db"])
    assert result.exit_code == 2
    assert "leave one of the two out" in result.output


def test_a_missing_extra_is_refused_with_the_line_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "find_spec", lambda _name: None)
    result = CliRunner().invoke(cli, ["demo", "tickets"])
    assert result.exit_code == 2
    assert "pip install 'counterfoil[demo]'" in result.output
    assert "missing-extra" in result.output


@pytest.fixture
def role(fresh_database: Database) -> Iterator[Role]:
    """A role without rights in a database that has our tables."""
    yield from new_role(fresh_database)


@pytest.mark.parametrize("default", ["off", "on"])
def test_a_role_that_only_reads_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, role: Role, default: str
) -> None:
    """Be it for its rights or for its default."""
    monkeypatch.setattr(tickets, "play_all", lambda _places: pytest.fail("it ran"))
    role.let(read_only=default == "off")
    role.database.execute(f"alter role {role.name} set default_transaction_read_only = {default}")
    result = CliRunner().invoke(cli, ["demo", "tickets", "--url", role.url])
    assert result.exit_code == 4
    assert result.output.startswith("error[rights-missing]")
    assert Line(role.database.url).json("ops list") == []


def test_a_demo_that_breaks_off_says_so_and_shows_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_places: object) -> None:
        raise stage.DemoBroken("a demo process ended with exit code 1")

    monkeypatch.setattr(tickets, "play_all", broken)
    result = CliRunner().invoke(cli, ["demo", "tickets"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the demo broke off: a demo process ended with exit code 1.")
