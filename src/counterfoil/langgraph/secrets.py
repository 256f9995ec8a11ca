"""Recognise credentials by the name of their field and by their shape.

Shapes come from the detectors of the `detect-secrets` library, plus a few that it lacks. Its keyword and entropy
detectors are not used, nor those that match ordinary text or plain identifiers: a refused state stops a run, so a rule
must be nearly certain. A cheap search for the literal that every shape contains decides which detectors run at all.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from counterfoil.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

REDACTED: Final = "[redacted]"
_SHORTEST: Final = 8  # no shape is shorter
_CACHED: Final = 2048  # longer texts cost more to keep and hash than to search; of those only the very objects repeat
_KEPT: Final = 8 * 1024 * 1024  # characters of long texts that are remembered to be clean
_BLOB: Final = 64 * 1024  # an unbroken run of characters longer than this is data, of which only the start is searched
_DECODED: Final = 4096  # a credential is short; larger base64 is a file

# Left out: keyword, entropy and public IPs (ordinary text), Artifactory ("AP" and ten letters), Twilio (account ids),
# IBM, SoftLayer and Cloudant (any long hex after "key:"), Discord (no literal to search for first).
_DETECTORS: Final = (
    ("aws", "AWSKeyDetector", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T", "aws", "AWS", "Aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("AccountKey=",)),
    ("basic_auth", "BasicAuthDetector", ("://",)),
    ("github_token", "GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("gitlab_token", "GitLabTokenDetector", ("gl", "GR1348941")),
    ("jwt", "JwtTokenDetector", ("eyJ",)),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("npm", "NpmDetector", ("_authToken",)),
    ("openai", "OpenAIDetector", ("T3BlbkFJ",)),
    ("private_key", "PrivateKeyDetector", ("PRIVATE KEY", "PuTTY")),
    ("pypi_token", "PypiTokenDetector", ("pypi-",)),
    ("sendgrid", "SendGridDetector", ("SG.",)),
    ("slack", "SlackDetector", ("xox", "XOX", "slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("stripe", "StripeDetector", ("k_live_",)),
    ("telegram_token", "TelegramBotTokenDetector", (":AA",)),
)
_EXTRA: Final = (
    ("Bearer header", r"(?i)\bbearer\s+(?=[\w.~+/-]*\d)[\w.~+/-]{12,}=*", ("earer", "EARER")),
    ("Password in a URL", r"(?<=://)[^\s/?#@\"'<>]*:(?!\$?\{\w*\}@|\$[A-Z_]+@|\*+@)[^\s/?#\"'<>\[]+(?=@)", ("://",)),
    ("Private key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[^-]*-----", ("PRIVATE KEY",)),
    ("GitHub fine-grained token", r"github_pat_\w{40,}", ("github_pat_",)),
    ("Anthropic key", r"sk-ant-[\w-]{24,}", ("sk-ant-",)),
    ("OpenAI key", r"sk-(?:proj|svcacct|admin)-[\w-]{24,}", ("sk-",)),
    ("Google API key", r"AIza[\w-]{35}(?![\w-])", ("AIza",)),
    ("Slack app token", r"xapp-\d-[\w-]{20,}", ("xapp-",)),
    (
        "Stripe key or webhook secret",
        r"\b(?:[rs]k_(?:live|test)|whsec)_[0-9A-Za-z]{16,}",
        ("k_live_", "k_test_", "whsec_"),
    ),
    ("Hugging Face token", r"\bhf_[A-Za-z]{30,}", ("hf_",)),
)
_BASIC: Final = re.compile(r"(?i)\bbasic\s+([a-z0-9+/]{8,}={0,2})")
# fmt: off
_SECRET_ENDINGS: Final = frozenset({
    "api key", "apikey", "api token", "access key", "secret key", "private key", "signing key", "encryption key",
    "secret access key", "authorization", "password", "passwd", "passphrase", "secret", "client secret", "access token",
    "refresh token", "session token", "auth token", "bearer token", "oauth token", "bot token", "user token",
    "personal access token", "security token", "cookie", "set cookie", "session cookie", "secrets", "credentials",
    "api keys", "passwords", "cookies", "connection string",
})
# fmt: on
_LONGEST_ENDING: Final = 3
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_ASSIGNED: Final = re.compile(
    r"([A-Za-z][\w-]{2,40})([\"']?\s*(?:=>|=|:)\s*[\"']?)(?!\[redacted\])([^\s\"',;&})\]]{3,})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One shape of a credential."""

    name: str
    literals: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    finds: Callable[[str], bool]


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return all shapes; the library is imported here and nowhere else.

    Raises:
        MissingExtra: detect-secrets is not installed.
    """
    basic = Rule(name="Basic header", literals=("asic ", "ASIC "), patterns=(_BASIC,), finds=_is_basic_header)
    return (basic, *(_own_rule(*one) for one in _EXTRA), *(_library_rule(*one) for one in _DETECTORS))


def is_secret_name(name: str) -> bool:
    """Tell whether a field of this name holds a credential."""
    return len(name) <= 64 and _is_secret_name(name)  # noqa: PLR2004  # longer is text, not a field's name


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    return any(" ".join(words[-count:]) in _SECRET_ENDINGS for count in range(1, _LONGEST_ENDING + 1))


class _Clean:
    """Long texts that were searched lately and hold nothing: one step passes the same object several times."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._size = 0
        self._mutex = threading.Lock()

    def holds(self, text: str) -> bool:
        return self._texts.get(id(text)) is text  # held, so that its id is not given to another text

    def keep(self, text: str) -> None:
        with self._mutex:
            if self._size + len(text) > _KEPT:
                self._texts.clear()
                self._size = 0
            self._texts[id(text)] = text
            self._size += len(text)


_CLEAN = _Clean()


def find_secret(text: str) -> str | None:
    """Return the name of the rule that a text, or the text it is the base64 form of, meets."""
    if len(text) < _SHORTEST:
        return None
    if len(text) <= _CACHED:
        return _find_cached(text)
    if _CLEAN.holds(text):
        return None
    found = _find(text)
    if found is None:
        _CLEAN.keep(text)
    return found


def redact_text(text: str) -> str:
    """Replace every recognised credential in a text by `[redacted]`."""
    for rule in _candidates(text):
        if rule.finds(text):
            for pattern in rule.patterns:
                text = pattern.sub(REDACTED, text)
    text = _BASE64.sub(lambda found: REDACTED if _in_base64(found[0]) else found[0], text)
    return _ASSIGNED.sub(_redact_assigned, text)


def _find(text: str) -> str | None:
    if len(text) > _BLOB and len(text[:_BLOB].split(maxsplit=1)) == 1:
        text = text[:_BLOB]
    plain = next((rule.name for rule in _candidates(text) if rule.finds(text)), None)
    return plain or _in_base64(text)


_find_cached = lru_cache(maxsize=4096)(_find)


def _candidates(text: str) -> list[Rule]:
    return [rule for literal, rule in _literals() if literal in text]


@lru_cache(maxsize=1)
def _literals() -> tuple[tuple[str, Rule], ...]:
    return tuple((literal, rule) for rule in rules() for literal in rule.literals)


def _in_base64(text: str) -> str | None:
    if len(text) > _DECODED or not _BASE64.fullmatch(text) or (decoded := _decoded(text)) is None:
        return None
    found = next((rule.name for rule in _candidates(decoded) if rule.finds(decoded)), None)
    return f"{found}, in base64" if found else None


def _is_basic_header(text: str) -> bool:
    """Tell "Basic dXNlcjpwYXNz" from "basic instructions": the word is the base64 form of user:password."""
    return any(":" in (_decoded(found[1]) or "") for found in _BASIC.finditer(text))


def _decoded(text: str) -> str | None:
    body = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _redact_assigned(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{REDACTED}" if is_secret_name(found[1]) else found[0]


def _own_rule(name: str, pattern: str, literals: tuple[str, ...]) -> Rule:
    compiled = re.compile(pattern)
    return Rule(
        name=name, literals=literals, patterns=(compiled,), finds=lambda text: compiled.search(text) is not None
    )


def _library_rule(module: str, cls: str, literals: tuple[str, ...]) -> Rule:
    try:
        plugins: Any = importlib.import_module(f"detect_secrets.plugins.{module}")
    except ImportError as error:
        raise MissingExtra("checkpoints are searched for secrets: pip install 'counterfoil[langgraph]'") from error
    detector = getattr(plugins, cls)()
    patterns = tuple(detector.denylist)
    return Rule(
        name=detector.secret_type,
        literals=literals,
        patterns=patterns,
        finds=lambda text: next(iter(detector.analyze_string(text)), None) is not None,
    )
