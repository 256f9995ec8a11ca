"""B40: on a closed keep-alive connection or a network error the HTTP library repeated the POST without telling anybody.

Sources: https://github.com/nahi/httpclient/issues/142, https://github.com/softonic/axios-retry/issues/66,
https://github.com/keycloak/keycloak/issues/52978
"""

from contextlib import suppress
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

from counterfoil import AsyncCounterfoil, Counterfoil
from counterfoil.errors import HiddenRetries, OutcomeUnknown
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.cases.over_http import AWAITING, BLOCKING, KEYED, OPAQUE, Clients, posting, provide
from tests.providers import faulty
from tests.providers.faulty import Faulty

LOST: list[Any] = ["drop-reply", "reset-reply", "cut-reply", "drop-before-accept"]


def perform(cf: Counterfoil, made: Any, counting: CountingProvider, request_id: str = "r-1") -> Any:
    return cf.perform(made, tenant="t", request_id=request_id, title="a", url=f"{counting.url}/tickets")


@pytest.fixture
def provider(counting: CountingProvider) -> CountingProvider:
    counting.reset()
    counting.configure(Settings(keys=False))
    return counting


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("client", BLOCKING)
def test_the_server_handles_it_and_closes_and_sees_one_request(
    url: str, provider: CountingProvider, client: str, fault: Any
) -> None:
    provider.order(fault)
    with Counterfoil.open(url) as cf:
        provide(cf)
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                perform(cf, posting(BLOCKING[client]), provider)
    assert provider.received() == 1


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("client", AWAITING)
async def test_the_same_on_an_event_loop(url: str, provider: CountingProvider, client: str, fault: Any) -> None:
    provider.order(fault)
    async with AsyncCounterfoil.open(url) as cf:
        provide(cf)
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await perform(cf, posting(AWAITING[client]), provider)  # type: ignore[arg-type]
    assert provider.received() == 1


@pytest.mark.parametrize("client", BLOCKING)
def test_a_kept_connection_that_closes_on_the_next_post(url: str, provider: CountingProvider, client: str) -> None:
    with Counterfoil.open(url) as cf:
        provide(cf)
        made = posting(BLOCKING[client])
        assert perform(cf, made, provider, "r-1").value["id"] == 1  # the connection is kept
        provider.order("drop-reply")
        with pytest.raises(OutcomeUnknown):
            perform(cf, made, provider, "r-2")
    assert (provider.received(), provider.count()) == (2, 2)


# --- clients with a retry layer ---------------------------------------------------------------------------------------

EVERYTHING = urllib3.Retry(3, allowed_methods=None, status_forcelist=[500, 503], backoff_factor=0)


class Layer(httpx.HTTPTransport):
    """Repeats what fails, and does not call itself a retry."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(3):
            with suppress(httpx.TransportError):
                return super().handle_request(request)
        return super().handle_request(request)


def session() -> requests.Session:
    made = requests.Session()
    made.mount("http://", requests.adapters.HTTPAdapter(max_retries=EVERYTHING))
    return made


RETRYING: Clients = {
    httpx.Client: lambda: httpx.Client(transport=Layer()),
    requests.Session: session,
    urllib3.PoolManager: lambda: urllib3.PoolManager(retries=EVERYTHING),
}


@pytest.mark.parametrize("client", BLOCKING)
def test_without_a_key_a_retry_layer_is_refused_by_name(url: str, provider: CountingProvider, client: str) -> None:
    provider.order("drop-reply", "drop-reply")
    with Counterfoil.open(url) as cf:
        provide(cf, RETRYING)
        with pytest.raises(HiddenRetries) as caught:
            perform(cf, posting(BLOCKING[client]), provider)
        assert provider.received() == caught.value.sent <= 1
        explained = cf.operations.get("ticket:r-1", tenant="t")
    assert explained.operation.state == ("unknown" if caught.value.sent else "pending")
    assert explained.attempts[0].error_class == "counterfoil.errors.HiddenRetries"


@pytest.mark.parametrize("client", BLOCKING)
def test_with_a_key_all_requests_carry_it_and_one_effect_comes_of_them(
    url: str, counting: CountingProvider, client: str
) -> None:
    counting.reset()
    counting.order("drop-reply", "drop-reply")
    with Counterfoil.open(url) as cf:
        provide(cf, RETRYING)
        receipt = perform(cf, posting(BLOCKING[client], KEYED), counting)
        assert receipt.value["id"] == 1
        if client == "adapter":
            assert receipt.evidence["sends"] == 3
    assert (counting.received(), counting.count()) == (3, 1)


async def test_a_put_that_aiohttp_repeats_by_itself_is_stopped(url: str, provider: CountingProvider) -> None:
    async def put(call: Any, address: str, _: Any) -> Any:
        async with call.resource(aiohttp.ClientSession).put(address) as reply:
            return reply.status

    with Faulty(faulty.close) as server:
        async with AsyncCounterfoil.open(url) as cf:
            provide(cf)
            with pytest.raises(HiddenRetries):
                await cf.perform(posting(put, OPAQUE), tenant="t", request_id="r-1", title="a", url=server.url)
        assert server.requests == 1
