"""A token is spelt so that a mistyped one is told from others, and is honoured only as it is stored."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.tokens import ALPHABET, NOBODY, Known, digest, is_honoured, public_id, spell
from counterfoil.credentials import find_secret, redact_text

SPELT = spell(bytes(range(9)), bytes(range(32)))
KNOWN = Known(digest=digest(SPELT.secret), expires_at=1_000, revoked_at=None, is_suspended=False, now=999)


@given(st.binary(min_size=9, max_size=9), st.binary(min_size=32, max_size=32))
def test_a_token_holds_its_public_id(public: bytes, secret: bytes) -> None:
    spelt = spell(public, secret)
    prefix, token_id, rest, checksum = spelt.secret.split("_")
    assert (prefix, len(token_id), len(rest), len(checksum)) == ("cfl", 13, 43, 6)
    assert public_id(spelt.secret) == token_id == spelt.token_id
    assert spelt.secret not in repr(spelt)


@pytest.mark.parametrize("place", range(len(SPELT.secret)))
def test_one_wrong_character_makes_it_none(place: int) -> None:
    other = next(char for char in ALPHABET if char != SPELT.secret[place])
    assert public_id(SPELT.secret[:place] + other + SPELT.secret[place + 1 :]) == NOBODY


@pytest.mark.parametrize("text", ["", "cfl_", "\ud800", SPELT.secret + "\n", SPELT.secret.upper(), "票" * 70, "_" * 99])
def test_what_is_no_token_has_nobodys_id(text: str) -> None:
    assert public_id(text) == NOBODY
    assert len(digest(text)) == 32


@pytest.mark.parametrize(
    ("known", "honoured"),
    [
        (KNOWN, True),
        (replace(KNOWN, expires_at=None), True),
        (replace(KNOWN, now=1_000), False),
        (replace(KNOWN, revoked_at=5), False),
        (replace(KNOWN, is_suspended=True), False),
        (replace(KNOWN, digest=digest("another")), False),
        (None, False),
    ],
)
def test_a_token_is_honoured_only_as_it_is_stored(known: Any, honoured: bool) -> None:  # noqa: FBT001
    assert is_honoured(known, digest(SPELT.secret)) is honoured


def test_it_is_recognised_as_a_credential_wherever_texts_are_stored() -> None:
    text = f"the token is {SPELT.secret}, keep it"
    assert find_secret(text) == "Counterfoil token"
    assert redact_text(text) == "the token is [redacted], keep it"
