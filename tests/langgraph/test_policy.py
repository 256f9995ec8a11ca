# caches are emptied and the table of detectors is read
import asyncio
import base64
import importlib
import io
import math
import socket
import sqlite3
import sys
import threading
import timeit
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, SecretBytes, SecretStr

from counterfoil import credentials
from counterfoil.credentials import find_secret, is_secret_name
from counterfoil.errors import MissingExtra, SecretInState, StateNotStorable
from counterfoil.langgraph.policy import check_metadata, check_state, redact_text
from counterfoil.langgraph.serde import StateSerializer
from tests.langgraph.state_samples import SAMPLES, Order
from tests.langgraph.test_serde import SCALARS, containers

# --- live objects ----


def generate() -> Iterator[int]:
    yield 1


async def agenerate() -> AsyncIterator[int]:
    yield 1


class Client:
    def call(self) -> None: ...


LIVE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "rlock": threading.RLock,
    "event": threading.Event,
    "thread": threading.Thread,
    "module": lambda: sys,
    "file": io.StringIO,
    "generator": generate,
    "async generator": agenerate,
    "lambda": lambda: lambda: 1,
    "function": lambda: generate,
    "method": lambda: Client().call,
    "builtin": lambda: len,
    "class": lambda: Order,
    "asyncio lock": asyncio.Lock,
    "asyncio queue": asyncio.Queue,
    "requests session": requests.Session,
    "httpx client": httpx.Client,
}


@pytest.mark.parametrize("kind", LIVE)
def test_live_objects_are_refused_with_path_type_and_advice(kind: str) -> None:
    live = LIVE[kind]()
    with pytest.raises(StateNotStorable, match=r"cf\.resources.*call\.resource") as caught:
        check_state({"order": {"items": ["a", live]}})
    assert caught.value.path == "$.order.items[1]"
    assert type(live).__name__ in str(caught.value)
    if hasattr(live, "close"):
        live.close()


def test_open_connections_are_refused() -> None:
    with sqlite3.connect(":memory:") as connection, socket.socket() as sock:
        for live in (connection, connection.cursor(), sock):
            with pytest.raises(StateNotStorable, match=r"cf\.resources"):
                check_state(Command(update={"c": live}))
    connection.close()


def test_a_coroutine_is_refused() -> None:
    async def work() -> None: ...

    coroutine = work()
    with pytest.raises(StateNotStorable, match="coroutine"):
        check_state([Command(), Command(goto=Send("n", {"c": coroutine}))])
    coroutine.close()


# --- credentials ----


class Login(BaseModel):
    user: str
    password: SecretStr | str


@dataclass
class Settings:
    api_key: str
    region: str = "eu"


SPELLINGS = [
    "api_key",
    "apikey",
    "apiKey",
    "API-KEY",
    "OPENAI_API_KEY",
    "x-api-key",
    "Authorization",
    "proxy-authorization",
    "password",
    "db_password",
    "userPassword",
    "passwd",
    "secret",
    "client_secret",
    "clientSecret",
    "aws_secret_access_key",
    "access_token",
    "refresh-token",
    "private_key",
    "Cookie",
    "Set-Cookie",
    "session_token",
    "_password",
    "passphrase",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_fields_with_the_name_of_a_credential_are_refused(name: str) -> None:
    with pytest.raises(SecretInState) as caught:
        check_state({"config": {name: "canary-41"}})
    assert name in caught.value.path
    assert "canary-41" not in str(caught.value)


FRIENDS = [
    "token_count",
    "max_tokens",
    "tokens",
    "input_tokens",
    "total_tokens",
    "password_reset_required",
    "secret_santa",
    "secretary",
    "cookie_consent",
    "key",
    "keys",
    "public_key",
    "idempotency_key",
    "sort_key",
    "primary_key",
    "next_page_token",
    "page_token",
    "token",
    "authorized",
    "author",
    "password_hash_algorithm",
    "passenger",
    "compass",
    "pwd",
    "access",
    "api",
    "apikeys_enabled",
    "credential_type",
    "cookies_accepted",
]


@pytest.mark.parametrize("name", FRIENDS)
def test_false_friends_pass(name: str) -> None:
    assert not is_secret_name(name)
    check_state({name: "some value 12"})


def test_empty_values_and_flags_pass_under_any_name() -> None:
    check_state(
        {
            "password": "",
            "api_key": None,
            "client_secret": False,
            "cookies": {},
            "access_token": [],
            "passwords": [""],
            "secret": 7,
        }
    )


def test_a_mapping_has_names_of_its_own_unless_it_is_a_jar_of_credentials() -> None:
    check_state({"authorization": {"status": "approved", "amount": 500}})
    for value in (
        {"cookies": {"sid": "x1"}},
        {"passwords": ["x1"]},
        {"authorization": {"password": "x1"}},
        {"password": 7},
    ):
        with pytest.raises(SecretInState):
            check_state(value)


def github() -> str:
    return "ghp_" + "a1B2" * 9


SHAPES = {
    "aws": "AKIA" + "Q3EG" * 4,
    "github": github(),
    "github fine-grained": "github_pat_" + "a1" * 30,
    "slack": "xoxb-" + "123456789012-" + "abcdefABCDEF",
    "stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    "encrypted private key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE",
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJlc2lnbmF0dXJl",
    "url": "postgresql://app:canary-pw@db.internal/orders",
    "url with special characters": "postgresql://app:pa$$w0rd!@db/orders",
    "url without user": "redis://:canary@cache:6379/0",
    "bearer": "Bearer canary-7f3a9b2c",
    "basic": "Basic " + base64.b64encode(b"user:canary77").decode(),
    "anthropic": "sk-ant-" + "api03-" + "aB3" * 12,
    "sendgrid": "SG." + "a" * 22 + "." + "b" * 43,
    "gitlab": "glpat-" + "aB3_" * 5,
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    "dress", [str, "please use {} today".format, lambda s: s.encode()], ids=["bare", "text", "bytes"]
)
def test_credentials_are_recognised_by_their_shape(kind: str, dress: Callable[[str], Any]) -> None:
    with pytest.raises(SecretInState) as caught:
        check_state(
            {"messages": [HumanMessage("hi"), ToolMessage("ok", tool_call_id="1", artifact=dress(SHAPES[kind]))]}
        )
    assert caught.value.path == "$.messages[1].artifact"
    assert SHAPES[kind] not in str(caught.value)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_credentials_are_recognised_in_base64(kind: str, encode: Callable[[bytes], bytes]) -> None:
    with pytest.raises(SecretInState, match="base64"):
        check_state({"blob": encode(SHAPES[kind].encode()).decode()})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"login": SecretStr("canary")}, "$.login"),
        ([SecretBytes(b"canary")], "$[0]"),
        (Login(user="a", password=SecretStr("canary")), "$.password"),
        (Settings(api_key="canary"), "$.api_key"),
        (Command(update={"api_key": "canary"}), "$.update.api_key"),
        (Command(resume={"i": {"password": "canary"}}), "$.resume.i.password"),
        ([Command(), Command(goto=[Send("n", {"secret": "canary"})])], "$[1].goto[0].arg.secret"),
        (Interrupt({"access_token": "canary"}, id="i"), "$.value.access_token"),
        ({"m": AIMessage("", tool_calls=[{"name": "f", "args": {"password": "canary"}, "id": "1"}])}, None),
        ({"m": HumanMessage("", additional_kwargs={"headers": {"Authorization": "canary"}})}, None),
        ({github(): 1}, "$"),
        ({"deep": ({"a": [{"b": {github()}}]},)}, "$.deep[0].a[0].b[0]"),
    ],
)
def test_credentials_are_found_wherever_they_are(value: Any, path: str | None) -> None:
    with pytest.raises(SecretInState) as caught:
        check_state(value)
    assert path in {None, caught.value.path}
    assert "canary" not in str(caught.value)
    assert github() not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/a?b=c:d@e",
        "postgresql://app@db/orders",
        "postgresql://app:***@db/orders",
        "postgresql://app:${DB_PASSWORD}@db/orders",
        "write to jo@example.com: it is basic stuff and the bearer of this letter",
        "The eyJ prefix, sk-learn, AKIA, xoxo, whsec_ and hf_ are only words here",
        "3f786850-e387-4fdb-a36e-d6dc88de001b",
        "3f786850e387550fdab836ed7e6dc881de23001b",
        "Basic instructions123",
        "ord_01HXYZABCDEF0123456789",
        base64.b64encode(b"an ordinary text of some length").decode(),
        base64.b64encode(bytes(range(200))).decode(),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexamplepublickey",
        "[redacted]",
    ],
)
def test_ordinary_texts_pass(text: str) -> None:
    assert find_secret(text) is None
    assert redact_text(text) == text


def test_a_long_text_is_searched_to_its_end() -> None:
    assert find_secret("word " * 40_000 + github()) is not None
    assert find_secret("A" * 200_000) is None


# --- texts that are redacted instead ----


@pytest.mark.parametrize("kind", SHAPES)
def test_error_texts_lose_their_credentials_and_keep_the_rest(kind: str) -> None:
    text = redact_text(f"call to provider failed ({SHAPES[kind]}) with status 503")
    assert "[redacted]" in text
    assert "canary" not in text
    assert text.startswith("call to provider failed")
    assert text.endswith("with status 503")
    assert find_secret(text) is None
    assert redact_text(text) == text


def test_assignments_in_error_texts_are_redacted() -> None:
    text = redact_text("input={'api_key': 'canary1', \"password\": \"canary2\"} secret=canary3 max_tokens=55")
    assert "canary" not in text
    assert "max_tokens=55" in text


# --- metadata ----


def test_metadata_is_plain_json_without_credentials() -> None:
    check_metadata({"source": "loop", "step": -1, "parents": {"": "1f0"}, "run_id": "r", "x": [1.5, None, True]})
    check_metadata({"counters_since_delta_snapshot": {"log": (1, 2)}})
    for bad in ({"a": ({1},)}, {"a": {1: 2}}, {"a": math.nan}, {"a": b"x"}, {"a": Order}, {"a": {1}}):
        with pytest.raises(StateNotStorable, match=r"^\$\.a"):
            check_metadata(bad)
    for secret in ({"api_key": "canary"}, {"auth": "Bearer canary-7f3a9b2c"}, {"db": SHAPES["url"]}):
        with pytest.raises(SecretInState) as caught:
            check_metadata(secret)
        assert "canary" not in str(caught.value)


# --- the rest ----


@pytest.mark.parametrize("name", SAMPLES)
def test_data_passes(name: str) -> None:
    check_state({"value": SAMPLES[name]})


@given(st.recursive(SCALARS, containers, max_leaves=15))
def test_what_the_policy_accepts_can_be_stored(value: Any) -> None:
    try:
        check_state(value)
    except (StateNotStorable, SecretInState):
        return
    StateSerializer(undeclared="loaded").dumps_typed(value)


def test_cycles_are_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = [value]
    with pytest.raises(StateNotStorable, match="contains itself") as caught:
        check_state(value, path="$.input")
    assert caught.value.path == "$.input.self[0]"


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins.aws", None)
    for cached in (credentials._library_rules, credentials.rules, credentials._literals, credentials._find_cached):
        cached.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r"pip install 'counterfoil\[langgraph\]'"):
            check_state({"a": "long enough"})
    finally:
        for cached in (credentials._library_rules, credentials.rules, credentials._literals, credentials._find_cached):
            cached.cache_clear()


def test_every_detector_still_finds_what_its_literals_promise() -> None:
    for module, cls, _ in credentials._DETECTORS:
        assert hasattr(importlib.import_module(f"detect_secrets.plugins.{module}"), cls)


def cost(state: Any, number: int) -> float:
    return min(timeit.repeat(lambda: check_state(state), number=number, repeat=3 if number > 1 else 1)) / number


def test_cost_of_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    small = {"order_id": "ord_1", "lines": [{"sku": "a", "qty": 2}] * 5, "customer": {"email": "jo@example.com"}}
    large = {"messages": [HumanMessage(f"message {i} " + "some words " * 100, id=str(i)) for i in range(200)]}
    credentials._find_cached.cache_clear()
    first, again, usual = cost(large, 1), cost(large, 5), cost(small, 50)
    with capsys.disabled():
        print(f"\nsmall state {usual * 1e6:.0f} us; 200 messages {first * 1e3:.1f} ms, again {again * 1e3:.1f} ms")  # noqa: T201
