"""One POST or PUT by each client that has a table, with short time-outs and its hidden retries off."""

import asyncio
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import botocore.session
import httpx
import requests
import urllib3
from botocore.config import Config

SHORT: Final = 0.25
LONG: Final = 5.0
"""For what must not end by itself: `stall` alone is ended by a time-out."""

Send = Callable[..., Any]


def by_httpx(url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG) -> Any:
    with httpx.Client(timeout=wait, proxy=proxy) as client:
        return client.request(method, url, json={})


def by_httpx_async(url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG) -> Any:
    async def send() -> Any:
        async with httpx.AsyncClient(timeout=wait, proxy=proxy) as client:
            return await client.request(method, url, json={})

    return asyncio.run(send())


def by_requests(url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG) -> Any:
    proxies = {"http": proxy, "https": proxy} if proxy else None
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, url, json={}, timeout=wait, proxies=proxies)


def by_urllib3(
    url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG, retries: Any = False
) -> Any:
    manager = urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()
    with manager:
        return manager.request(method, url, json={}, timeout=wait, retries=retries)


def by_urllib3_counting(url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG) -> Any:
    return by_urllib3(url, method, proxy=proxy, wait=wait, retries=0)


def by_aiohttp(url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG, **more: Any) -> Any:
    async def send() -> Any:
        limits = aiohttp.ClientTimeout(total=LONG, sock_connect=wait, sock_read=wait)
        async with (
            aiohttp.ClientSession(timeout=limits) as session,
            session.request(method, url, json={}, proxy=proxy, **more) as reply,
        ):
            return await reply.read()

    return asyncio.run(send())


def by_botocore(
    url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG, attempts: int = 1
) -> Any:
    session = botocore.session.Session()
    session.set_credentials("a", "b")
    proxies = {"http": proxy, "https": proxy} if proxy else None
    config = Config(retries={"total_max_attempts": attempts}, connect_timeout=wait, read_timeout=wait, proxies=proxies)
    client = session.create_client("sqs", region_name="us-east-1", endpoint_url=url.rpartition("/")[0], config=config)
    return client.send_message(QueueUrl=url, MessageBody="x")


def by_urllib(url: str, method: str = "POST", *, proxy: str | None = None, wait: float = LONG) -> Any:
    proxies = urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {})
    asked = urllib.request.Request(url, data=b"{}", method=method)  # noqa: S310 - a test's own server
    with urllib.request.build_opener(proxies).open(asked, timeout=wait) as reply:
        return reply.read()


CLIENTS: Final[dict[str, Send]] = {
    "httpx": by_httpx,
    "httpx-async": by_httpx_async,
    "requests": by_requests,
    "urllib3": by_urllib3,
    "urllib3-counting": by_urllib3_counting,
    "aiohttp": by_aiohttp,
    "botocore": by_botocore,
    "urllib": by_urllib,
}
