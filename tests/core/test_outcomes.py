"""What an effect's exception says about the world, with the real clients' own exceptions on a real broken wire."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

from counterfoil import NotSent, Refused
from counterfoil.core.outcomes import ambiguous, classify
from counterfoil.core.states import AttemptOutcome
from counterfoil.testing.provider_client import CountingProvider

NOT_SENT, REFUSED, UNKNOWN = AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED, AttemptOutcome.UNKNOWN


def judged(error: BaseException, **declared: Any) -> AttemptOutcome:
    return classify(error, not_sent=declared.get("not_sent", ()), refused=declared.get("refused", ()))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotSent(), NOT_SENT),
        (Refused(), REFUSED),
        (ConnectionRefusedError(), NOT_SENT),
        (socket.gaierror(), NOT_SENT),
        (TimeoutError(), UNKNOWN),
        (ConnectionResetError(), UNKNOWN),
        (ConnectionAbortedError(), UNKNOWN),
        (BrokenPipeError(), UNKNOWN),
        (OSError(), UNKNOWN),
        (ssl.SSLError(), UNKNOWN),
        (HTTPException(), UNKNOWN),
        (KeyboardInterrupt(), UNKNOWN),
        (asyncio.CancelledError(), UNKNOWN),
        (ExceptionGroup("one inside", [ConnectionRefusedError()]), UNKNOWN),
        (Exception(), UNKNOWN),
    ],
)
def test_only_what_provably_means_less_is_less_than_unknown(error: BaseException, outcome: AttemptOutcome) -> None:
    assert judged(error) is outcome


def test_a_refused_connection_that_is_only_the_context_of_another_error_proves_nothing() -> None:
    def second_server() -> None:
        try:
            raise ConnectionRefusedError  # noqa: TRY301 - a first server refused ...
        except ConnectionRefusedError as error:
            raise TimeoutError from error  # ... and the second one took it and was silent

    with pytest.raises(TimeoutError) as caught:
        second_server()
    assert judged(caught.value) is UNKNOWN


# --- real clients -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[CountingProvider]:
    with CountingProvider() as provider:
        yield provider


@pytest.fixture
def provider(running: CountingProvider) -> CountingProvider:
    running.reset()
    return running


@pytest.fixture
def closed_port() -> Iterator[str]:
    """The URL of a port at which nobody listens, kept from being given to anybody else."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/effects/x"


SHORT = 0.2


def by_httpx(url: str) -> None:
    httpx.post(url, json={}, timeout=SHORT)


def by_requests(url: str) -> None:
    requests.post(url, json={}, timeout=SHORT)


def by_urllib3(url: str) -> None:
    with urllib3.PoolManager() as pool:
        pool.request("POST", url, json={}, timeout=SHORT, retries=False)


def by_aiohttp(url: str) -> None:
    async def post() -> None:
        timeout = aiohttp.ClientTimeout(sock_connect=SHORT, sock_read=SHORT)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json={}) as reply:
            await reply.read()

    asyncio.run(post())


CLIENTS = {"httpx": by_httpx, "requests": by_requests, "urllib3": by_urllib3, "aiohttp": by_aiohttp}


def raised(post: Callable[[str], None], url: str) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever this client raises is what is judged
        post(url)
    return caught.value


@pytest.mark.parametrize("client", ["httpx", "urllib3", "aiohttp"])
def test_a_refused_connection_was_not_sent(client: str, closed_port: str) -> None:
    assert judged(raised(CLIENTS[client], closed_port)) is NOT_SENT


def test_requests_does_not_tell_a_refused_connection_from_a_lost_reply(closed_port: str) -> None:
    """Its `ConnectionError` is both, and may hide retries: unknown, unless the effect's author knows better."""
    assert judged(raised(by_requests, closed_port)) is UNKNOWN


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["hold", "hold-before-accept", "drop-reply", "reset-reply", "cut-reply"])
def test_a_reply_that_does_not_come_whole_is_unknown(provider: CountingProvider, client: str, fault: Any) -> None:
    provider.order(fault)
    error = raised(CLIENTS[client], f"{provider.url}/effects/x")
    provider.release()
    assert judged(error) is UNKNOWN
    assert provider.received() == 1


@pytest.mark.parametrize("client", ["httpx", "requests", "aiohttp"])
def test_an_error_status_that_the_client_raises_is_unknown_until_its_meaning_is_declared(
    provider: CountingProvider, client: str
) -> None:
    def post(url: str) -> None:
        if client == "httpx":
            httpx.post(url, json={}).raise_for_status()
        elif client == "requests":
            requests.post(url, json={}, timeout=5).raise_for_status()
        else:
            asyncio.run(by_session(url))

    async def by_session(url: str) -> None:
        async with aiohttp.ClientSession(raise_for_status=True) as session, session.post(url, json={}):
            pass

    provider.order("error-500-after-accept")
    assert judged(raised(post, f"{provider.url}/effects/x")) is UNKNOWN


# --- declarations that would lie --------------------------------------------------------------------------------------


class Narrow(Exception):
    """Somebody's own error."""


@pytest.mark.parametrize(
    "declared",
    [
        Exception,
        BaseException,
        OSError,
        ConnectionError,
        TimeoutError,
        ConnectionResetError,
        BrokenPipeError,
        httpx.HTTPError,
        httpx.TransportError,
        httpx.TimeoutException,
        httpx.ReadTimeout,
        requests.RequestException,
        requests.Timeout,
        requests.ReadTimeout,
        requests.ConnectionError,
        aiohttp.ClientError,
        aiohttp.ServerTimeoutError,
        aiohttp.ServerDisconnectedError,
        asyncio.TimeoutError,
        asyncio.CancelledError,
    ],
)
def test_a_class_that_also_catches_a_lost_reply_cannot_be_declared(declared: type[BaseException]) -> None:
    assert ambiguous([declared]) == (declared.__name__,)


@pytest.mark.parametrize(
    "declared",
    [Narrow, ConnectionRefusedError, socket.gaierror, httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout],
)
def test_a_class_that_catches_no_lost_reply_can_be_declared(declared: type[BaseException]) -> None:
    assert ambiguous([declared]) == ()
    assert judged(declared("x"), not_sent=(declared,)) is NOT_SENT
    assert judged(declared("x"), refused=(declared,)) in {REFUSED, NOT_SENT}
