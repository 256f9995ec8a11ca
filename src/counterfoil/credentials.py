"""Recognise credentials by the name of their field and by their shape: the one guard of every text that is stored.

Shapes come from the detectors of the `detect-secrets` library, plus the commonest of our own: the ledger, which runs
without that library, redacts by those alone. Its keyword and entropy detectors are not used, nor those that match
ordinary text or plain identifiers: a refused state stops a run, so a rule must be nearly certain. A cheap search for
the literal that every shape contains decides which detectors run at all.
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
from counterfoil.extras import install_line

if TYPE_CHECKING:
    from collections.abc import Callable

REDACTED: Final = "[redacted]"
_SHORTEST: Final = 8  # no shape is shorter
_CACHED: Final = 2048  # longer texts cost more to keep and hash than to search; of those only the very objects repeat
_KEPT: Final = 8 * 1024 * 1024  # characters of long texts that are remembered to be clean
_BLOB: Final = 64 * 1024  # an unbroken run of characters longer than this is data, of which only the start is searched
_DECODED: Final = 16 * 1024  # the longest private keys in use fit; larger base64 is a file

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
_GAP: Final = r"(?:\s|\\+[nrt])"  # white space, also as `repr` and JSON write it
_DASHES: Final = r"-{4,5} ?"
_KEY_BEGIN: Final = _DASHES + r"BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*" + _DASHES
_KEY_END: Final = _DASHES + r"END [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*" + _DASHES
# Every part is bounded, or begins where no other can: a long text must not make the search slow.
_KEY_BLOCK: Final = (
    rf"{_KEY_BEGIN}(?:(?s:(?:(?!{_KEY_BEGIN}).)*?){_KEY_END}"
    rf"|(?:{_GAP}*+(?:[\w-]+: [^\n\\]*|[A-Za-z0-9+/=]+))*+)"  # its end was cut off: as long as it looks like one
)
_KEY_REST: Final = (
    r"(?:(?<![A-Za-z0-9+/=])|(?<=\\[nrt]))"
    rf"(?:[A-Za-z0-9+/=]{{16,}}+{_GAP}{{1,4}}+){{0,200}}[A-Za-z0-9+/=]*+{_GAP}{{0,4}}+{_KEY_END}"
)

_EXTRA: Final = (
    ("Bearer header", r"(?i)\bbearer\s+(?=[\w.~+/-]*\d)[\w.~+/-]{12,}=*", ("earer", "EARER")),
    ("Password in a URL", r"(?<=://)[^\s/?#@\"'<>]*:(?!\$?\{\w*\}@|\$[A-Z_]+@|\*+@)[^\s/?#\"'<>\[]+(?=@)", ("://",)),
    ("Private key", _KEY_BLOCK, ("PRIVATE KEY",)),
    ("End of a private key", _KEY_REST, ("PRIVATE KEY",)),
    ("PuTTY private key", r"(?s)PuTTY-User-Key-File-\d.*?(?:Private-MAC: *[0-9A-Fa-f]+|\Z)", ("PuTTY",)),
    ("AWS key", r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])", ("AKIA", "ASIA")),
    ("JSON Web Token", r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*", ("eyJ",)),
    ("GitHub token", r"gh[oprsu]_[A-Za-z0-9]{36,}", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("GitLab token", r"\bglpat-[\w-]{20,}", ("glpat-",)),
    ("Slack token", r"\bxox[abeoprs]-\d[\w-]{10,}", ("xox",)),
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
    ("Counterfoil token", r"\bcfl_[0-9A-Za-z]{13}_[0-9A-Za-z]{43}(?:_[0-9A-Za-z]{6})?", ("cfl_",)),
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
# A base64 text that was broken into lines, as mail and `base64` do.
_WRAPPED: Final = re.compile(
    r"(?:(?<![A-Za-z0-9+/_-])|(?<=\\[nrt]))(?:[A-Za-z0-9+/_-]{40,}+(?:\r?\n|(?:\\+r)?\\+n))++[A-Za-z0-9+/_-]+={0,2}"
)
_BREAKS: Final = re.compile(r"\s|\\+[nr]")
# Every quote may be escaped: JSON is often found in JSON. A placeholder is no secret, and what is shorter is a word.
_IN_JSON: Final = re.compile(
    r"""(\\*"([A-Za-z][\w-]{1,40})\\*"\s*:\s*\\*")(?!\[redacted\]|\$?\{|<|\*+\\*")([^"\\]{4,})"""
)
_ASSIGNED: Final = re.compile(
    r"([A-Za-z][\w-]{2,40})([\"']?\s*(?:=>|=|:)\s*[\"']?)(?!\[redacted\])([^\s\"',;&})\]]{3,})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One shape of a credential."""

    name: str
    literals: tuple[str, ...]
    finds: Callable[[str], bool]
    redact: Callable[[str], str]


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return all shapes that this installation knows."""
    basic = _rule("Basic header", ("asic ", "ASIC "), (_BASIC,), _is_basic_header)
    in_json = Rule(name="a secret's name in JSON", literals=('":', '" :'), finds=_is_in_json, redact=_redact_in_json)
    return (basic, in_json, *(_own_rule(*one) for one in _EXTRA), *_library_rules())


def require_detectors() -> None:
    """Insist on the shapes of detect-secrets, without which a checkpoint is not searched well enough.

    Raises:
        MissingExtra: detect-secrets is not installed.
    """
    if not _library_rules():
        raise MissingExtra(
            "Checkpoints are searched for secrets, which needs detect-secrets. Install it with:"
            f" {install_line('counterfoil[langgraph]')}"
        )


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
            text = rule.redact(text)
    text = _WRAPPED.sub(lambda found: REDACTED if _in_base64(found[0]) else found[0], text)
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
    if len(text) > _DECODED:
        return None
    if not _BASE64.fullmatch(text):
        text = _BREAKS.sub("", text) if _WRAPPED.fullmatch(text.strip()) else ""
    if not text or (decoded := _decoded(text)) is None:
        return None
    found = next((rule.name for rule in _candidates(decoded) if rule.finds(decoded)), None)
    return f"{found}, in base64" if found else None


def _is_basic_header(text: str) -> bool:
    """Tell "Basic dXNlcjpwYXNz" from "basic instructions": the word is the base64 form of user:password."""
    return any(":" in (_decoded(found[1]) or "") for found in _BASIC.finditer(text))


def _decoded(text: str) -> str | None:
    body = text.rstrip("=").replace("-", "+").replace("_", "/")
    body = body[:-1] if len(body) % 4 == 1 else body  # it was cut off
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _redact_assigned(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{REDACTED}" if is_secret_name(found[1]) else found[0]


def _is_in_json(text: str) -> bool:
    return any(is_secret_name(found[2]) for found in _IN_JSON.finditer(text))


def _redact_in_json(text: str) -> str:
    return _IN_JSON.sub(lambda found: f"{found[1]}{REDACTED}" if is_secret_name(found[2]) else found[0], text)


def _rule(
    name: str, literals: tuple[str, ...], patterns: tuple[re.Pattern[str], ...], finds: Callable[[str], bool]
) -> Rule:
    def redact(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(REDACTED, text)
        return text

    return Rule(name=name, literals=literals, finds=finds, redact=redact)


def _own_rule(name: str, pattern: str, literals: tuple[str, ...]) -> Rule:
    compiled = re.compile(pattern)
    return _rule(name, literals, (compiled,), lambda text: compiled.search(text) is not None)


@lru_cache(maxsize=1)
def _library_rules() -> tuple[Rule, ...]:
    """Return the shapes of detect-secrets, which is imported here and nowhere else, or none without it."""
    try:
        return tuple(_library_rule(*one) for one in _DETECTORS)
    except ImportError:
        return ()


def _library_rule(module: str, cls: str, literals: tuple[str, ...]) -> Rule:
    plugins: Any = importlib.import_module(f"detect_secrets.plugins.{module}")
    detector = getattr(plugins, cls)()
    return _rule(
        detector.secret_type,
        literals,
        tuple(detector.denylist),
        lambda text: next(iter(detector.analyze_string(text)), None) is not None,
    )
