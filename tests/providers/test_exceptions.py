"""Each client on a real wire that fails in one way: what its exception means, and what the server saw."""

import asyncio
import gc
import socket
import subprocess
import sys
import warnings
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

from counterfoil import AttemptOutcome, Refused
from counterfoil.providers import classify
from counterfoil.providers.tables import HOMES, RETRIERS, never_left, table
from tests.providers import faulty
from tests.providers.clients import CLIENTS, SHORT, by_aiohttp, by_botocore, by_urllib3
from tests.providers.faulty import Faulty

NOT_SENT, UNKNOWN = AttemptOutcome.NOT_SENT, AttemptOutcome.UNKNOWN
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def swept() -> Iterator[None]:
    """Collect the sockets that clients leave open when they fail, before another test is blamed for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def raised(send: Any, *args: Any, **kwargs: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever this client raises is what is judged
        send(*args, **kwargs)
    return caught.value


def meant(error: BaseException) -> AttemptOutcome:
    """Return what holds without a declaration."""
    return NOT_SENT if never_left(error) else UNKNOWN


@pytest.fixture
def closed() -> Iterator[str]:
    """A port at which nobody listens, kept from being given to anybody else."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


# --- nothing was sent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_refused_connection_was_not_sent(client: str, scheme: str, closed: str) -> None:
    error = raised(CLIENTS[client], f"{scheme}://{closed}/things")
    assert (meant(error), classify(error)) == (NOT_SENT, NOT_SENT)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_the_connection_was_sent_nothing(client: str, scheme: str, closed: str) -> None:
    error = raised(CLIENTS[client], f"{scheme}://elsewhere.invalid/things", proxy=f"http://{closed}")
    assert meant(error) is NOT_SENT


@pytest.mark.parametrize("client", CLIENTS)
def test_a_name_that_does_not_resolve_was_sent_nothing(client: str) -> None:
    assert meant(raised(CLIENTS[client], "http://nowhere.invalid/things")) is NOT_SENT


@pytest.mark.parametrize("client", CLIENTS)
def test_a_proxy_that_does_not_connect_was_sent_no_request(client: str) -> None:
    with Faulty(faulty.forbid) as proxy:
        error = raised(CLIENTS[client], "https://elsewhere.invalid/things", proxy=f"http://127.0.0.1:{proxy.port}")
        assert meant(error) is NOT_SENT
        assert {line.split()[0] for line in proxy.lines} == {b"CONNECT"}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("opening", [faulty.speaks_no_tls, faulty.stall], ids=["no TLS", "silent"])
def test_a_failed_tls_handshake_comes_before_the_request(client: str, opening: Any) -> None:
    with Faulty(faulty.answer, on_open=opening) as server:
        url = server.url.replace("http:", "https:")
        error = raised(CLIENTS[client], url, wait=SHORT)
        assert (meant(error), server.requests) == (NOT_SENT, 0)


def test_a_pool_that_is_used_up_sends_nothing() -> None:
    with Faulty(faulty.answer) as server:
        limits = httpx.Limits(max_connections=1)
        with (
            httpx.Client(limits=limits, timeout=httpx.Timeout(5, pool=0.05)) as client,
            client.stream("POST", server.url),
        ):
            error = raised(client.post, server.url)
        assert (type(error), meant(error), server.requests) == (httpx.PoolTimeout, NOT_SENT, 1)


def test_a_blocking_pool_of_urllib3_that_is_used_up_sends_nothing() -> None:
    with Faulty(faulty.answer) as server, urllib3.HTTPConnectionPool("127.0.0.1", server.port, block=True) as pool:
        held = pool.urlopen("POST", "/things", preload_content=False, retries=False)
        error = raised(pool.urlopen, "POST", "/things", pool_timeout=0.05, retries=False)
        held.release_conn()
        assert (type(error), meant(error), server.requests) == (urllib3.exceptions.EmptyPoolError, NOT_SENT, 1)


# --- the request may have arrived -------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", ["close", "reset", "garbage", "stall"])
def test_a_request_without_an_answer_is_unknown_and_was_sent_once(client: str, fault: str) -> None:
    with Faulty(getattr(faulty, fault)) as server:
        error = raised(CLIENTS[client], server.url, wait=SHORT if fault == "stall" else 5.0)
        assert (meant(error), server.requests) == (UNKNOWN, 1)
        assert classify(error) in {None, UNKNOWN}
        assert not isinstance(error, TimeoutError) or client in {"aiohttp", "urllib"}


@pytest.mark.parametrize("client", sorted(CLIENTS.keys() - {"botocore"}))  # it does not notice
def test_an_answer_that_is_cut_in_its_body_is_unknown(client: str) -> None:
    with Faulty(faulty.cut_body) as server:
        error = raised(CLIENTS[client], server.url)
        assert (meant(error), classify(error), server.requests) == (UNKNOWN, None, 1)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_is_cut_amid_the_request_is_unknown(client: str) -> None:
    """No client can know how far its bytes came."""
    with Faulty(faulty.answer, on_open=faulty.reset_at_first_byte) as server:
        error = raised(CLIENTS[client], server.url)
        assert (meant(error), server.requests) == (UNKNOWN, 0)


# --- a kept-alive connection that the server closes -------------------------------------------------------------------


def twice_by_httpx(url: str, method: str) -> None:
    with httpx.Client() as client:
        client.post(url, json={})
        client.request(method, url, json={})


def twice_by_requests(url: str, method: str) -> None:
    with requests.Session() as session:
        session.post(url, json={}, timeout=5)
        session.request(method, url, json={}, timeout=5)


def twice_by_urllib3(url: str, method: str) -> None:
    with urllib3.PoolManager(retries=False) as pool:
        pool.request("POST", url, json={})
        pool.request(method, url, json={})


def twice_by_aiohttp(url: str, method: str) -> None:
    async def send() -> None:
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json={}) as reply:
                await reply.read()
            async with session.request(method, url, json={}) as reply:
                await reply.read()

    asyncio.run(send())


TWICE = [twice_by_httpx, twice_by_requests, twice_by_urllib3, twice_by_aiohttp]


@pytest.mark.parametrize("twice", TWICE)
@pytest.mark.parametrize("fault", ["answer_then_close", "close_and_stop"])
def test_a_post_on_a_kept_connection_that_closes_is_unknown_and_not_repeated(twice: Any, fault: str) -> None:
    with Faulty(getattr(faulty, fault)) as server:
        assert meant(raised(twice, server.url, "POST")) is UNKNOWN
        assert server.requests == 2


@pytest.mark.parametrize("twice", TWICE)
def test_a_put_that_was_repeated_and_then_refused_is_unknown(twice: Any) -> None:
    """aiohttp sends it again by itself; a refused connection of its second try says nothing of the first."""
    with Faulty(faulty.close_and_stop) as server:
        assert meant(raised(twice, server.url, "PUT")) is UNKNOWN
        assert server.requests == 2


# --- a refused connection after something else was sent ---------------------------------------------------------------


def by_requests_again(url: str) -> None:
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=EVERYTHING))
        session.post(url, json={}, timeout=5)


EVERYTHING = urllib3.Retry(2, allowed_methods=None)
AGAIN: dict[str, Any] = {
    "requests": by_requests_again,
    "urllib3": lambda url: by_urllib3(url, retries=EVERYTHING),
    "aiohttp": lambda url: by_aiohttp(url, "PUT"),
    "botocore": lambda url: by_botocore(url, attempts=2),
}


@pytest.mark.parametrize("client", AGAIN)
def test_a_refused_connection_of_a_hidden_second_try_says_nothing_of_the_first(client: str) -> None:
    with Faulty(faulty.refuse_after_lost_reply) as server:
        error = raised(AGAIN[client], server.url)
        assert (meant(error), classify(error), server.requests) == (UNKNOWN, None, 1)


def by_httpx_following(url: str) -> None:
    with httpx.Client(follow_redirects=True) as client:
        client.post(url, json={})


FOLLOWING: dict[str, Any] = {
    "httpx": by_httpx_following,
    "requests": CLIENTS["requests"],
    "urllib3": lambda url: by_urllib3(url, retries=3),
    "aiohttp": by_aiohttp,
    "urllib": CLIENTS["urllib"],
}


@pytest.mark.parametrize("client", FOLLOWING)
def test_a_refused_connection_behind_a_redirect_says_nothing_of_the_post(client: str, closed: str) -> None:
    with Faulty(faulty.moved, location=f"http://{closed}/done") as server:
        error = raised(FOLLOWING[client], server.url)
        assert (meant(error), classify(error), server.requests) == (UNKNOWN, None, 1)


class Again(httpx.HTTPTransport):
    """Sends a lost request again."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.RemoteProtocolError:
            return super().handle_request(request)


def test_a_transport_of_ones_own_may_have_sent_before() -> None:
    with Faulty(faulty.refuse_after_lost_reply) as server, httpx.Client(transport=Again()) as client:
        error = raised(client.post, server.url, json={})
        assert (type(error), meant(error), server.requests) == (httpx.ConnectError, UNKNOWN, 1)


@pytest.mark.skipif(not hasattr(aiohttp, "ClientHandlerType"), reason="aiohttp has middlewares since 3.12")
async def test_an_aiohttp_middleware_may_have_sent_before() -> None:
    async def again(request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except aiohttp.ServerDisconnectedError:
            return await handler(request)

    with Faulty(faulty.refuse_after_lost_reply) as server:
        async with aiohttp.ClientSession(middlewares=[again]) as session:
            with pytest.raises(aiohttp.ClientConnectorError) as caught:
                await session.post(server.url, json={})
        assert (meant(caught.value), server.requests) == (UNKNOWN, 1)


@pytest.mark.parametrize("name", sorted(RETRIERS))
def test_what_comes_through_a_package_that_calls_again_is_unknown(name: str, closed: str) -> None:
    again = ModuleType(f"{name}.inside")
    exec("def call(function, *args):\n    return function(*args)", again.__dict__)  # noqa: S102 - a frame of its own
    assert meant(raised(again.call, CLIENTS["httpx"], f"http://{closed}")) is UNKNOWN


def by_xmlrpc(url: str) -> None:
    with xmlrpc.client.ServerProxy(url) as server:
        server.create()


def test_the_second_call_that_xmlrpc_makes_by_itself_says_nothing_of_the_first(closed: str) -> None:
    with Faulty(faulty.refuse_after_lost_reply) as server:
        error = raised(by_xmlrpc, server.url)
        assert (type(error), meant(error), server.requests) == (ConnectionRefusedError, UNKNOWN, 1)


@pytest.mark.parametrize("error", [ConnectionRefusedError(), socket.gaierror()])
def test_python_s_own_refusals_were_not_sent(error: OSError) -> None:
    assert meant(error) is NOT_SENT


@pytest.mark.parametrize(
    "error",
    [OSError(), TimeoutError(), ConnectionResetError(), ConnectionAbortedError(), BrokenPipeError(), Exception()],
)
def test_python_s_other_errors_are_unknown(error: Exception) -> None:
    assert meant(error) is UNKNOWN
    assert meant(ExceptionGroup("one inside", [ConnectionRefusedError()])) is UNKNOWN


# --- the tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", sorted(set(HOMES.values())))
def test_a_table_names_no_class_twice_and_only_its_own(home: str) -> None:
    known = table(home)
    assert known.not_sent & known.unknown == frozenset()
    assert {HOMES[name.partition(".")[0]] for name in known.not_sent | known.unknown} <= {home}


@pytest.mark.parametrize("home", sorted(set(HOMES.values())))
def test_what_a_table_names_is_there_in_the_installed_client(home: str) -> None:
    known, places = table(home), [pytest.importorskip(each) for each in PLACES[home]]
    names = {name.partition(".")[2] for name in known.not_sent | known.unknown}
    assert {name for name in names if not any(hasattr(place, name) for place in places)} == set()


PLACES = {
    "aiohttp": ("aiohttp",),
    "botocore": ("botocore.exceptions",),
    "grpc": ("grpc",),
    "httpx": ("httpx", "httpcore"),
    "psycopg": ("psycopg", "psycopg.errors", "psycopg_pool"),
    "requests": ("requests.exceptions",),
    "smtp_answers": ("smtplib", "aiosmtplib"),
    "sqlalchemy": ("sqlalchemy.exc",),
    "stripe_errors": ("stripe",),
    "stdlib": ("builtins", "socket", "urllib.error", "http.client"),
    "urllib3": ("urllib3.exceptions",),
}


def test_no_client_is_imported_to_know_its_errors() -> None:
    code = (
        "import sys; from counterfoil.providers import classify, hidden_retries\n"
        "from counterfoil.providers.tables import HOMES, table\n"
        "for home in HOMES.values(): table(home)\n"
        "classify(OSError()); hidden_retries(object())\n"
        f"print(sorted(set(sys.modules) & {set(HOMES) - sys.stdlib_module_names | {'asyncio', 'ssl'}}))"
    )
    root = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": root}
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (400, "refused, now and before"),
        *((door, "refused now") for door in (401, 403, 404, 405)),
        *((later, "not_sent") for later in (429, 503)),
        *((unclear, "unknown") for unclear in (302, 408, 409, 425, 499, 500, 502, 504)),
    ],
)
@pytest.mark.parametrize("client", ["httpx", "requests", "aiohttp", "urllib"])
def test_a_status_that_a_client_raises_is_judged_where_that_is_asked_for(
    client: str, status: int, meaning: str
) -> None:
    if (client, status) == ("aiohttp", 302):
        pytest.skip("it raises nothing of a redirect")
    with Faulty(faulty.status(status, *["Location: /"] * (status == 302))) as server:
        error = raised(RAISING[client], server.url)
    told = classify(error)
    assert meaning.partition(" now")[0].strip(",") == ("refused" if isinstance(told, Refused) else told)
    assert isinstance(told, Refused) == (meaning == "refused now")
    assert not never_left(error)


def aiohttp_raising(url: str) -> None:
    by_aiohttp(url, raise_for_status=True, allow_redirects=False)


def requests_raising(url: str) -> None:
    reply = requests.post(url, json={}, timeout=5, allow_redirects=False)
    if reply.is_redirect:
        raise requests.HTTPError(response=reply)
    reply.raise_for_status()


RAISING: dict[str, Any] = {
    "httpx": lambda url: httpx.post(url, json={}).raise_for_status(),
    "requests": requests_raising,
    "aiohttp": aiohttp_raising,
    "urllib": CLIENTS["urllib"],
}
