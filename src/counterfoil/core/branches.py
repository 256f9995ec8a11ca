"""Branches: named lines of history, whose operations have ids of their own.

An operation that is performed in the branch `what-if` gets the id that it would have otherwise, with
`~branch-what-if` behind it; in a branch of that branch another such mark follows. No plain id can spell the mark:
templates escape the `~` in values and refuse it elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

from counterfoil.errors import InvalidId

MARK: Final = "~branch-"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_MARKED: Final = re.compile(rf"{MARK}({_NAME.pattern})")
_WITHIN: Final = "~"


def validate_branch(name: object) -> str:
    """Return a branch's name if it can be told apart in an id.

    Raises:
        InvalidId: it is not made of letters, digits, `-` and `_`, or too long.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidId(
            f"The branch name {name!r} cannot be part of an id: use up to 40 letters, digits, '-' and '_', beginning"
            " with a letter or digit, as in branch='what-if'."
        )
    return name


def validate_path(path: object) -> str | None:
    """Return a branch's path of names, such as `what-if` or `what-if~deeper`; None is the main line.

    Raises:
        InvalidId: it is no text, or one of its names is none.
    """
    if path is None:
        return None
    return _WITHIN.join(map(validate_branch, path.split(_WITHIN) if isinstance(path, str) else (path,)))


def within(branch: str | None, name: str) -> str:
    """Return the path of a branch that leaves another one, or the main line."""
    return name if branch is None else f"{branch}{_WITHIN}{name}"


def marked(plain_id: str, branch: str | None) -> str:
    """Return the id that something has in a branch."""
    return plain_id if branch is None else plain_id + "".join(f"{MARK}{name}" for name in branch.split(_WITHIN))


def branch_of(operation_id: str) -> str | None:
    """Return the branch in which an operation was performed, or None for the main line."""
    return _WITHIN.join(_MARKED.findall(operation_id)) or None


def plain_id(operation_id: str) -> str:
    """Return the id that the same business action has on the main line."""
    return _MARKED.sub("", operation_id)


def thread_in_keys(thread_id: str | None, branch: str | None) -> str | None:
    """Return what keys call a thread in which something was performed; that of a branch has its marks behind that."""
    if thread_id is None or branch is None:
        return thread_id
    for name in reversed(branch.split(_WITHIN)):
        thread_id = thread_id.removesuffix(f"{MARK}{name}")
    return thread_id
