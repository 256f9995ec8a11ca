"""The hiring workflow survives a kill anywhere with one mail, one charge and the same end; the table follows counts."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from click.testing import CliRunner

from counterfoil import Counterfoil
from counterfoil.cli.main import cli
from counterfoil.demo import tickets
from counterfoil.demo.hiring import matrix, office, screening, workflow
from counterfoil.demo.hiring.cuts import INTENT, MARKERS, OUTCOME, AtCommit, Cut, Idle, InCharge, InMail, Knife
from counterfoil.demo.hiring.matrix import GATEWAY, Cell, KillPoint, Matrix
from counterfoil.demo.hiring.office import Office
from counterfoil.demo.hiring.timeline import ANNS_OLD_GRADE, MOMENTS, WORKFLOW, given
from counterfoil.demo.hiring.trial import Done, Left, Servers, Trial
from counterfoil.demo.stage import DemoBroken
from counterfoil.drivers.probes import Point
from counterfoil.providers.smtp import Mailer
from counterfoil.storage import catalog
from counterfoil.testing import mail
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.mail_client import CountingMailServer
from counterfoil.testing.provider_client import CountingProvider
from tests import stores

CELL = {"engine", "store", "kill_point", "mails_max", "charges", "reviews", "same_final_state"}
ROUNDS = {
    ("ann@example.org", "Your interview"),
    ("bob@example.org", "Your interview"),
    ("bob@example.org", "Your interview: we have not heard from you"),
    ("ann@example.org", "Our offer"),
    ("bob@example.org", "Your application"),
    ("cy@example.org", "Your application"),
}


# --- really played ----------------------------------------------------------------------------------------------------


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "counterfoil", "demo", "hiring", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("store", [stores.FILE, pytest.param(stores.POSTGRES, marks=pytest.mark.soak)], indirect=True)
def test_a_kill_of_each_kind_leaves_one_mail_one_charge_and_the_same_end(url: str) -> None:
    done = demo("--quick", "--json", *(("--url", url) if stores.is_postgres(url) else ()))
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    cells = told["cells"]
    assert all(cell.keys() == CELL for cell in cells)
    assert {(cell["mails_max"], cell["charges"], cell["same_final_state"]) for cell in cells} == {(1, 1, True)}
    assert {cell["engine"] for cell in cells} == {"embedded"}
    assert {cell["store"] for cell in cells} == {"postgresql" if stores.is_postgres(url) else "sqlite"}
    points = [cell["kill_point"] for cell in cells]
    assert all(any(what in point for point in points) for what in MARKERS.values())
    # where a mail server, or a gateway without keys, may have acted; and nowhere else
    assert sum(cell["reviews"] for cell in cells) == len([p for p in points if _is_opaque(p)]) == 6


def _is_opaque(point: str) -> bool:
    is_under_way = "has taken" in point or "has charged" in point or f"after the commit of {INTENT}" in point
    is_under_way = is_under_way or f"before the commit of {OUTCOME}" in point
    return is_under_way and ("without keys" in point or "has charged" not in point)


@pytest.mark.soak
@stores.on_each(stores.POSTGRES)
def test_one_of_three_workers_is_killed_and_the_others_go_on(url: str) -> None:
    done = demo("--quick", "--json", "--engine", "procrastinate", "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    (cell,) = json.loads(done.stdout)["cells"]
    assert (cell["engine"], cell["store"], cell["mails_max"], cell["charges"]) == ("procrastinate", "postgresql", 1, 1)
    assert cell["same_final_state"]
    assert cell["kill_point"].startswith("start: one of three workers, ")


@pytest.mark.soak
@stores.on_each(*stores.SHARED)
def test_a_kill_anywhere_leaves_one_mail_one_charge_and_the_same_end(url: str) -> None:
    line = [sys.executable, "-m", "counterfoil", "demo", "hiring", "--json"]
    line += ["--url", url] if stores.is_postgres(url) else []
    done = subprocess.run(line, capture_output=True, text=True, timeout=1800, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["cells"]) > 150


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with CountingMailServer() as mailbox, CountingProvider(module=GATEWAY) as gateway:
        yield Servers(mailbox, gateway)


def at(url: str, servers: Servers, folder: Path, **changes: Any) -> Office:
    made = Office(url=url, mail_port=servers.mail.port, gateway=servers.gateway.url, reports=folder)
    return replace(made, **changes)


def play(place: Office, servers: Servers, cut: Cut | None = None) -> Left:
    return Trial(place, servers, cut).play()


@pytest.mark.slow
def test_undisturbed_it_waits_for_days_and_tells_everybody_once(url: str, servers: Servers, tmp_path: Path) -> None:
    place = at(url, servers, tmp_path)
    left = play(place, servers)
    assert dict(left.mails) == dict.fromkeys(ROUNDS, 1)
    assert (left.charges, left.reviews, left.state["status"]) == (1, 0, "done")
    assert left.state["result"]["hired"] == "ann"  # by the newer of her grades, though the older came later
    assert ANNS_OLD_GRADE.payload["grade"] < workflow.LEAST_GRADE
    assert left.state["result"]["grades"] == {"ann": 5}  # what came after the time-out, and after the end, is not taken
    assert "Hired: ann" in (tmp_path / f"{WORKFLOW}.md").read_text("utf-8")
    inbox = "select name, subject, sequence, state from counterfoil_event order by seq"
    assert stores.execute(url, inbox) == [
        ("slot", "ann", None, "taken"),
        ("feedback", "ann", 2, "taken"),
        ("feedback", "ann", 1, "superseded"),
        ("slot", "bob", None, "taken"),
        ("feedback", "bob", 1, "too_late"),
    ]


@pytest.mark.slow
def test_no_credential_and_no_client_is_anywhere_in_the_database(url: str, servers: Servers, tmp_path: Path) -> None:
    play(at(url, servers, tmp_path), servers, InCharge(5))
    kept = stores.stored(url)
    assert WORKFLOW.encode() in kept
    assert b"ann@example.org" in kept, "what the state may hold is found"
    canaries = [office.MAIL_PASSWORD, office.STRIPE_KEY, "_secret_", "StripeClient", "smtplib", "Mailer", "0x7f"]
    assert [canary for canary in canaries if canary.encode() in kept] == []
    cvs = [path.read_text("utf-8").splitlines()[1] for path in screening.CVS.glob("*.txt")]
    assert [line for line in cvs if line.encode() in kept] == [], "CVs are kept by reference"


@pytest.mark.slow
@stores.on_each(stores.FILE)
def test_a_place_that_no_worker_comes_to_breaks_the_demo_off(url: str, servers: Servers, tmp_path: Path) -> None:
    with pytest.raises(DemoBroken, match="no worker came to"):
        play(at(url, servers, tmp_path), servers, AtCommit(0, OUTCOME, 99, "before"))


@pytest.mark.slow
@stores.on_each(stores.FILE)
def test_a_cv_that_was_exchanged_stops_the_workflow_before_anybody_is_invited(
    url: str, servers: Servers, tmp_path: Path
) -> None:
    (tmp_path / "cvs").mkdir()
    file = tmp_path / "cvs" / "dan.txt"
    file.write_text("Dan\nPython and PostgreSQL.\n", "utf-8")
    cv = screening.handed_in("dan", "dan@example.org", file)
    file.write_text("Dan\nPython, PostgreSQL, and a team.\n", "utf-8")
    servers.mail.reset()
    with Counterfoil.open(url) as cf:
        graph = workflow.build(screening.Screening(folder=tmp_path / "cvs"))
        cf.workflows.register(graph, name="hiring")
        cf.workflows.start("hiring", {"fee_cents": 1, "cvs": [cv]}, tenant="t", workflow_id="w")
        cf.drain()
        found = cf.workflows.get("w", tenant="t")
    assert (found.error_class, servers.mail.count()) == ("CvChanged", 0)


@stores.on_each(stores.FILE)
def test_a_model_scores_each_cv_once_whatever_its_workflow_waits_for(url: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def model(text: str) -> int:
        asked.append(text.splitlines()[0])
        return 9

    with Counterfoil.open(url, clock=(clock := FakeClock())) as cf:
        cf.resources.provide(Mailer, Letterbox)  # type: ignore[arg-type]  # it sends as a mailer does
        cf.workflows.register(workflow.build(screening.Screening(scorer=model)), name="hiring")
        cf.workflows.start("hiring", given(), tenant="t", workflow_id=WORKFLOW)
        for _ in range(3):
            cf.drain()
            clock.advance("25h")
        assert cf.workflows.get(WORKFLOW, tenant="t").status == "waiting"
    assert asked == ["Ann Example", "Bob Example", "Cy Example"]


class Letterbox:
    """Takes every mail."""

    def send(self, _call: object, _message: object) -> dict[str, str]:
        return {"message_id": "<1@example.org>"}


# --- what the state can hold ------------------------------------------------------------------------------------------


def test_the_state_has_room_for_plain_values_only() -> None:
    for kind in (workflow.Hiring, workflow.Applicant, screening.Cv):
        named = " ".join(str(hint) for hint in get_type_hints(kind).values())
        assert not any(word in named for word in ("Any", "object", "Client", "Mailer", "bytes")), named


@pytest.mark.parametrize("module", [workflow, screening])
def test_the_graph_knows_no_client_and_no_credential(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not any(name.endswith(("office", "smtp", "stripe", "smtplib")) for name in modules)


def test_the_canaries_are_what_the_servers_are_logged_in_to_with() -> None:
    assert (office.MAIL_USER, office.MAIL_PASSWORD) == (mail.USER, mail.PASSWORD)


# --- where to kill ----------------------------------------------------------------------------------------------------


class Died(BaseException):
    pass


def passing(knife: Knife, *names: str) -> None:
    for name in names:
        knife(Point.BEFORE_STATEMENT, name)
    knife(Point.BEFORE_COMMIT, "")
    knife(Point.AFTER_COMMIT, "")


@pytest.mark.parametrize(("side", "committed"), [("before", 1), ("after", 1)])
def test_the_knife_counts_statements_and_not_commits(
    side: Any, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise Died

    monkeypatch.setattr("counterfoil.demo.hiring.cuts.die", die)
    knife = Knife()
    knife.arm(AtCommit(0, "a new wait", 3, side))
    passing(knife, "insert_wait", "lock_thread")
    passing(knife, "lock_thread")
    with pytest.raises(Died):
        passing(knife, "insert_wait", "insert_wait")
    assert knife.committed == {"a new wait": committed}


def test_every_marker_is_a_statement() -> None:
    named = set(catalog.load("sqlite")) | set(catalog.load("postgres"))
    assert MARKERS.keys() <= named


DONE = Done(
    committed={INTENT: 2, OUTCOME: 2, "the look at what is due": 4},
    mails=(("ann@example.org", "Our offer"),),
    charges=1,
    operations=("hiring-1/fee", "hiring-1/mail/ann/offer"),
    opaque=(False, True),
)


def test_a_review_is_expected_only_where_an_attempt_is_under_way_that_can_neither_be_repeated_nor_asked_about() -> None:
    points = matrix.kill_points([DONE])
    assert [point.cut for point in points if point.reviews] == [
        AtCommit(0, INTENT, 2, "after"),
        AtCommit(0, OUTCOME, 2, "before"),
        InMail(0, "ann@example.org", "Our offer"),
    ]
    assert sum(isinstance(point.cut, AtCommit) for point in points) == 2 + 4 + 4


def test_without_keys_a_review_is_expected_around_the_charge() -> None:
    blind = replace(DONE, opaque=(True, True))
    assert [point.reviews for point in matrix.of_the_fee([blind])] == [0, 1, 1, 0, 1]


# --- the table and the exit code --------------------------------------------------------------------------------------


def a_cell(**changes: Any) -> Cell:
    point = KillPoint(cut=Idle(0), reviews=changes.pop("expected", 0))
    good: dict[str, Any] = {"mails_max": 1, "charges": 1, "reviews": 0, "same_final_state": True}
    return Cell(engine="embedded", store="sqlite", point=point, **{**good, **changes})


def a_matrix(*cells: Cell, status: str = "done") -> Matrix:
    left = Left(mails={("ann@example.org", "Our offer"): 1}, charges=1, reviews=0, state={"status": status})
    return Matrix(undisturbed=left, cells=cells)


BAD = [
    a_cell(mails_max=2),
    a_cell(mails_max=0),
    a_cell(charges=2),
    a_cell(charges=0),
    a_cell(reviews=1),
    a_cell(expected=1),
    a_cell(same_final_state=False),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda cell: f"{cell.mails_max}-{cell.charges}-{cell.reviews}")
def test_a_bad_cell_is_named_and_exits_with_8(monkeypatch: pytest.MonkeyPatch, bad: Cell) -> None:
    monkeypatch.setattr(matrix, "play_all", lambda *_, **__: a_matrix(a_cell(), bad))
    told = CliRunner().invoke(cli, ["demo", "hiring"])
    assert (told.exit_code, told.output.count("<- bad"), "NOT AS IT MUST BE" in told.output) == (8, 1, True)
    as_json = CliRunner().invoke(cli, ["demo", "hiring", "--json"])
    assert (as_json.exit_code, json.loads(as_json.output)["bad"]) == (8, 1)


@pytest.mark.parametrize("played", [a_matrix(), a_matrix(a_cell(), status="waiting")], ids=["nothing", "not done"])
def test_nothing_played_or_a_workflow_that_does_not_end_is_no_success(
    monkeypatch: pytest.MonkeyPatch, played: Matrix
) -> None:
    monkeypatch.setattr(matrix, "play_all", lambda *_, **__: played)
    told = CliRunner().invoke(cli, ["demo", "hiring"])
    assert (told.exit_code, "NOT AS IT MUST BE" in told.output) == (8, True)


def test_good_cells_exit_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    good = a_matrix(a_cell(), a_cell(reviews=1, expected=1))
    monkeypatch.setattr(matrix, "play_all", lambda *_, **__: good)
    told = CliRunner().invoke(cli, ["demo", "hiring"])
    assert (told.exit_code, "0 of the runs were bad" in told.output) == (0, True)
    assert f"{MOMENTS[0].label}: everything due is done" in told.output


def test_where_chance_kills_one_review_at_most_is_allowed() -> None:
    assert [a_cell(expected=None, reviews=n).keeps_promise for n in range(3)] == [True, True, False]


def test_an_engine_that_needs_another_database_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "_servers", lambda *_: pytest.fail("it ran"))
    nowhere = CliRunner().invoke(cli, ["demo", "hiring", "--engine", "procrastinate"])
    assert (nowhere.exit_code, "name a database with --url" in nowhere.output) == (2, True)


@stores.on_each(stores.FILE)
def test_procrastinate_in_a_file_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(matrix, "_servers", lambda *_: pytest.fail("it ran"))
    told = CliRunner().invoke(cli, ["demo", "hiring", "--engine", "procrastinate", "--url", url])
    assert (told.exit_code, told.output.startswith("error[invalid-arguments]")) == (2, True)


def test_a_demo_that_breaks_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise DemoBroken("a worker ended with exit code 1")

    monkeypatch.setattr(matrix, "play_all", broken)
    told = CliRunner().invoke(cli, ["demo", "hiring"])
    assert (told.exit_code, told.stderr) == (1, "error: the demo broke off: a worker ended with exit code 1.\n")


def test_a_missing_extra_is_refused_with_the_line_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "find_spec", lambda _name: None)
    result = CliRunner().invoke(cli, ["demo", "hiring"])
    assert (result.exit_code, "pip install 'counterfoil[demo]'" in result.output) == (2, True)
