"""The engines, each on the databases on which it works."""

import pytest

EMBEDDED_SQLITE, EMBEDDED_POSTGRES, PROCRASTINATE = "embedded-sqlite", "embedded-postgres", "procrastinate"
EMBEDDED = (EMBEDDED_SQLITE, EMBEDDED_POSTGRES)
ENGINES = (*EMBEDDED, PROCRASTINATE)


def on_engines(*names: str) -> pytest.MarkDecorator:
    """Run a test on these engines instead of all."""
    return pytest.mark.parametrize("engine", names)
