"""Start, order about and ask the counting provider; post to it without hidden retries."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from counterfoil.testing.children import first_line, start
from counterfoil.testing.provider_desk import Accepted, Held, JsonObject, Settings
from counterfoil.testing.provider_faults import Fault, FaultName

# The loopback answers within milliseconds; this only bounds a test that has gone wrong.
_TIMEOUT: Final = 10.0

_One = TypeVar("_One")


class Reply(NamedTuple):
    """Hold one answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: JsonObject


class ProviderClient:
    """Talk to a running counting provider, from any process that knows its URL."""

    def __init__(self, url: str) -> None:
        """Remember the base URL; every call opens its own connection."""
        self.url: Final = url

    # -- what an effect does

    def post(
        self,
        kind: str,
        body: Mapping[str, Any],
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT,
    ) -> Reply:
        """Post one effect once, with this process as `X-Client-Pid`.

        Connection errors, time-outs and `http.client` errors come through as they are.
        """
        sent = {"X-Client-Pid": str(os.getpid()), **(headers or {})}
        if key is not None:
            sent["Idempotency-Key"] = key
        return self._send("POST", _path(kind), body, sent, timeout)

    def find(
        self,
        kind: str,
        key: str | None = None,
        *,
        request_id: str | None = None,
        timeout: float = _TIMEOUT,
    ) -> Reply:
        """Look up by key or request id: 200 with `found` (maybe empty), or 404 if off."""
        asked = {"key": key, "request_id": request_id}
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        return self._send("GET", f"{_path(kind)}?{given}", None, {}, timeout)

    # -- what a test asks

    def accepted(self) -> list[Accepted]:
        """Return everything accepted so far, in order."""
        return self.wait_accepted(0)

    def wait_accepted(self, count: int = 1, timeout: float = _TIMEOUT) -> list[Accepted]:
        """Return the accepted effects as soon as there are `count`, or raise TimeoutError."""
        counts = self._ask(f"/count?total={count}&wait={timeout}", timeout)
        return _at_least(count, [Accepted(**one) for one in counts["accepted"]])

    def count(
        self,
        kind: str | None = None,
        key: str | None = None,
        *,
        request_id: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """Count the accepted effects that match every filter given."""
        return sum(
            kind in (None, one.kind)
            and key in (None, one.key)
            and request_id in (None, one.request_id)
            and tenant in (None, one.tenant)
            for one in self.accepted()
        )

    def received(self) -> int:
        """Count the POSTs that arrived, accepted or not: it shows hidden retries."""
        return int(self._ask("/count")["received"])

    # -- what a test orders

    def order(self, *faults: FaultName | Fault) -> None:
        """Queue faults, each for one POST to come; ValueError for an unknown one."""
        named = (Fault(name=fault) if isinstance(fault, str) else fault for fault in faults)
        self._tell("/faults", [asdict(fault) for fault in named])

    def wait_held(self, count: int = 1, timeout: float = _TIMEOUT) -> list[Held]:
        """Return the held POSTs as soon as there are `count`, or raise TimeoutError."""
        held = self._ask(f"/held?count={count}&wait={timeout}", timeout)["held"]
        return _at_least(count, [Held(**one) for one in held])

    def release(self, key: str | None = None) -> int:
        """Release the POSTs held under this key (None: all) and return how many."""
        return int(self._tell("/release", {"key": key})["released"])

    def configure(self, settings: Settings) -> None:
        """Replace the settings until the next reset."""
        self._tell("/settings", asdict(settings))

    def advance(self, seconds: float) -> None:
        """Move the provider's clock forward, for lags and key lifetimes."""
        self._tell("/clock", {"advance": seconds})

    def reset(self) -> None:
        """Forget counts, keys, faults and holds; go back to the first settings."""
        self._tell("/reset", {})

    def _ask(self, path: str, wait: float = 0.0) -> JsonObject:
        return _granted(self._send("GET", path, None, {}, wait + _TIMEOUT))

    def _tell(self, path: str, body: object) -> JsonObject:
        return _granted(self._send("POST", path, body, {}, _TIMEOUT))

    def _send(
        self,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str],
        timeout: float,
    ) -> Reply:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=timeout)
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, {"Content-Type": "application/json", **headers})
            return _read(connection.getresponse())
        finally:
            connection.close()


class CountingProvider(ProviderClient):
    """Run a counting provider in its own process; it ends with this one at the latest."""

    def __init__(self, settings: Settings | None = None, *, module: str = "counterfoil.testing.provider") -> None:
        """Start the process and wait for its URL; another module may speak another API's language."""
        self._owner: Final = os.getpid()
        self._process: Final = start(module, _flags(settings or Settings()))
        super().__init__(first_line(self._process))

    @property
    def pid(self) -> int:
        """Return the provider's process id."""
        return self._process.pid

    def close(self) -> None:
        """End the provider; a forked copy of this object leaves it alone."""
        if os.getpid() != self._owner:
            return
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        """Return the running provider."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the provider."""
        self.close()


def _path(kind: str) -> str:
    return f"/effects/{quote(kind, safe='')}"


def _read(response: HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, json.loads(response.read()))


def _granted(reply: Reply) -> JsonObject:
    if reply.status != HTTPStatus.OK:
        raise ValueError(reply.body["detail"])
    return reply.body


def _at_least(count: int, seen: list[_One]) -> list[_One]:
    if len(seen) < count:
        raise TimeoutError(f"expected {count}, saw {len(seen)}")
    return seen


def _flags(settings: Settings) -> list[str]:
    flags = [
        "--keys" if settings.keys else "--no-keys",
        "--lookup" if settings.lookup else "--no-lookup",
        f"--lag={settings.lag}",
    ]
    if settings.key_lifetime is not None:
        flags.append(f"--key-lifetime={settings.key_lifetime}")
    return flags
