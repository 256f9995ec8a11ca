"""Every error has its page, every page its error, and what a page says of its error is what the registry says."""

import re
import tomllib
from pathlib import Path

import pytest

from counterfoil.errors import REGISTRY, CounterfoilError

PAGES = Path(__file__).parents[2] / "docs" / "errors"
INDEX = PAGES / "README.md"
OURS = {code: cls for code, cls in REGISTRY.items() if cls.__module__.startswith("counterfoil.")}


def test_every_error_has_a_page_and_every_page_an_error() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {INDEX.stem} == set(OURS)


@pytest.mark.parametrize("code", sorted(OURS))
def test_a_page_tells_what_the_registry_tells(code: str) -> None:
    cls = OURS[code]
    text = (PAGES / f"{code}.md").read_text("utf-8")
    name = cls.exit.name.lower().replace("_", " ")
    assert text.startswith(f"# {code}\n")
    assert f"`counterfoil.errors.{cls.__name__}`" in text
    assert f"| `{cls.retry}`:" in text
    assert f"| {int(cls.exit)} ({name}) |" in text
    for heading in ("## Why", "## What to do"):
        assert heading in text
    assert "```" in text.split("## What to do")[1], "what to do shows a command or code"


def test_the_wheel_holds_the_pages_where_the_command_line_looks_for_them() -> None:
    build = tomllib.loads((PAGES.parents[1] / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {"docs/errors": "counterfoil/docs/errors"}
    assert "/docs" in build["targets"]["sdist"]["include"]  # a wheel may be built from it


def test_the_list_of_errors_is_complete() -> None:
    rows = re.findall(
        r"^\| \[(.+?)\]\((.+?)\.md\) \| `(\w+)` \| `(\w+)` \| (\d+) \|$", INDEX.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [(c, c, k.__name__, str(k.retry), str(int(k.exit))) for c, k in sorted(OURS.items())]


def test_every_concrete_class_has_a_code() -> None:
    def family(cls: type[CounterfoilError]) -> set[type[CounterfoilError]]:
        return {cls}.union(*(family(sub) for sub in cls.__subclasses__()))

    leaves = {cls for cls in family(CounterfoilError) if not cls.__subclasses__()}
    assert {cls for cls in leaves if not cls.code} == set()
