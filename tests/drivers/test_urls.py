"""Database URLs."""

import pytest

from counterfoil.drivers.urls import SqliteUrl, parse_url
from counterfoil.errors import InvalidUrl


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///agent.db", "agent.db"),
        ("sqlite:////var/lib/agent.db", "/var/lib/agent.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("sqlite:///50%25.db", "50%.db"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite://", ":memory:"),
    ],
)
def test_a_url_names_a_file_or_memory(url: str, path: str) -> None:
    assert parse_url(url) == SqliteUrl(path)
    assert parse_url(url).in_memory is (path == ":memory:")


@pytest.mark.parametrize(
    "url",
    ["postgresql://host/db", "agent.db", "", "sqlite://host/agent.db", "sqlite:///a.db?mode=ro", "sqlite:///a%00.db"],
)
def test_everything_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(url)


def test_a_refusal_does_not_show_a_password() -> None:
    with pytest.raises(InvalidUrl) as caught:
        parse_url("mysql://user:hunter2@host/db")
    assert "hunter2" not in str(caught.value)
