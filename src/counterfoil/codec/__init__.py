"""Payloads to bytes: canonical form and digests (what counts as the same), and faithful storage.

The only package that imports orjson and rfc8785, and only when they are first used.
"""

from counterfoil.codec.canonical import MAX_DEPTH, canonical
from counterfoil.codec.digests import (
    SCHEME,
    Digests,
    Part,
    canonical_parts,
    differing_fields,
    digest_arguments,
    digest_parts,
    fingerprint,
    pack_fields,
    text_digest,
    unpack_fields,
)
from counterfoil.codec.ids import id_text
from counterfoil.codec.storage import REDACTED, EncodedReceipt, Redacted, decode, encode, encode_receipt, encode_row

__all__ = [
    "MAX_DEPTH",
    "REDACTED",
    "SCHEME",
    "Digests",
    "EncodedReceipt",
    "Part",
    "Redacted",
    "canonical",
    "canonical_parts",
    "decode",
    "differing_fields",
    "digest_arguments",
    "digest_parts",
    "encode",
    "encode_receipt",
    "encode_row",
    "fingerprint",
    "id_text",
    "pack_fields",
    "text_digest",
    "unpack_fields",
]
