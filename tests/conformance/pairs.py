"""Which stores meet which colours in every change: each of both for each test, and all pairs in `make conformance`."""

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

EVERY_PAIR = bool(os.environ.get("COUNTERFOIL_EVERY_PAIR"))
"""Whether each test runs in each colour on each store."""
STORE, COLOUR = "store", "colour"


def chosen(items: Iterable[Any]) -> set[Any]:
    """Return the tests to run: of those that differ in store and colour alone, so many that each of both is there."""
    alike: defaultdict[tuple[Any, ...], dict[tuple[Any, Any], Any]] = defaultdict(dict)
    kept = set()
    for item in items:
        params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        pair = params.pop(STORE, None), params.pop(COLOUR, None)
        if EVERY_PAIR or None in pair:
            kept.add(item)
        else:
            parts = {*str(pair[0]).split("-"), *str(pair[1]).split("-")}
            rest = "-".join(part for part in item.callspec.id.split("-") if part not in parts)
            alike[item.path, item.cls, item.originalname, rest][pair] = item
    for name, pairs in alike.items():
        kept |= {pairs[pair] for pair in _cover(sorted(pairs), str(name[2:]))}
    return kept


def _cover(pairs: list[tuple[Any, Any]], name: str) -> set[tuple[Any, Any]]:
    """Return pairs in which each store and each colour is; tests of different names meet different ones."""
    stores, colours = sorted({store for store, _ in pairs}), sorted({colour for _, colour in pairs})
    turn, whole = zlib.crc32(name.encode()), len(stores) * len(colours)
    if len(pairs) < whole:
        return set(pairs)  # some are left out on purpose
    longer = max(len(stores), len(colours))
    return {(stores[(each + turn) % len(stores)], colours[each % len(colours)]) for each in range(longer)}
