"""Channel versions are stored short and come back as they were."""

import random
from typing import Any

import pytest

from counterfoil.langgraph.versions import pack, unpack


def version(number: int) -> str:
    return f"{number:032}.{random.Random(number).getrandbits(53):016x}"


def checkpoint(current: dict[str, Any], seen: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"v": 4, "id": "c", "channel_versions": current, "versions_seen": seen, "channel_values": {"n": 1}}


USUAL = checkpoint({"a": version(2), "b": version(1)}, {"__input__": {}, "node": {"a": version(1), "b": version(1)}})
OTHERS: list[Any] = ["", "7", "x.y", f"{1:032}.a name", f"{1:032}.{'A' * 16}", f"{10**31:032}.{0:016x}", "1" * 49]


def test_what_is_packed_comes_back_equal() -> None:
    packed = pack(USUAL)
    assert packed["channel_versions"] == {"a": 0, "b": 1}
    assert packed["versions"] == [[2, bytes.fromhex(version(2)[33:])], [1, bytes.fromhex(version(1)[33:])]]
    assert unpack(packed) == USUAL


@pytest.mark.parametrize("other", OTHERS)
def test_a_version_of_another_form_is_kept_as_it_is(other: str) -> None:
    whole = checkpoint({"a": other, "b": version(3)}, {"node": {"a": other}})
    assert unpack(pack(whole)) == whole


@pytest.mark.parametrize("other", [1, 1.0, True, None])
def test_versions_that_are_no_texts_are_left_alone(other: Any) -> None:
    whole = checkpoint({"a": other, "b": version(3)}, {"node": {"a": other}})
    assert pack(whole) is whole


def test_the_checkpoint_itself_is_not_altered() -> None:
    before = repr(USUAL)
    pack(USUAL)
    assert repr(USUAL) == before


def test_a_graph_of_ten_nodes_stores_a_third() -> None:
    names = [f"branch:to:n{number}" for number in range(10)]
    current = {name: version(number) for number, name in enumerate(names)}
    seen = {f"n{number}": {name: version(number)} for number, name in enumerate(names)}
    whole, packed = checkpoint(current, seen), pack(checkpoint(current, seen))
    assert len(repr(packed)) < len(repr(whole)) / 1.5
