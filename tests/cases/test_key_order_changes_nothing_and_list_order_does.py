"""B29: the same JSON with its attributes in another order was taken for a new request.

Sources: https://github.com/aws-powertools/powertools-lambda-python/issues/638
"""

import json
import random
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from counterfoil import Counterfoil, effect
from counterfoil.errors import FingerprintMismatch

ORDER: dict[str, Any] = {
    "id": 7,
    "to": {"name": "Ada", "city": "Paris"},
    "lines": [{"sku": "x", "n": 1}, {"sku": "y", "n": 2}],
}


@dataclass
class Line:
    sku: str
    n: int


class Order(pydantic.BaseModel):
    lines: list[dict[str, Any]]
    to: dict[str, str]
    id: int


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], chance) for key in chance.sample(list(value), len(value))}
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


SAME: dict[str, Any] = {
    **{f"reordered-{seed}": shuffled(ORDER, random.Random(seed)) for seed in range(5)},
    "other spacing": json.loads(json.dumps(ORDER, indent=7)),
    "a model": Order(**ORDER),
    "a dataclass inside": {**ORDER, "lines": [Line("x", 1), Line("y", 2)]},
    "a tuple": {**ORDER, "lines": tuple(ORDER["lines"])},
}
OTHER: dict[str, Any] = {
    "swapped items": {**ORDER, "lines": ORDER["lines"][::-1]},
    "a missing item": {**ORDER, "lines": ORDER["lines"][:1]},
    "another value deep inside": {**ORDER, "to": {"name": "Ada", "city": "Rome"}},
}

runs: list[Any] = []


@effect("cases.order", key="order:{request_id}")
def place(call: Any, *, order: Any) -> int:
    runs.append(order)
    return len(runs)


def test_only_content_and_list_order_count(url: str) -> None:
    runs.clear()
    with Counterfoil.open(url) as cf:
        first = cf.perform(place, tenant="t", request_id="r", order=ORDER)
        for order in SAME.values():
            assert cf.perform(place, tenant="t", request_id="r", order=order).fingerprint == first.fingerprint
        for order in OTHER.values():
            with pytest.raises(FingerprintMismatch) as caught:
                cf.perform(place, tenant="t", request_id="r", order=order)
            assert caught.value.fields == ("order",)
    assert len(runs) == 1
