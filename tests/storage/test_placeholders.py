"""The names in a user's own SQL are found where they are placeholders, and nowhere else."""

from typing import Any

import pytest

from counterfoil import Statement
from counterfoil.storage.placeholders import own_params, pyformat

LEFT = [
    "select ':n'",
    "select 'it''s :n'",
    r"select E'it\'s :n', e'\\'",
    'select ":n" from "a"":n"',
    "select 1 -- :n",
    "select /* :n\n:n */ 1",
    "select $$ :n $$",
    "select $a$ :n $$ :n $a$",
    "select n::text",
    "select '1'::n",
    "select a[1:n]",
    "select :other, :1, : n",
]


@pytest.mark.parametrize("sql", LEFT)
def test_what_is_no_placeholder_is_left(sql: str) -> None:
    assert pyformat(Statement(sql, n=1)) == sql


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("select :n", "select %(own_n)s"),
        ("select :n::text, (:n)", "select %(own_n)s::text, (%(own_n)s)"),
        ("select ':n', :n", "select ':n', %(own_n)s"),
        (r"select E'\'', :n", r"select E'\'', %(own_n)s"),
        ("select 'x' -- it's\n, :n", "select 'x' -- it's\n, %(own_n)s"),
        ("select $$ it's $$, :n", "select $$ it's $$, %(own_n)s"),
        ("select a[:n]", "select a[%(own_n)s]"),
        ("select :n_2, :n", "select %(own_n_2)s, %(own_n)s"),
    ],
)
def test_placeholders_are_written_as_psycopg_reads_them(sql: str, written: str) -> None:
    assert pyformat(Statement(sql, n=1, n_2=2)) == written


def test_percent_signs_stay_percent_signs() -> None:
    assert pyformat(Statement("select 7 % :n, '100 %', /* % */ $$%$$", n=1)) == (
        "select 7 %% %(own_n)s, '100 %%', /* %% */ $$%%$$"
    )


def test_a_name_of_ours_is_told_from_the_users() -> None:
    statement: Statement[Any] = Statement("select :tenant, :sql;  ", tenant="theirs", sql=1)
    assert pyformat(statement) == "select %(own_tenant)s, %(own_sql)s"
    assert own_params(statement) == {"own_tenant": "theirs", "own_sql": 1}
