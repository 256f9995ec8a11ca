"""Tokens: how one is spelt, and whether one that is shown is honoured."""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

ALPHABET: Final = digits + ascii_uppercase + ascii_lowercase
PUBLIC_BYTES: Final = 9
SECRET_BYTES: Final = 32
"""So many random bits cannot be guessed, so that a plain SHA-256 is enough to store: there is nothing to slow down."""
_SHAPE: Final = re.compile(r"cfl_([0-9A-Za-z]{13})_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}", re.ASCII)
NOBODY: Final = "nobody"
"""Looked up in the place of the id of what is no token, so that it takes as long to refuse; no id is so short."""
_NOTHING: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelt:
    """A new token: its public id, and all of it, which is shown once."""

    token_id: str
    secret: str = field(repr=False)


def spell(public: bytes, secret: bytes) -> Spelt:
    """Return the token that these random bytes make; its last six characters tell a mistyped one from others."""
    token_id = _base62(public, 13)
    body = f"cfl_{token_id}_{_base62(secret, 43)}"
    return Spelt(token_id=token_id, secret=f"{body}_{_checksum(body)}")


def public_id(text: str) -> str:
    """Return the public id of what may be a token, or one that no token has."""
    found = _SHAPE.fullmatch(text)
    body, _, checksum = text.rpartition("_")
    return found[1] if found is not None and checksum == _checksum(body) else NOBODY


def digest(text: str) -> bytes:
    """Return what is stored of a token's secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("utf-8", "surrogatepass")).to_bytes(4, "big"), 6)


def _base62(data: bytes, length: int) -> str:
    number, text = int.from_bytes(data, "big"), ""
    for _ in range(length):
        number, rest = divmod(number, len(ALPHABET))
        text = ALPHABET[rest] + text
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is stored of a token, as the database holds it; times are its own."""

    digest: bytes = field(repr=False)
    expires_at: int | None
    revoked_at: int | None
    is_suspended: bool
    now: int


def is_honoured(known: Known | None, shown: bytes) -> bool:
    """Say whether a token is honoured of which this digest was made; an unknown one is compared as well."""
    is_same = hmac.compare_digest(_NOTHING if known is None else known.digest, shown)
    return is_same and known is not None and not known.is_suspended and is_live(known)


def is_live(known: Known) -> bool:
    """Say whether a token was neither revoked nor outlived."""
    return known.revoked_at is None and (known.expires_at is None or known.now < known.expires_at)
