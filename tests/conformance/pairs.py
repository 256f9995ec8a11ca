"""Which stores meet which colours in every change: each of both for each test, and all pairs in `make conformance`."""

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

EVERY_PAIR = bool(os.environ.get("COUNTERFOIL_EVERY_PAIR"))
"""Whether each test runs in each colour on each store."""
STORE, COLOUR = "store", "colour"


def chosen(items: Iterable[Any]) -> set[Any]:
    """Return the tests to run: of those that differ in store and colour alone, so many that each of both is there."""
    every = list(items)
    if EVERY_PAIR:
        return set(every)
    kept = {item for item in every if None in _pair(item)}
    for name, pairs in _alike(item for item in every if item not in kept).items():
        kept |= {pairs[pair] for pair in _cover(sorted(pairs), str(name[2:]))}
    return kept


def _pair(item: Any) -> tuple[Any, Any]:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get(STORE), params.get(COLOUR)


def _alike(items: Iterable[Any]) -> Mapping[tuple[Any, ...], dict[tuple[Any, Any], Any]]:
    """Group tests that differ in store and colour alone."""
    found: defaultdict[tuple[Any, ...], dict[tuple[Any, Any], Any]] = defaultdict(dict)
    for item in items:
        pair = _pair(item)
        parts = {*str(pair[0]).split("-"), *str(pair[1]).split("-")}
        rest = "-".join(part for part in item.callspec.id.split("-") if part not in parts)
        found[item.path, item.cls, item.originalname, rest][pair] = item
    return found


def _cover(pairs: list[tuple[Any, Any]], name: str) -> set[tuple[Any, Any]]:
    """Return pairs in which each store and each colour is; tests of different names meet different ones."""
    stores, colours = sorted({store for store, _ in pairs}), sorted({colour for _, colour in pairs})
    turn, whole = zlib.crc32(name.encode()), len(stores) * len(colours)
    if len(pairs) < whole:
        return set(pairs)  # some are left out on purpose
    longer = max(len(stores), len(colours))
    return {(stores[(each + turn) % len(stores)], colours[each % len(colours)]) for each in range(longer)}
