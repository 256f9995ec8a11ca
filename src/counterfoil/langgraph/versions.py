"""A checkpoint's channel versions as they are stored: each once, and without the zeros that only comparing needs.

Every checkpoint names the version of every channel, and what every node has seen of them. Written out, these are most
of the bytes of a checkpoint of a graph with ten nodes and a small state.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITTEN = re.compile(r"(\d{32})\.([0-9a-f]{16})")
"""As `get_next_version` writes them, and LangGraph's own savers, too."""

Packed = str | list[Any]


def pack(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a checkpoint whose versions are places in a list of them; one with versions of another kind as it is."""
    places: dict[str, int] = {}
    try:
        current = _placed(checkpoint["channel_versions"], places)
        seen = {node: _placed(versions, places) for node, versions in checkpoint["versions_seen"].items()}
    except TypeError:
        return checkpoint
    listed = [_short(version) for version in places]
    return {**checkpoint, "channel_versions": current, "versions_seen": seen, "versions": listed}


def unpack(body: Any) -> Any:
    """Return a stored checkpoint with its versions written out."""
    if "versions" not in body:
        return body
    versions = [_long(version) for version in body.pop("versions")]
    body["channel_versions"] = {channel: versions[place] for channel, place in body["channel_versions"].items()}
    body["versions_seen"] = {
        node: {channel: versions[place] for channel, place in seen.items()}
        for node, seen in body["versions_seen"].items()
    }
    return body


def _placed(versions: Mapping[str, Any], places: dict[str, int]) -> dict[str, int]:
    """Replace versions by their places.

    Raises:
        TypeError: one is no text, and might equal one of another type.
    """
    found = {}
    for channel, version in versions.items():
        if not isinstance(version, str):
            raise TypeError(version)
        found[channel] = places.setdefault(version, len(places))
    return found


def _short(version: str) -> Packed:
    match = _WRITTEN.fullmatch(version)
    if match is None or int(match[1]) >= 2**63:
        return version
    return [int(match[1]), bytes.fromhex(match[2])]


def _long(version: Packed) -> str:
    if isinstance(version, str):
        return version
    number, rest = version
    return f"{number:032}.{rest.hex()}"
