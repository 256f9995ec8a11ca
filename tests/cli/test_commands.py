"""What each command prints, as text and as JSON, and how it exits."""

import getpass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from counterfoil import Counterfoil, Provider, effect
from counterfoil.errors import REGISTRY, EffectRefused, Exit, InvalidCommand
from tests import stores
from tests.cli.conftest import Line, perform


@effect("cli.keyed", key="{request_id}/keyed", provider=Provider(key_lifetime="24h", key_length=40))
def keyed(call: Any) -> str:
    return str(call.provider_key)


@effect("cli.local", key="{request_id}/local", provider=Provider.transactional())
def local(_tx: Any) -> None:
    """Write nothing."""


def test_operations_are_listed_as_an_aligned_table(line: Line) -> None:
    rows = line("ops list --tenant team-A").stdout.splitlines()
    assert rows[0].split() == ["OPERATION", "STATE", "EFFECT", "ATTEMPTS", "AGE"]
    assert [row.split()[:4] for row in rows[1:]] == [
        ["later/ticket", "pending", "cli.ticket", "1"],
        ["refused/ticket", "failed", "cli.ticket", "1"],
        ["lost/ticket", "unknown", "cli.ticket", "1"],
        ["done/ticket", "succeeded", "cli.ticket", "1"],
    ]
    assert len({row.index("cli.ticket") for row in rows[1:]}) == 1
    assert "\x1b" not in "".join(rows)


def test_without_a_tenant_the_table_names_them(line: Line) -> None:
    rows = line("ops list").stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["TENANT", "team-B", "team-A", "team-A", "team-A", "team-A"]


def test_lists_are_narrowed_and_paged(line: Line) -> None:
    assert [row["operation_id"] for row in line.json("ops list --state unknown --older 0s")] == ["lost/ticket"]
    assert line.json("ops list --effect other") == []
    assert line.json("ops list --since 1m --request lost")[0]["attempts"] == 1
    first = line("ops list --limit 2")
    assert first.stderr == "More: add --before 4\n"
    rest = line.json("ops list --limit 3 --before 4")
    assert [row["seq"] for row in rest] == [3, 2, 1]
    assert line("ops list --state cancelled").stdout == "No operation fits.\n"
    error = line.error("ops list --state lost", exit_code=2)
    assert error["code"] == "invalid-arguments"


def test_one_operation_is_shown_with_its_history(line: Line) -> None:
    text = line("ops show lost/ticket").stdout
    assert text.startswith("We do not know.\n")
    for word in ("cli.ticket v1", "builtins.OSError", "case-1", "unknown_outcome", "ATTEMPT"):
        assert word in text
    shown = line.json("ops show done/ticket --tenant team-A")
    assert (shown["answer"], shown["state"]) == ("It happened once.", "succeeded")
    assert shown["receipt"]["value"] == {"id": 981, "title": "done"}
    assert "payload" not in shown


def test_an_id_that_several_tenants_use_is_not_guessed(line: Line) -> None:
    error = line.error("explain done/ticket", exit_code=2)
    assert error["code"] == InvalidCommand.code
    assert "team-A, team-B" in error["message"]


def test_find_says_what_kind_of_id_it_is(line: Line) -> None:
    hits = line.json("find lost")
    assert [(hit["found_by"], hit["operation_id"]) for hit in hits] == [("request", "lost/ticket")]
    assert line("find case-1").stdout.splitlines()[1].split()[:3] == ["case", "team-A", "lost/ticket"]
    assert line.error("find nothing-at-all", exit_code=3)["code"] == "operation-not-found"
    assert line.error("find lost --tenant team-B", exit_code=3)["code"] == "operation-not-found"


def test_the_key_that_the_provider_was_given_is_shown_and_found(line: Line) -> None:
    with Counterfoil.open(line.url) as cf:
        key = cf.perform(keyed, tenant="team-A", request_id="r-9").value
        cf.perform(local, tenant="team-A", request_id="r-9")
    assert len(key) == 40
    for command in ("ops show r-9/keyed", "find r-9/keyed", f"find {key}"):
        assert key in line(command).stdout
    shown = line.json("ops show r-9/keyed")
    assert (shown["provider_key"], line.json("find", key)[0]["provider_key"]) == (key, key)
    assert line.json("review show case-1")["operation"]["provider_key"] in line("review show case-1").stdout
    assert line.json("ops show r-9/local")["provider_key"] is None
    assert "provider key" not in line("ops show r-9/local").stdout


def test_explain_is_five_lines(line: Line) -> None:
    lines = line("explain lost/ticket").stdout.splitlines()
    assert len(lines) == 5
    assert lines[0] == "We do not know. lost/ticket is cli.ticket v1 of tenant team-A."
    assert lines[4].startswith("Run: counterfoil review resolve case-1 --expect-version 1")
    told = line.json("explain lost/ticket")
    assert (told["answer"], told["lines"]) == ("We do not know.", lines)
    assert line.error("explain none", exit_code=3)["code"] == "operation-not-found"


def test_receipts_tell_apart_what_has_none(line: Line) -> None:
    receipt = line.json("receipts show done/ticket --tenant team-A")
    assert (receipt["value"], receipt["marker"]) == ({"id": 981, "title": "done"}, None)
    assert '{"id": 981, "title": "done"}' in line("receipts show done/ticket --tenant team-A").stdout
    expected = {"lost/ticket": ("outcome-unknown", 6), "refused/ticket": ("effect-refused", 1),
                "later/ticket": ("effect-not-sent", 1), "none": ("operation-not-found", 3)}  # fmt: skip
    for operation, (code, exit_code) in expected.items():
        assert line.error(f"receipts show {operation}", exit_code=exit_code)["code"] == code


def test_a_case_tells_what_was_asked_for_where_that_is_wanted(line: Line) -> None:
    assert "arguments" not in line.json("review show case-1")
    asked = line.json("review show case-1 --arguments")["arguments"]
    assert asked == {"title": "lost"}
    assert "Asked for:\n  title  'lost'\n" in line("review show case-1 --arguments").stdout


def test_a_verdict_with_evidence_becomes_the_receipt(line: Line) -> None:
    assert [case["case_id"] for case in line.json("review list")] == ["case-1"]
    shown = line.json("review show case-1")
    assert shown["permitted"] == ["happened", "did_not_happen_retry", "did_not_happen_close"]
    done = line.json("review resolve case-1 --happened --expect-version 1 --evidence", '{"id": 7}')
    assert (done["verdict"], done["verdict_by"], done["version"]) == ("happened", getpass.getuser(), 2)
    assert perform(line, "lost", "lost").value == {"id": 7}
    assert line("review list").stdout == "Nothing waits for a person.\n"
    assert "resolved" in line("review list --state all").stdout
    assert "Run: counterfoil explain lost/ticket" in line("review show case-1").stdout
    late = line.error("review resolve case-1 --noted --by bo --expect-version 1", exit_code=5)
    assert late["code"] == "verdict-conflict"
    assert f"by {getpass.getuser()}" in late["message"]


def test_a_verdict_says_what_the_workflow_gets_and_asks_for_it(line: Line) -> None:
    first = line("review resolve case-1 --happened --expect-version 1 --by mei --evidence", "ticket 17").stdout
    command = "counterfoil review resolve case-1 --expect-version 2 --happened --value JSON"
    assert first.splitlines() == [
        "recorded  case-1  verdict=happened  by=mei",
        "receipt.value raises ReceiptUnreadable: it was settled by a person's verdict that gave no value.",
        f"Give what the effect would have returned. Run: {command}",
    ]
    assert line("review show case-1").stdout.endswith(f"Run: {command}\n")
    assert line.json("review show case-1")["permitted"] == ["happened"]
    told = line("explain lost/ticket").stdout.splitlines()
    assert told[3].startswith("Its receipt has no value yet")
    assert told[4] == f"Run: {command}"
    wrong = line.error("review resolve case-1 --expect-version 2 --happened --value", "ticket 17", exit_code=2)
    assert "Expecting value at line 1, column 1" in wrong["message"]
    second = line("review resolve case-1 --expect-version 2 --happened --by bo --value", '{"id": 17}').stdout
    assert second.splitlines()[1:] == [
        'receipt.value is {"id": 17} (dict)',
        "Call perform again with the same arguments; it gets the receipt, and nothing is sent.",
    ]
    assert perform(line, "lost", "lost").value == {"id": 17}


def test_after_a_verdict_a_thread_is_run_again(line: Line) -> None:
    stores.execute(line.url, "update counterfoil_operation set thread_id = 't-1' where operation_id = 'lost/ticket'")
    resolve = "review resolve case-1 --did-not-happen --retry --expect-version 1 --reason"
    assert line.json(resolve, "not there")["next"] == (
        "Run thread t-1 again with None as input: cf.run(graph, None, tenant='team-A', thread_id='t-1'); it sends the"
        " effect."
    )


def test_the_version_that_is_missing_is_printed_by_the_command_that_is_named(line: Line) -> None:
    error = line.error("review resolve case-1 --happened --evidence x", exit_code=2)
    assert "'--expect-version'" in error["message"]
    assert error["message"].endswith("It is printed by: counterfoil review show case-1")
    assert "(version 1)" in line("review show case-1").stdout


def test_a_verdict_can_close_for_good(line: Line) -> None:
    line("review resolve case-1 --did-not-happen --close --by mei --expect-version 1 --reason", "not wanted any more")
    with pytest.raises(EffectRefused, match="closed by mei: not wanted any more"):
        perform(line, "lost", "lost")


@pytest.mark.parametrize(
    ("flags", "exit_code"),
    [
        ("--happened --expect-version 1", 2),
        ("--did-not-happen --retry --expect-version 1", 2),
        ("--did-not-happen --expect-version 1", 2),
        ("--happened --noted --expect-version 1 --evidence x", 2),
        ("--retry --expect-version 1", 2),
        ("--happened --evidence x", 2),
        ("--happened --evidence {x --expect-version 1", 2),
        ("--happened --value x --expect-version 1", 2),
        ("--happened --value NaN --expect-version 1", 2),
        ("--did-not-happen --retry --value 1 --reason x --expect-version 1", 2),
        ("--happened --evidence x --expect-version 9", 5),
        ("--noted --expect-version 1", 5),
    ],
)
def test_an_incomplete_verdict_changes_nothing(line: Line, flags: str, exit_code: int) -> None:
    line(f"review resolve case-1 {flags}", exit_code=exit_code)
    assert line.json("ops show lost/ticket")["state"] == "unknown"


def test_there_is_nothing_to_open_about_a_settled_operation(line: Line) -> None:
    assert line.json("review open lost/ticket")["case_id"] == "case-1"
    assert line.error("review open refused/ticket", exit_code=5)["code"] == "verdict-conflict"
    assert line.error("review show case-9", exit_code=3)["code"] == "case-not-found"


def without_password(url: str) -> str:
    password = urlsplit(url).password
    return url if password is None else url.replace(f":{password}@", "@")


def test_the_first_list_says_how_to_begin(empty: Line) -> None:
    text = empty("ops list").stdout
    assert text.startswith("No operation yet. Wrap one effect:")
    code = text.split("\n\n", 1)[1]
    compile("\n".join(row.removeprefix("    ") for row in code.splitlines()), "shown", "exec")
    assert f'Counterfoil.open("{without_password(empty.url)}")' in code
    assert empty.json("ops list") == []
    assert empty.json("review list") == []


# --- the database ----------------------------------------------------------------------------------------------------


def test_status_of_a_database_in_order(line: Line) -> None:
    found = line.json("db status")
    assert (found["current"], found["missing"], found["differing"]) == (True, [], [])
    assert found["operations"]["succeeded"] == 2
    assert line("db upgrade").stdout.endswith("is current; nothing to do.\n")
    assert line.json("db upgrade")["applied"] == []


# --- errors, colours, hostile text -----------------------------------------------------------------------------------


def test_an_error_is_its_code_its_message_and_its_page(line: Line) -> None:
    result = line("explain none", exit_code=3)
    first, second = result.stderr.splitlines()
    assert result.stdout == ""
    assert first.startswith("error[operation-not-found]: No operation none exists.")
    assert second == "docs: counterfoil explain operation-not-found"
    assert line.error("explain none", exit_code=3)["docs"] == "errors/operation-not-found.md"


@pytest.mark.parametrize(
    "code", sorted(code for code, cls in REGISTRY.items() if cls.__module__ == "counterfoil.errors")
)
def test_the_page_of_an_error_is_printed_without_a_database(code: str) -> None:
    text = Line("sqlite:///missing.db")(f"explain {code}").stdout
    assert text.startswith(f"# {code}\n")
    assert Line("sqlite:///missing.db").json(f"explain {code}") == {"code": code, "page": text}


def test_an_operation_with_the_id_of_an_error_is_explained_with_its_tenant(line: Line) -> None:
    assert line.error("explain outcome-unknown --tenant team-A", exit_code=3)["code"] == "operation-not-found"


def test_a_wrong_command_line_is_reported_as_json_where_json_is_wanted(line: Line) -> None:
    for command in ("nonsense", "ops nonsense", "ops list --nonsense", "review resolve case-1 --happened"):
        error = line.error(command, exit_code=2)
        assert (error["code"], error["retry"]) == ("invalid-command", "never")
        assert "Usage:" in line(command, exit_code=2).stderr


def test_no_database_is_named_in_three_ways(empty: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = Line("").error("ops list", exit_code=2)
    assert error["code"] == "no-database"
    (tmp_path / "pyproject.toml").write_text(f'[tool.counterfoil]\nurl = "{empty.url}"\n')
    assert Line("").json("ops list") == []
    assert Line("sqlite:///missing.db").json("ops list --url", empty.url) == []


def test_what_is_stored_cannot_drive_the_terminal(line: Line) -> None:
    evidence = "\x1b[2J\x07"
    line("review resolve case-1 --happened --expect-version 1 --evidence", evidence, "--reason", evidence)
    for command in ("receipts show lost/ticket", "ops show lost/ticket", "review show case-1", "explain lost/ticket"):
        assert not set(line(command).output) & {"\x1b", "\x07"}


def test_every_exit_code_in_the_registry_is_one_of_the_tables() -> None:
    assert {cls.exit for cls in REGISTRY.values()} <= set(Exit)


@pytest.mark.parametrize(
    "command",
    [
        "ops list --before",
        "ops list --limit",
        "find x --limit",
        "review list --after",
        "review list --limit",
        "review resolve case-1 --noted --expect-version",
    ],
)
@pytest.mark.parametrize("number", ["9" * 23, "9" * 5000, "-1", "1.5", "x"], ids=lambda text: text[:2])
def test_a_number_that_no_database_holds_is_a_usage_error(empty: Line, command: str, number: str) -> None:
    assert empty.error(command, number, exit_code=2)["code"] == "invalid-command"
