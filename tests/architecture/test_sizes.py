"""Modules and functions stay small enough to be read in one go.

A module fails at 600 lines (reviewers ask at 400), a function at more than 50. Docstrings of functions do
not count, so that nobody saves on explanation.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "counterfoil"
MODULE_LINES = 600
FUNCTION_LINES = 50


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines from `def` to its end, without decorators and docstring."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def too_large(name: str, source: str) -> Iterator[str]:
    lines = len(source.splitlines())
    if lines >= MODULE_LINES:
        yield f"{name}: {lines} lines, must stay under {MODULE_LINES}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > FUNCTION_LINES:
            yield f"{name}:{node.lineno} {node.name}: {body_lines(node)} lines, at most {FUNCTION_LINES}"


def function(lines: int, *, docstring: int = 0) -> str:
    text = ['    """' + "\n    ." * (docstring - 1) + '"""'] if docstring else []
    return "\n".join(["async def f():", *text, *["    pass"] * (lines - 1), ""])


def test_modules_and_functions_are_small() -> None:
    found = [
        each
        for path in sorted(ROOT.rglob("*.py"))
        for each in too_large(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    assert found == []


def test_a_long_function_is_found() -> None:
    assert list(too_large("m", function(50))) == []
    assert list(too_large("m", function(51))) == ["m:1 f: 51 lines, at most 50"]


def test_the_docstring_does_not_count() -> None:
    assert list(too_large("m", function(50, docstring=20))) == []
    assert list(too_large("m", function(51, docstring=20))) == ["m:1 f: 51 lines, at most 50"]


def test_a_long_module_is_found() -> None:
    assert list(too_large("m", "x = 1\n" * 599)) == []
    assert list(too_large("m", "x = 1\n" * 600)) == ["m: 600 lines, must stay under 600"]
