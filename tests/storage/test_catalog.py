"""Statement files are read, checked and rendered; scripts call only what is there."""

import ast
import re
from pathlib import Path

import pytest

from counterfoil.storage import catalog, scripts
from counterfoil.storage.catalog import Statement, parse, render

STATEMENTS = catalog.load("sqlite")
ROOM = Path(scripts.__path__[0])
SCRIPTS = [*sorted(ROOM.glob("*.py")), ROOM.parent / "migrator.py"]


def test_a_block_is_a_name_a_purpose_and_one_statement() -> None:
    text = "-- name: get_one\n-- Read one.\nselect *\nfrom x\nwhere id = :id;\n\n-- name: get_two\n-- Two.\nselect 2;\n"
    one, two = parse(text).values()
    assert one == Statement("get_one", "Read one.", "select *\nfrom x\nwhere id = :id")
    assert two == Statement("get_two", "Two.", "select 2")


def test_a_name_twice_in_one_file_is_refused() -> None:
    block = "-- name: get_one\n-- Read.\nselect 1;\n"
    with pytest.raises(ValueError, match="'get_one' is defined twice"):
        parse(block + block)


def test_an_override_may_use_the_fragments_of_the_file_that_it_is_named_after() -> None:
    known: dict[str, str] = {}
    parse("-- fragment: key\n-- The key.\nwhere id = :id\n\n-- name: get_one\n-- One.\nselect 1 {key};\n", known)
    override = "-- name: get_one\n-- One.\n-- differs: in a word.\nselect one {key};\n"
    assert parse(override, known)["get_one"].sql == "select one where id = :id"


def test_the_dialects_own_time_is_rendered() -> None:
    assert render(Statement("x", "", "select {now}"), "sqlite").sql == "select :now"


def test_parameters_are_found_and_casts_and_words_with_colons_are_not() -> None:
    statement = Statement("x", "", "select a::text, :b from t where c = :d_e and f = 'g:h'")
    assert statement.params == {"b", "d_e"}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=lambda statement: statement.name)
def test_every_statement_says_what_it_is_for_and_is_one(statement: Statement) -> None:
    assert statement.purpose.endswith(".")
    assert ";" not in statement.sql
    assert "{" not in statement.sql


def called(path: Path) -> set[str]:
    """Name the statements that a script calls: literals given to `one_row`, `all_rows`, `lone_row` and `Call`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            if node.func.id in {"one_row", "all_rows", "lone_row", "Call"} and isinstance(first, ast.Constant):
                names.add(str(first.value))
    return names


def literals(path: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_call_only_statements_that_exist(path: Path) -> None:
    assert called(path) - STATEMENTS.keys() - catalog.load("postgres").keys() == set()


def test_every_statement_is_called_by_a_script() -> None:
    used = {name for path in SCRIPTS for name in literals(path)}
    beginnings = tuple(text for text in used if re.fullmatch(r"[a-z]+_[a-z_]*_", text))  # f"delete_thread_{what}"
    assert {name for name in STATEMENTS.keys() - used if not name.startswith(beginnings)} == set()
