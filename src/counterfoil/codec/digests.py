"""Digests of an effect's arguments: same operation or not, same content or not, and which fields differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from counterfoil.codec.canonical import canonical, canonical_key
from counterfoil.errors import StoredValueDamaged

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SCHEME: Final = "jcs1"
"""Name of the canonical rules and the hash together. Any change that alters a digest needs a new name."""

_FIELD_BYTES = 16  # enough to tell two values of one field apart; a full digest each would double the column
_PACKED_V1 = b"\x01"


class Part(NamedTuple):
    """One argument, made canonical once: rows sort by their UTF-16 key and joined make the canonical object."""

    sort_key: bytes
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """All digests of one set of arguments; `identity` and `content` are 32 bytes; `salt` is for those of the fields."""

    identity: bytes
    content: bytes
    parts: Mapping[str, Part] = field(repr=False)
    salt: bytes
    usual: Mapping[str, Part] = field(default_factory=dict, repr=False)
    aside: Collection[str] = ()

    @property
    def exact(self) -> bytes:
        """Return the digest of the identity with the defaults of now: what is granted is this and no other meaning."""
        return _whole_digest({**self.usual, **self.parts}, self.aside) if self.usual else self.identity


def fingerprint(arguments: Mapping[str, object], *, exclude: Collection[str] = frozenset()) -> bytes:
    """Return the SHA-256 of the canonical arguments without those in `exclude`.

    Raises:
        UnsupportedValue: an argument has no canonical form.
    """
    return _whole_digest(canonical_parts(arguments), exclude)


def canonical_parts(arguments: Mapping[str, object]) -> dict[str, Part]:
    """Make each argument canonical by itself.

    Raises:
        UnsupportedValue: an argument has no canonical form.
    """
    return {name: Part(*_argument_key(name), canonical(value, ("$", name))) for name, value in arguments.items()}


def digest_arguments(arguments: Mapping[str, object], *, not_identity: Collection[str], salt: bytes) -> Digests:
    """Digest arguments in one walk: all but `not_identity`, everything, and each field under `salt`.

    Raises:
        UnsupportedValue: an argument has no canonical form.
    """
    return digest_parts(canonical_parts(arguments), not_identity=not_identity, salt=salt)


def digest_parts(
    parts: Mapping[str, Part],
    *,
    usual: Mapping[str, Part] | None = None,
    not_identity: Collection[str],
    salt: bytes,
) -> Digests:
    """Digest arguments that are canonical already; `usual` are defaults: part of the content, not of the identity."""
    whole = {**usual, **parts} if usual else parts
    content = _whole_digest(whole, ())
    is_all = not not_identity and len(whole) == len(parts)
    return Digests(
        identity=content if is_all else _whole_digest(parts, not_identity),
        content=content,
        parts=parts,
        salt=salt,
        usual=usual or {},
        aside=not_identity,
    )


def differing_fields(
    packed: bytes, arguments: Mapping[str, object], *, ignore: Collection[str] = frozenset()
) -> tuple[str, ...]:
    """Name the arguments that differ from those whose fields were packed: changed, added or missing; sorted.

    Raises:
        UnsupportedValue: an argument has no canonical form.
    """
    stored, salt = unpack_fields(packed)
    fresh = {name: _field_digest(name, part, salt) for name, part in canonical_parts(arguments).items()}
    names = (stored.keys() | fresh.keys()) - set(ignore)
    return tuple(sorted(name for name in names if stored.get(name) != fresh.get(name)))


def pack_fields(digests: Digests) -> bytes:
    """Pack the salt and the field digests into one column."""
    packed = [_PACKED_V1, _sized(digests.salt, 1)]
    for name in sorted(digests.parts):
        packed += (_sized_name(name, 2), _field_digest(name, digests.parts[name], digests.salt))
    return b"".join(packed)


def unpack_fields(packed: bytes) -> tuple[dict[str, bytes], bytes]:
    """Return the field digests and the salt that `pack_fields` packed.

    Raises:
        StoredValueDamaged: these bytes were packed by a newer version, or are damaged.
    """
    if packed[:1] != _PACKED_V1:
        raise StoredValueDamaged("field digests are in a format this version does not know; upgrade counterfoil")
    salt, rest = _take(packed[1:], 1)
    fields: dict[str, bytes] = {}
    while rest:
        name, rest = _take(rest, 2)
        fields[name.decode()], rest = rest[:_FIELD_BYTES], rest[_FIELD_BYTES:]
    return fields, salt


def text_digest(digest: bytes) -> str:
    """Return a digest as text, with the scheme it was made by."""
    return f"{SCHEME}:{digest.hex()}"


@lru_cache(maxsize=1024)  # argument names come from code: there are few
def _argument_key(name: str) -> tuple[bytes, bytes]:
    return canonical_key(name, "$")


def _whole_digest(parts: Mapping[str, Part], exclude: Collection[str]) -> bytes:
    """Digest the canonical object made of canonical parts: the same bytes as `canonical` of the whole mapping."""
    rows = sorted([part for name, part in parts.items() if name not in exclude] if exclude else parts.values())
    return sha256(b"{" + b",".join([key + b":" + value for _, key, value in rows]) + b"}").digest()


def _field_digest(name: str, part: Part, salt: bytes) -> bytes:
    return sha256(salt + _sized_name(name, 4) + part.value).digest()[:_FIELD_BYTES]


@lru_cache(maxsize=1024)
def _sized_name(name: str, width: int) -> bytes:
    return _sized(name.encode(), width)


def _sized(data: bytes, width: int) -> bytes:
    return len(data).to_bytes(width, "big") + data


def _take(data: bytes, width: int) -> tuple[bytes, bytes]:
    end = width + int.from_bytes(data[:width], "big")
    return data[width:end], data[end:]
