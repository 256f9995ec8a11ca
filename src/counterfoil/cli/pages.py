"""The pages of the errors: packed into the wheel, and in a checkout where they are written."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from counterfoil.errors import REGISTRY


def page(code: str) -> str | None:
    """Return the page of an error code, or None if there is no such code or its page is not installed."""
    if code not in REGISTRY:
        return None
    package = resources.files("counterfoil")
    for folder in (package / "docs", Path(str(package)).parents[1] / "docs"):
        file = folder / "errors" / f"{code}.md"
        if file.is_file():
            return file.read_text("utf-8")
    return None
