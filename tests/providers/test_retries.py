"""A client that sends again by itself is refused where each send would be an effect of its own."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import botocore.session
import httpx
import pytest
import requests
import urllib3
from botocore.config import Config
from requests.adapters import HTTPAdapter

from counterfoil import Absent, AsyncCounterfoil, Counterfoil, Found, Provider, effect
from counterfoil.errors import HiddenRetries, OutcomeUnknown
from counterfoil.providers import hidden_retries
from tests.providers import faulty
from tests.providers.faulty import Faulty


def session(retries: Any) -> requests.Session:
    made = requests.Session()
    made.mount("https://api.example", HTTPAdapter(max_retries=retries))
    return made


def aws(**retries: Any) -> Any:
    made = botocore.session.Session()
    made.set_credentials("a", "b")
    return made.create_client("sqs", region_name="eu-west-1", config=Config(retries=retries) if retries else None)


class RetryTransport(httpx.HTTPTransport):
    """Somebody's own."""


class Wrapping(httpx.BaseTransport):
    def __init__(self) -> None:
        self.max_retries = 3


RETRYING: dict[str, Callable[[], Any]] = {
    "requests, a number": lambda: session(3),
    "requests, a Retry": lambda: session(urllib3.Retry(total=2, status_forcelist=[503])),
    "requests, reads alone": lambda: session(urllib3.Retry(total=None, connect=0, read=2, status=0, other=0)),
    "urllib3, by default": urllib3.PoolManager,
    "urllib3, a number": lambda: urllib3.PoolManager(retries=2),
    "urllib3, a pool by default": lambda: urllib3.HTTPConnectionPool("127.0.0.1"),
    "urllib3, a proxy manager": lambda: urllib3.ProxyManager("http://127.0.0.1"),
    "httpx, a transport": lambda: httpx.Client(transport=RetryTransport()),
    "httpx, a mounted one": lambda: httpx.Client(mounts={"https://": Wrapping()}),
    "botocore, by default": aws,
    "botocore, standard": lambda: aws(mode="standard"),
    "botocore, a number": lambda: aws(max_attempts=3),
}
ONCE: dict[str, Callable[[], Any]] = {
    "requests, by default": requests.Session,
    "requests, connecting alone": lambda: session(urllib3.Retry(total=2, read=0, status=0, other=0)),
    "requests, none": lambda: session(False),  # noqa: FBT003 - as requests takes it
    "urllib3, none": lambda: urllib3.PoolManager(retries=False),
    "urllib3, zero": lambda: urllib3.PoolManager(retries=0),
    "httpx, by default": httpx.Client,
    "httpx, connecting alone": lambda: httpx.Client(transport=httpx.HTTPTransport(retries=3)),
    "httpx, async": httpx.AsyncClient,
    "botocore, one": lambda: aws(total_max_attempts=1),
    "botocore, none more": lambda: aws(max_attempts=0),
    "something else": object,
}


@pytest.mark.parametrize("client", RETRYING)
def test_a_client_that_may_send_again_is_seen(client: str) -> None:
    assert hidden_retries(RETRYING[client]())


@pytest.mark.parametrize("client", ONCE)
def test_a_client_that_sends_once_or_repeats_connecting_alone_is_not(client: str) -> None:
    assert hidden_retries(ONCE[client]()) is None


async def test_a_session_of_aiohttp_is_left_to_its_table() -> None:
    async with aiohttp.ClientSession() as made:
        assert hidden_retries(made) is None


class Again(httpx.HTTPTransport):
    """Sends again what was lost, under a name that tells nothing."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(3):
            with suppress(httpx.TransportError):
                return super().handle_request(request)
        return super().handle_request(request)


def by_httpx(method: str, provider: Provider) -> Any:
    @effect("retries.httpx", key="{n}", provider=provider)
    def act(call: Any, *, n: str, url: str) -> int:
        return int(call.resource(httpx.Client).request(method, url, follow_redirects=True).status_code)

    return act


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_client_of_httpx_is_watched_whatever_its_transport_does(method: str) -> None:
    with Faulty(faulty.close) as server, Counterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(httpx.Client, lambda: httpx.Client(transport=Again()))
        for n in ("1", "2"):
            with pytest.raises(HiddenRetries, match="second time") as caught:
                cf.perform(by_httpx(method, Provider()), tenant="t", n=n, url=server.url)
            assert caught.value.sent == 1
            assert cf.operations.get(n, tenant="t").operation.state == "unknown"
        assert server.requests == 2


def test_a_watched_client_may_follow_redirects_and_ask_again() -> None:
    with Counterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(httpx.Client, lambda: httpx.Client(transport=Again()))
        with Faulty(faulty.answer) as elsewhere, Faulty(faulty.moved, location=elsewhere.url) as server:
            assert cf.perform(by_httpx("POST", Provider()), tenant="t", n="1", url=server.url).value == 201
        with Faulty(faulty.in_turn(faulty.close, faulty.answer)) as server:
            assert cf.perform(by_httpx("GET", Provider()), tenant="t", n="2", url=server.url).value == 201
            assert server.requests == 2


def by_aiohttp(method: str, provider: Provider, **more: Any) -> Any:
    @effect("retries.aiohttp", key="{n}", provider=provider)
    async def act(call: Any, *, n: str, url: str) -> int:
        headers = {"Idempotency-Key": call.provider_key}
        async with call.resource(aiohttp.ClientSession).request(method, url, headers=headers, **more) as reply:
            return int(reply.status)

    return act


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("fault", ["close", "reset"])
async def test_the_second_send_of_aiohttp_is_stopped_where_there_is_no_key(method: str, fault: str) -> None:
    with Faulty(getattr(faulty, fault)) as server:
        async with AsyncCounterfoil.open("sqlite:///:memory:") as cf, aiohttp.ClientSession() as session:
            cf.resources.provide(aiohttp.ClientSession, lambda: session)
            for n in ("1", "2"):
                with pytest.raises(HiddenRetries) as caught:
                    await cf.perform(by_aiohttp(method, Provider()), tenant="t", n=n, url=server.url)
                assert caught.value.sent == 1
                assert (await cf.operations.get(n, tenant="t")).operation.state == "unknown"
            assert len(session.trace_configs) == 1
        assert server.requests == 2


async def test_the_second_send_of_aiohttp_goes_under_the_same_key() -> None:
    with Faulty(faulty.in_turn(faulty.close, faulty.answer)) as server:
        async with AsyncCounterfoil.open("sqlite:///:memory:") as cf, aiohttp.ClientSession() as session:
            cf.resources.provide(aiohttp.ClientSession, lambda: session)
            made = by_aiohttp("PUT", Provider(key_lifetime="24h"))
            assert (await cf.perform(made, tenant="t", n="1", url=server.url)).value == 201
        assert (server.requests, len(set(server.keys))) == (2, 1)


async def test_a_watched_session_may_follow_redirects_and_ask_again() -> None:
    with Faulty(faulty.answer) as elsewhere, Faulty(faulty.moved, location=elsewhere.url) as server:
        async with AsyncCounterfoil.open("sqlite:///:memory:") as cf, aiohttp.ClientSession() as session:
            cf.resources.provide(aiohttp.ClientSession, lambda: session)
            made = by_aiohttp("POST", Provider())
            assert (await cf.perform(made, tenant="t", n="1", url=server.url)).value == 201
            with Faulty(faulty.in_turn(faulty.close, faulty.answer)) as asked:
                assert (await session.get(asked.url)).status == 201
                assert asked.requests == 2


def posting(provider: Provider, **more: Any) -> Any:
    @effect("providers.retrying", key="{n}", provider=provider, **more)
    def post(call: Any, *, n: str, url: str) -> int:
        client = call.resource(requests.Session)
        return int(client.post(url, headers={"Idempotency-Key": call.provider_key}, timeout=5).status_code)

    return post


def retrying() -> requests.Session:
    made = requests.Session()
    made.mount("http://", HTTPAdapter(max_retries=urllib3.Retry(2, allowed_methods=None, backoff_factor=0)))
    return made


def test_without_a_key_it_is_refused_and_nothing_is_sent_until_it_is_mended() -> None:
    with Faulty(faulty.answer) as server, Counterfoil.open("sqlite:///:memory:") as cf:
        post = posting(Provider())
        cf.resources.provide(requests.Session, retrying)
        with pytest.raises(HiddenRetries):
            cf.perform(post, tenant="t", n="1", url=server.url)
        with pytest.raises(HiddenRetries, match="max_retries=0") as caught:
            cf.perform(post, tenant="t", n="1", url=server.url)
        assert (caught.value.sent, server.requests) == (0, 0)
        assert cf.operations.get("1", tenant="t").operation.state == "pending"
        cf.resources.provide(requests.Session, requests.Session)
        assert cf.perform(post, tenant="t", n="1", url=server.url).value == 201
        assert server.requests == 1


def test_with_a_key_it_may_repeat_under_that_key() -> None:
    with Faulty(faulty.close) as server, Counterfoil.open("sqlite:///:memory:") as cf:
        post = posting(Provider(key_lifetime="24h"))
        cf.resources.provide(requests.Session, retrying)
        with pytest.raises(OutcomeUnknown):
            cf.perform(post, tenant="t", n="1", url=server.url)
        assert server.requests == 3
        assert len(set(server.keys)) == 1
        assert server.keys[0]


def test_a_look_up_may_ask_again_as_often_as_it_likes() -> None:
    def find(call: Any, **_: Any) -> Found | Absent:
        return Found(7) if call.resource(requests.Session, "asking") else Absent()

    with Faulty(faulty.close) as server, Counterfoil.open("sqlite:///:memory:") as cf:
        post = posting(Provider(lookup=find, lookup_lag="0s"))
        cf.resources.provide(requests.Session, requests.Session)
        cf.resources.provide(requests.Session, retrying, name="asking")
        assert cf.perform(post, tenant="t", n="1", url=server.url).answered_from == "lookup"
        assert server.requests == 1
