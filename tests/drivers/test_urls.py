"""Database URLs."""

import traceback
from pathlib import Path

import pytest

from counterfoil.drivers.urls import PostgresUrl, SqliteUrl, anchored, parse_url
from counterfoil.errors import InvalidUrl


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///agent.db", "agent.db"),
        ("sqlite:////var/lib/agent.db", "/var/lib/agent.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("sqlite:///50%25.db", "50%.db"),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
def test_a_url_names_a_file_or_memory(url: str, path: str) -> None:
    assert parse_url(url, Path("/srv")) == SqliteUrl(path if path == ":memory:" else str(Path("/srv") / path))
    assert parse_url(url).in_memory is (path == ":memory:")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://host/db",
        "agent.db",
        "",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/agent.db",
        "sqlite:///a.db?mode=ro",
        "sqlite:///a%00.db",
    ],
)
def test_everything_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(url)


def test_a_refusal_does_not_show_a_password() -> None:
    with pytest.raises(InvalidUrl) as caught:
        parse_url("mysql://user:hunter2@host/db")
    assert "hunter2" not in str(caught.value)


def test_a_relative_path_is_settled_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url("sqlite:///agent.db") == SqliteUrl(str(tmp_path / "agent.db"))


def test_an_anchored_url_names_one_file_from_everywhere(tmp_path: Path) -> None:
    spaced = tmp_path / "with space"
    assert parse_url(anchored("sqlite:///50%25.db", spaced)) == SqliteUrl(str(spaced / "50%.db"))
    assert anchored("sqlite:///:memory:", spaced) == "sqlite:///:memory:"


def test_a_path_in_place_of_a_url_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidUrl, match="sqlite:///"):
        parse_url(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@ssTAIL@h:1/db", "postgresql://u:se\uff1fcret@h/db", "postgresql://u:[x@h/db"]
)
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        parse_url(url)
    told = "".join(traceback.format_exception(refused.value))
    assert not [part for part in ("ssTAIL", "cret", "[x") if part in str(refused.value) or f"netloc '{part}" in told]


def test_what_a_url_is_shown_as_holds_no_password() -> None:
    assert "s3cret" not in repr(parse_url("postgresql://u:s3cret@h/db"))


def test_a_scheme_in_capitals_is_read_and_one_without_slashes_is_not() -> None:
    assert parse_url("POSTGRESQL://u@h/db") == PostgresUrl("postgresql://u@h/db")
    with pytest.raises(InvalidUrl, match="two slashes"):
        parse_url("postgresql:/db")
