"""Users' type checkers see useful types: the files beside this one are checked under mypy's strict mode."""

from pathlib import Path

import pytest
from mypy import api

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def checked(*arguments: str) -> tuple[str, int]:
    out, err, status = api.run(["--config-file", str(ROOT / "pyproject.toml"), *arguments])
    return out + err, status


@pytest.mark.slow
def test_the_checked_files_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    out, status = checked(*(str(file) for file in HERE.glob("check_*.py")))
    assert status == 0, out


WRONG = """
from counterfoil import Counterfoil, EffectCall, effect

@effect("typing.wrong", key="{request_id}/x")
def create(call: EffectCall, *, title: str) -> int:
    return 1

def use(cf: Counterfoil) -> str:
    receipt = cf.perform(create, tenant="t", title="x")
    return receipt.value

effect("typing.keyless")
"""


@pytest.mark.slow
def test_mistakes_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "wrong.py").write_text(WRONG)
    out, status = checked(str(tmp_path / "wrong.py"))
    assert status == 1
    assert "[return-value]" in out
    assert "[call-arg]" in out
    assert "Found 2 errors" in out
