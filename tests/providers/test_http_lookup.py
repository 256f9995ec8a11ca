"""The look-up that `Http` makes: a clear yes, a clear no, and everything else settles nothing."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from counterfoil import Absent, AsyncCounterfoil, CannotTell, Counterfoil, Found, Provider, effect
from counterfoil.errors import OutcomeUnknown
from counterfoil.providers.http import Http
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.patience import until_sent_async
from tests.providers import faulty
from tests.providers.faulty import Faulty

KEY = "k" * 64


@dataclass
class Call:
    """What a look-up is told."""

    client: Any
    provider_key = KEY
    time_limit = 5.0

    def resource(self, kind: type, _: str = "") -> Any:
        assert isinstance(self.client, kind)
        return self.client


def found_by(finder: Any) -> Any:
    with httpx.Client() as client:
        return finder(Call(client), title="a")


async def afound_by(finder: Any) -> Any:
    async with httpx.AsyncClient() as client:
        return await finder(Call(client), title="a")


def said(status: int, body: object = None, kind: str = "application/json") -> Any:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return faulty.status(status, f"Content-Type: {kind}", body=text)


THING, OTHER = {"id": 7, "key": KEY}, {"id": 8, "key": "another"}
EVIDENCE = {"status": 200}

ODD: tuple[Any, ...] = (None, {}, 7, "no", {"found": []}, b"", b"<html>", b"[")
ANSWERS: list[tuple[dict[str, Any], Any, object]] = [
    ({}, said(200, [THING]), Found(THING, EVIDENCE)),
    ({}, said(200, []), Absent()),
    ({"items": "found"}, said(200, {"found": [THING]}), Found(THING, EVIDENCE)),
    ({"items": "found"}, said(200, {"found": []}), Absent()),
    ({"items": "data", "holds": "key"}, said(200, {"data": [OTHER, THING]}), Found(THING, EVIDENCE)),
    ({"holds": "key"}, said(200, []), Absent()),
    ({"absent": {404}}, said(404), Absent()),
    ({"path": "/{key}"}, said(200, THING), Found(THING, EVIDENCE)),
    ({"path": "/{key}"}, said(404, {"detail": "no"}), Absent()),
    # whatever is neither settles nothing
    ({"path": "/{key}", "absent": ()}, said(404), CannotTell("HTTP 404")),
    ({}, said(404), CannotTell("HTTP 404")),
    *(({}, said(status), CannotTell(f"HTTP {status}")) for status in (301, 400, 401, 403, 410, 429, 500, 503)),
    ({}, said(200, [THING, OTHER]), CannotTell("the answer shows 2 things where there should be one")),
    ({"holds": "key"}, said(200, [OTHER]), CannotTell("the answer shows things of other keys only")),
    ({"holds": "key"}, said(200, [THING, THING]), CannotTell("the answer shows 2 things where there should be one")),
    *(({}, said(200, body), CannotTell("HTTP 200: the answer is not of the declared shape")) for body in ODD),
    ({"items": "found"}, said(200, {"other": []}), CannotTell("HTTP 200: the answer is not of the declared shape")),
    ({"items": "found"}, said(200, {"found": None}), CannotTell("HTTP 200: the answer is not of the declared shape")),
    ({}, said(200, b"login", "text/html"), CannotTell("HTTP 200: the answer is not of the declared shape")),
]


@pytest.mark.parametrize(("how", "step", "answer"), ANSWERS)
def test_an_answer_is_a_clear_yes_a_clear_no_or_nothing(how: dict[str, Any], step: Any, answer: object) -> None:
    given = {name: value for name, value in how.items() if name != "path"}
    with Faulty(step) as server:
        url = server.url + how.get("path", "")
        assert found_by(Http().finder(url, **given)) == answer
        assert asyncio.run(afound_by(Http().afinder(url, **given))) == answer
    line, other = server.lines
    assert line == other
    asked = f"/things/{KEY}" if "path" in how else f"/things?key={KEY}"
    assert line.decode().split()[:2] == ["GET", asked]


def test_the_key_may_go_into_another_parameter() -> None:
    with Faulty(said(200, [THING])) as server:
        assert found_by(Http().finder(server.url, param="idempotency_key")) == Found(THING, EVIDENCE)
    assert f"idempotency_key={KEY}".encode() in server.lines[0]


# --- through the ledger, at the counting provider ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[CountingProvider]:
    with CountingProvider() as provider:
        yield provider


@pytest.fixture
def counting(running: CountingProvider) -> CountingProvider:
    running.reset()
    return running


def make(api: Http, provider: Provider) -> Any:
    @effect("http.ticket", key="{n}", provider=provider, time_limit="5s")
    def create(call: Any, *, n: str) -> Any:
        return api.send(call, "POST", "/tickets", json={"n": n})

    return create


def open_at(counting: CountingProvider, clock: FakeClock | None = None) -> Counterfoil:
    cf = Counterfoil.open("sqlite:///:memory:", clock=clock)
    cf.resources.provide(httpx.Client, lambda: httpx.Client(base_url=counting.url))
    return cf


FIND = Http().finder("/tickets", items="found")
LOST: list[Any] = ["drop-reply", "reset-reply", "cut-reply", "error-500-after-accept"]


@pytest.mark.parametrize("fault", LOST)
def test_a_lost_reply_is_found_by_its_key(counting: CountingProvider, fault: Any) -> None:
    counting.order(fault)
    with open_at(counting) as cf:
        made = make(Http(), Provider(lookup=FIND, lookup_lag="0s"))
        receipt = cf.perform(made, tenant="t", n="1")
        assert (receipt.answered_from, receipt.value["n"], receipt.evidence) == ("lookup", "1", {"status": 200})
    assert (counting.received(), counting.count()) == (1, 1)


@pytest.mark.parametrize("fault", LOST)
async def test_a_lost_reply_is_found_on_a_loop_too(counting: CountingProvider, fault: Any) -> None:
    api = Http()
    find = api.afinder("/tickets", items="found")

    @effect("http.aticket", key="{n}", provider=Provider(lookup=find, lookup_lag="0s"))
    async def create(call: Any, *, n: str) -> Any:
        return await api.asend(call, "POST", "/tickets", json={"n": n})

    counting.order(fault)
    async with AsyncCounterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(httpx.AsyncClient, lambda: httpx.AsyncClient(base_url=counting.url))
        assert (await cf.perform(create, tenant="t", n="1")).answered_from == "lookup"
    assert (counting.received(), counting.count()) == (1, 1)


def test_a_lost_reply_is_sent_again_under_its_key_and_the_stored_answer_says_so(counting: CountingProvider) -> None:
    counting.order("drop-reply")
    with open_at(counting) as cf:
        made = make(Http(), Provider(key_lifetime="24h"))
        with pytest.raises(OutcomeUnknown):
            cf.perform(made, tenant="t", n="1")
        receipt = cf.perform(made, tenant="t", n="1")
    assert receipt.evidence == {"status": 201, "class": "succeeded", "sends": 1, "replayed": True}
    assert (counting.received(), counting.count()) == (2, 1)


def test_a_twin_in_progress_is_unknown_and_its_key_gives_the_one_receipt(counting: CountingProvider) -> None:
    """409 by the IETF draft: the first request of the key is being worked on."""
    counting.order("hold")
    with open_at(counting) as cf:
        api = Http()

        @effect("http.twin", key="{n}", provider=Provider(key_lifetime="24h"), time_limit="5s")
        def create(call: Any, *, n: str) -> Any:
            return api.send(call, "POST", "/tickets", json={"n": n}, timeout=1.0)

        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                cf.perform(create, tenant="t", n="1")
        assert [each.error_text for each in cf.operations.get("1", tenant="t").attempts] == [None, "HTTP status 409"]
        counting.release()
        for _ in range(20):  # the first request is answered a moment after it is released
            with suppress(OutcomeUnknown):
                cf.perform(create, tenant="t", n="1")
                break
        assert cf.perform(create, tenant="t", n="1").value is not None
    assert counting.count() == 1


async def test_an_answer_after_the_time_limit_is_still_heard(counting: CountingProvider) -> None:
    api = Http()

    @effect("http.late", key="{n}", time_limit="200ms")
    def create(call: Any, *, n: str) -> Any:
        return api.send(call, "POST", "/tickets", json={"n": n})

    counting.order("hold")
    async with AsyncCounterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(httpx.Client, lambda: httpx.Client(base_url=counting.url))
        with pytest.raises(OutcomeUnknown):
            await until_sent_async(lambda: cf.perform(create, tenant="t", n="1"))
        counting.wait_held()
        counting.release()
        async with asyncio.timeout(10):
            while not (receipt := await told(cf, create)):
                pass
    assert (receipt.value["id"], counting.received(), counting.count()) == (1, 1, 1)


async def told(cf: AsyncCounterfoil, made: Any) -> Any:
    try:
        return await cf.perform(made, tenant="t", n="1")
    except OutcomeUnknown:
        return None


def lose_a_reply_and_let_the_key_expire(
    cf: Counterfoil, made: Any, counting: CountingProvider, clock: FakeClock
) -> None:
    counting.order("drop-reply")
    with pytest.raises(OutcomeUnknown):
        cf.perform(made, tenant="t", n="1")
    clock.advance("25h")
    counting.advance(25 * 3600)


FORGETFUL = Settings(key_lifetime=24 * 3600.0)
MUTE = Settings(key_lifetime=24 * 3600.0, lookup=False)


def test_a_key_that_the_provider_has_forgotten_is_never_sent_again(counting: CountingProvider) -> None:
    counting.configure(FORGETFUL)
    clock = FakeClock()
    with open_at(counting, clock) as cf:
        made = make(Http(), Provider(key_lifetime="24h"))
        lose_a_reply_and_let_the_key_expire(cf, made, counting, clock)
        for _ in range(2):
            with pytest.raises(OutcomeUnknown, match="lifetime is over"):
                cf.perform(made, tenant="t", n="1")
    assert (counting.received(), counting.count()) == (1, 1)


def test_a_key_that_the_provider_has_forgotten_waits_for_a_look_up(counting: CountingProvider) -> None:
    counting.configure(MUTE)
    clock = FakeClock()
    with open_at(counting, clock) as cf:
        made = make(Http(), Provider(key_lifetime="24h", lookup=FIND, lookup_lag="0s"))
        lose_a_reply_and_let_the_key_expire(cf, made, counting, clock)
        with pytest.raises(OutcomeUnknown):
            cf.perform(made, tenant="t", n="1")
        counting.configure(FORGETFUL)
        assert cf.perform(made, tenant="t", n="1").answered_from == "lookup"
    assert (counting.received(), counting.count()) == (1, 1)
