"""What the cases about HTTP share: an effect that posts a ticket through each client, at the counting provider."""

import inspect
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import requests
import urllib3

from counterfoil import Effect, Provider, effect
from counterfoil.providers.http import Http

API = Http()
OPAQUE, KEYED = Provider(), Provider(key_lifetime="12h")
Clients = dict[type, Callable[[], Any]]
Body = Callable[[Any, str, Any], Any]


def by_adapter(call: Any, url: str, body: Any) -> Any:
    return API.send(call, "POST", url, json=body, timeout=5)


def by_httpx(call: Any, url: str, body: Any) -> Any:
    return call.resource(httpx.Client).post(url, json=body, headers=headers(call)).raise_for_status().json()


def by_requests(call: Any, url: str, body: Any) -> Any:
    reply = call.resource(requests.Session).post(url, json=body, headers=headers(call), timeout=5)
    reply.raise_for_status()
    return reply.json()


def by_urllib3(call: Any, url: str, body: Any) -> Any:
    return call.resource(urllib3.PoolManager).request("POST", url, json=body, headers=headers(call), timeout=5).json()


async def by_adapter_async(call: Any, url: str, body: Any) -> Any:
    return await API.asend(call, "POST", url, json=body, timeout=5)


async def by_aiohttp(call: Any, url: str, body: Any) -> Any:
    sent = call.resource(aiohttp.ClientSession).post(url, json=body, headers=headers(call), raise_for_status=True)
    async with sent as reply:
        return await reply.json()


def headers(call: Any) -> dict[str, str]:
    return {"Idempotency-Key": call.provider_key}


BLOCKING: dict[str, Body] = {"adapter": by_adapter, "httpx": by_httpx, "requests": by_requests, "urllib3": by_urllib3}
AWAITING: dict[str, Body] = {"async adapter": by_adapter_async, "aiohttp": by_aiohttp}
PLAIN: Clients = {
    httpx.Client: httpx.Client,
    httpx.AsyncClient: httpx.AsyncClient,
    requests.Session: requests.Session,
    urllib3.PoolManager: lambda: urllib3.PoolManager(retries=False),
    aiohttp.ClientSession: aiohttp.ClientSession,
}
"""Clients as their makers deliver them, but that urllib3 repeats connecting unless told not to."""


def provide(cf: Any, clients: Clients = PLAIN) -> None:
    for kind, make in clients.items():
        cf.resources.provide(kind, make)


def posting(body: Body, provider: Provider = OPAQUE, *, time_limit: str = "30s") -> Effect[Any]:
    declare = effect("cases.over-http", key="ticket:{request_id}", provider=provider, time_limit=time_limit)

    def create(call: Any, *, title: str, url: str) -> Any:
        return body(call, url, {"title": title})

    async def acreate(call: Any, *, title: str, url: str) -> Any:
        return await body(call, url, {"title": title})

    return _named(declare, acreate if inspect.iscoroutinefunction(body) else create)


def _named(declare: Any, function: Any) -> Effect[Any]:
    function.__qualname__ = "create"  # both colours are one effect
    made: Effect[Any] = declare(function)
    return made
