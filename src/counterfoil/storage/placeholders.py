"""Find the `:names` in a user's own SQL, and write them as a driver wants them.

What stands in a string, a quoted name or a comment is not a placeholder, nor is a cast (`::text`), nor a name that
nothing stands for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.model import Statement

OWN = "own_"
"""Stands before the names of a user's parameters where ours are bound in the same statement."""

_TOKEN = re.compile(
    r"""
    \b[eE]'(?:[^'\\]|\\.|'')*'          # PostgreSQL's strings with escapes
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | --[^\n]*
    | /\*.*?\*/
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$   # PostgreSQL's dollar quotes
    | ::
    | (?<!\w):(?P<name>[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


def pyformat(statement: Statement[Any]) -> str:
    """Return a user's statement as psycopg reads it inside one of ours, its names told apart from our own."""
    return _pyformat(statement.sql, frozenset(statement.params))


@lru_cache(maxsize=1024)  # a program declares few
def _pyformat(sql: str, names: frozenset[str]) -> str:
    def write(found: re.Match[str]) -> str:
        name = found["name"]
        return f"%({OWN}{name})s" if name in names else found[0].replace("%", "%%")

    written, end = "", 0
    for found in _TOKEN.finditer(sql):
        written += sql[end : found.start()].replace("%", "%%") + write(found)
        end = found.end()
    return written + sql[end:].replace("%", "%%")


def own_params(statement: Statement[Any]) -> dict[str, object]:
    """Return a user's parameters under the names that `pyformat` gives them."""
    return {f"{OWN}{name}": value for name, value in statement.params.items()}
