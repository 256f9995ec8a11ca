"""Links lead to pages and sections that exist, every page is reached from the map, and dotted names can be had."""

import pkgutil
import re
from pathlib import Path

import pytest

from counterfoil.storage.tenants import SETTING

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
DOTTED = re.compile(r"`(counterfoil(?:\.\w+)+)`")


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_sections_that_exist(page: Path) -> None:
    for target, section in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if "://" in target:
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), target
        assert not section or section in anchors(there), f"{target}#{section}"


def test_every_page_is_reached_from_the_map() -> None:
    reached, left = set[Path](), [DOCS / "index.md"]
    while left:
        page = left.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            left += [(page.parent / target).resolve() for target, _ in LINK.findall(page.read_text("utf-8")) if target]
    assert set(DOCS.rglob("*.md")) - reached == set()


@pytest.mark.parametrize("name", sorted({name for page in PAGES for name in DOTTED.findall(page.read_text("utf-8"))}))
def test_a_dotted_name_can_be_had(name: str) -> None:
    assert name == SETTING or pkgutil.resolve_name(name) is not None
