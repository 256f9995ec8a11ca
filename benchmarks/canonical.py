"""What does the canonical form cost, beside the reference implementation of RFC 8785 that gives the same bytes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rfc8785

from benchmarks.kit import Comparison, compare
from counterfoil.codec import canonical

LINE: dict[str, Any] = {"sku": "A-1042", "amount": 3, "price": 12.75, "gift": False, "note": None}
ORDER: dict[str, Any] = {"order": "o-1", "customer": "Zoë", "total": 38.25, "lines": [LINE]}
SIZES = {"a small order": ORDER, "a large order": {**ORDER, "lines": [LINE] * 60}}


def run(_disk: Path, _memory: Path) -> list[Comparison]:
    answers = []
    for name, value in SIZES.items():
        assert canonical(value) == rfc8785.dumps(value)
        variants = {"rfc8785": lambda v=value: rfc8785.dumps(v), "canonical": lambda v=value: canonical(v)}
        answers.append(compare(f"Canonical bytes of {name} ({len(canonical(value))} bytes)", variants, calls=40))
    return answers
