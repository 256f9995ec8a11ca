"""`counterfoil db purge`: by the ages on the line, or by what the effects of a module declare."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from counterfoil import Counterfoil, Refused, effect
from counterfoil.effects import REGISTRY
from counterfoil.errors import EffectRefused, OperationExpired
from counterfoil.testing.clock import FakeClock
from tests.cli.conftest import Line

NOTHING = {"payloads": 0, "receipts": 0, "tombstones": 0, "held": 0, "events": 0, "waits": 0}
MODULE = """
from counterfoil import Retention, effect

@effect("purged.theirs", key="{request_id}/theirs", retention=Retention(receipt="30d"))
def theirs(call):
    return "done"
"""


@effect("purged.ours", key="{request_id}/ours")
def ours(call: object) -> str:
    return "done"


@effect("purged.theirs", key="{request_id}/theirs")
def theirs(call: object) -> str:
    return "done"


@effect("purged.refused", key="{request_id}/refused")
def refused(call: object) -> str:
    raise Refused("no such queue")


@pytest.fixture
def old(url: str) -> Line:
    """A database with operations of 2026-01-01, which is long ago, and of 2020."""
    with Counterfoil.open(url, clock=FakeClock(1_577_836_800_000)) as cf:
        for made in (ours, theirs):
            cf.perform(made, tenant="team-A", request_id="r-1")
    return Line(url)


def test_what_is_older_goes_and_the_rest_stays(old: Line) -> None:
    assert old.json("db purge --receipt 36000d") == NOTHING
    assert old.json("db purge --tenant team-B --receipt 400d") == NOTHING
    assert old("db purge --receipt 400d").output == "Purged: 0 payloads, 2 receipts, 0 tombstones.\n"
    with Counterfoil.open(old.url) as cf, pytest.raises(OperationExpired):
        cf.perform(ours, tenant="team-A", request_id="r-1")
    shown = old("receipts show r-1/ours --tenant team-A").output
    assert "unreadable   its detail was purged, as it is kept no longer" in shown
    assert "operation-expired" in old("explain r-1/ours --tenant team-A").output
    assert old.json("db purge --tombstone 400d") == {**NOTHING, "tombstones": 2}


def test_the_effects_of_a_module_are_kept_as_they_declare(
    old: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del REGISTRY.effects["purged.theirs", 1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_effects", raising=False)
    (tmp_path / "their_effects.py").write_text(MODULE, "utf-8")
    try:
        assert old.json("db purge --import their_effects") == {**NOTHING, "receipts": 1}
    finally:
        REGISTRY.effects["purged.theirs", 1] = theirs


def test_a_refusal_whose_words_are_gone_is_told_as_perform_tells_it(url: str) -> None:
    with Counterfoil.open(url, clock=FakeClock(1_577_836_800_000)) as cf, suppress(EffectRefused):
        cf.perform(refused, tenant="team-A", request_id="r-1")
    line = Line(url)
    line("db purge --receipt 400d")
    told = line.error("receipts show r-1/refused", exit_code=5)
    assert told["code"] == "operation-expired"
    assert "no such queue" not in told["message"] + line("ops show r-1/refused").output


def test_nothing_is_purged_without_a_word_on_how_long(old: Line) -> None:
    assert old.error("db purge", exit_code=2)["code"] == "invalid-command"
    assert old.error("db purge --import no_such_module_of_theirs", exit_code=2)["code"] == "invalid-command"
    assert old.error("db purge --receipt 400", exit_code=2)["code"] == "invalid-duration"
    assert old.error("db purge --receipt 1h", exit_code=2)["code"] == "contradictory-declaration"
    assert old.error("db purge --receipt 2d --tombstone 1d", exit_code=2)["code"] == "contradictory-declaration"
    assert old.json("db purge --receipt 36000d") == NOTHING
