"""What is recognised as a credential, wherever texts are stored; more shapes: tests/langgraph/test_policy.py."""

import base64
import json
import random
import sys
import time
from collections.abc import Iterator

import pytest

from counterfoil import credentials
from counterfoil.credentials import find_secret, redact_text

BODY = base64.b64encode(random.Random(1).randbytes(1200)).decode()  # as long as an RSA key's of 2048 bits
LINES = [BODY[start : start + 64] for start in range(0, len(BODY), 64)]


def pem(kind: str = "PRIVATE KEY", *headers: str) -> str:
    return "\n".join([f"-----BEGIN {kind}-----", *headers, *LINES, f"-----END {kind}-----", ""])


PEM = pem()
DRESSES = {
    "as it is": PEM,
    "rsa, encrypted": pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0F1E2D", ""),
    "pgp": pem("PGP PRIVATE KEY BLOCK", "Version: 1", ""),
    "ssh2": PEM.replace("-----BEGIN", "---- BEGIN SSH2 ENCRYPTED").replace("KEY-----", "KEY ----"),
    "windows lines": PEM.replace("\n", "\r\n"),
    "on one line": PEM.replace("\n", " "),
    "repr": repr(PEM),
    "repr of repr": repr(repr(PEM) + "'\""),
    "repr of bytes": repr(PEM.encode()),
    "json": json.dumps({"key": PEM}),
    "json in json": json.dumps({"arguments": json.dumps({"key": PEM})}),
    "cut off": PEM[:900],
    "cut off, repr": repr(PEM)[:900],
    "beginning cut off": PEM[300:],
    "beginning cut off, repr": repr(PEM)[300:],
    "base64": base64.b64encode(PEM.encode()).decode(),
    "base64 in lines": base64.encodebytes(PEM.encode()).decode(),
    "base64 in lines, repr": repr(base64.encodebytes(PEM.encode())),
    "base64 for urls": base64.urlsafe_b64encode(PEM.encode()).decode(),
    "base64, cut off": base64.b64encode(PEM.encode()).decode()[:1001],
    "putty": "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 14\n" + "\n".join(LINES) + "\nPrivate-MAC: 0a1b",
}


def left(text: str) -> list[str]:
    """Name the lines of the key that a text still shows, also in base64 at any alignment."""
    forms = [text]
    for found in credentials._BASE64.findall(text):
        forms += [(credentials._decoded(found[shift:]) or "") for shift in range(4)]
    return [line for line in LINES for form in forms if line[-40:] in form]


@pytest.mark.parametrize("dress", DRESSES)
def test_a_private_key_is_redacted_whole(dress: str) -> None:
    text = redact_text(f"cannot load the key ({DRESSES[dress]}), status 503")
    assert left(text) == []
    assert text.startswith("cannot load the key (")
    assert text.endswith("status 503") or dress in {"cut off", "cut off, repr"}
    assert find_secret(text) is None
    assert redact_text(text) == text


ALONE = sorted(DRESSES.keys() - {"base64 in lines, repr"})  # a checkpoint's base64 is read where it stands alone


@pytest.mark.parametrize("dress", ALONE)
def test_a_private_key_is_recognised(dress: str) -> None:
    assert find_secret(DRESSES[dress]) is not None


def test_what_surrounds_keys_stays() -> None:
    text = redact_text(f"first {PEM}, then {PEM}; -----BEGIN PUBLIC KEY-----\n{BODY[:64]}")
    assert text == f"first [redacted]\n, then [redacted]\n; -----BEGIN PUBLIC KEY-----\n{BODY[:64]}"


JSON_SECRETS = [
    '{"user": "u", "password": "hunter2-zzz"}',
    '{"user":"u","client_secret":"one two three"}',
    '{"apiKey" : "canary"}',
    json.dumps({"arguments": '{"password": "canary"}'}),
    json.dumps({"a": json.dumps({"arguments": '{"password": "canary"}'})}),
    'arguments={"password": "canary"',
]


@pytest.mark.parametrize("text", JSON_SECRETS)
def test_a_secret_is_recognised_by_its_name_in_json(text: str) -> None:
    assert find_secret(text) == "a secret's name in JSON"
    redacted = redact_text(text)
    assert not any(word in redacted for word in ("hunter2", "three", "canary"))
    assert find_secret(redacted) is None
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        '{"password": ""}',
        '{"password": null, "secret": 7, "api_key": false}',
        '{"password": {"type": "string", "minLength": 8}}',
        '{"properties": {"password": {"type": "string"}}, "required": ["password"]}',
        '{"password": "***"}',
        '{"password": "********"}',
        '{"password": "${DB_PASSWORD}", "api_key": "{{ key }}", "client_secret": "<your secret>"}',
        '{"password": "[redacted]"}',
        '{"max_tokens": "1000", "next_page_token": "abcdef", "secretary": "Jane Doe"}',
        'He said "the password": "please" is not one.',
        "{'title': 'password: see the vault'}",
        json.dumps({"arguments": '{"password": ""}'}),
    ],
)
def test_json_without_a_secret_passes(text: str) -> None:
    assert find_secret(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----" * 2000,
        "-----END PRIVATE KEY-----" + "A" * 60_000,
        ("A" * 64 + "\n") * 2000 + "PRIVATE KEY",
        "PRIVATE KEY" + "\\n" * 30_000,
        '"password": ' * 5000,
        '\\"' * 30_000 + '":',
        "eyJ" + "a." * 30_000,
    ],
    ids=["beginnings", "end", "lines", "gaps", "json", "escapes", "tokens"],
)
def test_no_text_makes_the_search_slow(text: str) -> None:
    started = time.perf_counter()
    redact_text(text)
    assert time.perf_counter() - started < 5  # some milliseconds; a backtracking pattern takes minutes


@pytest.fixture
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins.aws", None)
    caches = (credentials._library_rules, credentials.rules, credentials._literals)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("without_the_library")
@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-" + "A1b2" * 10,
        "sk-ant-api03-" + "aB3" * 12,
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "AKIA" + "Q3EG" * 4,
        "ghp_" + "a1B2" * 9,
        "glpat-" + "aB3_" * 5,
        "xoxb-" + "123456789012-" + "abcdefABCDEF",
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJlc2lnbmF0dXJl",
        "Bearer canary-7f3a9b2c",
        "postgresql://app:canary-pw@db.internal/orders",
        PEM,
    ],
)
def test_the_commonest_credentials_are_redacted_without_the_optional_library(secret: str) -> None:
    text = redact_text(f"401: incorrect ({secret}) was given")
    assert text.startswith("401: incorrect (")
    assert text.endswith(") was given")
    assert "[redacted]" in text
    assert secret not in text
    assert "canary" not in text
