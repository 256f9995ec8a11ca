"""Effects through `Http`: each answer's class, what the receipt keeps of it, and how often the server was asked."""

import asyncio
import gzip
import importlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, Effect, Provider, Receipt, effect
from counterfoil.errors import (
    ContradictoryDeclaration,
    EffectNotSent,
    EffectRefused,
    HiddenRetries,
    MissingExtra,
    OutcomeUnknown,
    ReceiptUnreadable,
    ResourceMissing,
)
from counterfoil.providers.http import LONGEST_WAIT_S, Answers, Http, KeyReused, UnclearAnswer
from tests.providers import faulty
from tests.providers.faulty import Faulty

KEYED = Provider(key_lifetime="24h")
Make = Callable[[], Any]


class Blocking:
    """One database and one client, as blocking code has them."""

    def __init__(self, client: Make = httpx.Client) -> None:
        self.client = client
        self.cf = Counterfoil.open("sqlite:///:memory:")
        self.cf.resources.provide(httpx.Client, client)

    def effect(self, api: Http, provider: Provider = KEYED, **request: Any) -> Effect[Any]:
        @effect("http.post", key="{n}", provider=provider, time_limit="5s")
        def post(call: Any, *, url: str, n: str = "1") -> Any:
            return api.send(call, "POST", url, **{"json": {"n": n}, **request})

        return post

    def perform(self, made: Effect[Any], url: str) -> Receipt[Any]:
        return self.cf.perform(made, tenant="t", url=url, n="1")

    def detail(self) -> Any:
        return self.cf.operations.get("1", tenant="t")

    def close(self) -> None:
        self.cf.close()


class Awaiting(Blocking):
    """The same on an event loop of its own."""

    def __init__(self, client: Make = httpx.AsyncClient) -> None:
        self.loop = asyncio.Runner()
        self.acf = AsyncCounterfoil.open("sqlite:///:memory:")
        self.acf.resources.provide(httpx.AsyncClient, client)

    def effect(self, api: Http, provider: Provider = KEYED, **request: Any) -> Effect[Any]:
        @effect("http.apost", key="{n}", provider=provider, time_limit="5s")
        async def post(call: Any, *, url: str, n: str = "1") -> Any:
            return await api.asend(call, "POST", url, **{"json": {"n": n}, **request})

        return post

    def perform(self, made: Effect[Any], url: str) -> Receipt[Any]:
        receipt: Receipt[Any] = self.run(self.acf.perform(made, tenant="t", url=url, n="1"))
        return receipt

    def run(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        return self.loop.run(wait())

    def detail(self) -> Any:
        return self.run(self.acf.operations.get("1", tenant="t"))

    def close(self) -> None:
        self.run(self.acf.close())
        self.loop.close()


Open = Callable[..., Blocking]
CLIENT_OF: dict[type, Any] = {Blocking: httpx.Client, Awaiting: httpx.AsyncClient}


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda kind, client: stack.enter_context(closing(kind(client)))


@pytest.fixture(params=[(Blocking, httpx.Client), (Awaiting, httpx.AsyncClient)], ids=["blocking", "awaiting"])
def desk(request: pytest.FixtureRequest, opened: Open) -> Blocking:
    return opened(*request.param)


# --- every answer has its class ---------------------------------------------------------------------------------------

ANSWERS: dict[int, type[Exception] | None] = {
    **dict.fromkeys((200, 201, 202, 204, 206, 299)),
    **dict.fromkeys((429, 503), EffectNotSent),
    **dict.fromkeys((400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 412, 413, 414, 415, 416, 417), EffectRefused),
    **dict.fromkeys((421, 422, 423, 424, 426, 428, 431, 451), EffectRefused),
    **dict.fromkeys((300, 301, 302, 303, 304, 307, 308, 408, 409, 418, 425, 499), OutcomeUnknown),
    **dict.fromkeys((500, 501, 502, 504, 505, 507, 508, 511, 520, 524, 599), OutcomeUnknown),
}


@pytest.mark.parametrize("status", ANSWERS)
def test_each_answer_has_its_class_and_is_asked_for_once(desk: Blocking, status: int) -> None:
    error = ANSWERS[status]
    with Faulty(faulty.status(status, "Location: /elsewhere")) as server:
        made = desk.effect(Http())
        if error is None:
            receipt = desk.perform(made, server.url)
            assert receipt.evidence == {"status": status, "class": "succeeded", "sends": 1}
        else:
            with pytest.raises(error):
                desk.perform(made, server.url)
            words = f"HTTP status {status}" if error is OutcomeUnknown else f"HTTP {status}: "
            assert desk.detail().attempts[0].error_text.startswith(words)
        assert server.requests == 1


def test_the_classes_are_those_of_the_fixed_table() -> None:
    expected: dict[type[Exception] | None, str] = {
        None: "succeeded",
        EffectNotSent: "not_sent",
        EffectRefused: "refused",
        OutcomeUnknown: "unknown",
    }
    assert {s: Answers().outcome(s).value for s in ANSWERS} == {s: expected[e] for s, e in ANSWERS.items()}


def test_the_key_goes_with_the_request_and_is_the_same_each_time(desk: Blocking) -> None:
    with Faulty(faulty.in_turn(faulty.status(503), faulty.close, faulty.answer)) as server:
        made = desk.effect(Http(), headers={"idempotency-key": "made up", "X-Other": "1"})
        with pytest.raises(EffectNotSent):
            desk.perform(made, server.url)
        with pytest.raises(OutcomeUnknown):
            desk.perform(made, server.url)
        assert desk.perform(made, server.url).attempt == 3
        assert len(set(server.keys)) == 1
        assert len(server.keys[0]) == 64


def test_another_header_can_carry_the_key(desk: Blocking) -> None:
    with Faulty(faulty.answer) as server:
        desk.perform(desk.effect(Http(key_header="X-Key")), server.url)
        assert server.keys == [b""]


# --- what may be declared otherwise -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "status", "error"),
    [
        ({"not_sent": {409}}, 409, EffectNotSent),
        ({"refused": {409}}, 409, EffectRefused),
        ({"succeeded": {303}}, 303, None),
        ({"succeeded": {409}}, 409, None),
        ({"unknown": {429}}, 429, OutcomeUnknown),
        ({"unknown": {404}}, 404, OutcomeUnknown),
        ({"not_sent": {500}}, 500, EffectNotSent),
        ({"refused": [501]}, 501, EffectRefused),
        ({"not_sent": {401}}, 401, EffectNotSent),
    ],
)
def test_a_provider_may_mean_otherwise(
    desk: Blocking, declared: dict[str, Any], status: int, error: type[Exception] | None
) -> None:
    with Faulty(faulty.status(status)) as server:
        made = desk.effect(Http(answers=Answers(**declared)))
        if error is None:
            assert desk.perform(made, server.url).evidence["status"] == status
        else:
            with pytest.raises(error):
                desk.perform(made, server.url)


@pytest.mark.parametrize(
    "declared",
    [
        {"not_sent": {409}, "refused": {409}},
        {"succeeded": {409}, "unknown": {409}},
        {"mismatch": {400}, "unknown": {400}},
        {"not_sent": {504}},
        {"refused": {408}},
        {"succeeded": {504}},
        {"mismatch": {599}},
        {"not_sent": {200}},
        {"unknown": {202}},
        {"refused": {42}},
        {"refused": {"409"}},
        {"refused": {True}},
        {"refused": 409},
        {"refused": None},
    ],
)
def test_what_contradicts_itself_or_hides_an_effect_is_refused_at_import(declared: dict[str, Any]) -> None:
    with pytest.raises(ContradictoryDeclaration):
        Answers(**declared)


# --- 422: the same key with other content -----------------------------------------------------------------------------


def test_a_key_that_came_before_with_other_content_has_an_outcome_of_its_own(desk: Blocking) -> None:
    with Faulty(faulty.status(422)) as server:
        with pytest.raises(EffectRefused, match="422: mismatch") as caught:
            desk.perform(desk.effect(Http()), server.url)
        assert isinstance(caught.value.__cause__, KeyReused)
        assert desk.detail().operation.error_class == "counterfoil.providers.http.KeyReused"


@pytest.mark.parametrize(
    ("answers", "provider"), [(Answers(), Provider()), (Answers(refused={422}), KEYED), (Answers(mismatch=()), KEYED)]
)
def test_without_keys_or_where_declared_a_422_is_a_plain_refusal(
    desk: Blocking, answers: Answers, provider: Provider
) -> None:
    with Faulty(faulty.status(422)) as server:
        with pytest.raises(EffectRefused, match="422: refused") as caught:
            desk.perform(desk.effect(Http(answers=answers), provider), server.url)
        assert not isinstance(caught.value.__cause__, KeyReused)


def test_another_status_may_say_mismatch(desk: Blocking) -> None:
    with Faulty(faulty.status(400)) as server, pytest.raises(EffectRefused, match="400: mismatch"):
        desk.perform(desk.effect(Http(answers=Answers(mismatch={400}))), server.url)


# --- a refusal after a lost reply -------------------------------------------------------------------------------------

REPLAYED = "Idempotent-Replayed: true"


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (401, (), OutcomeUnknown),  # turned away at the door: the first may have been let in
        (403, (), OutcomeUnknown),
        (404, (), OutcomeUnknown),
        (413, (), OutcomeUnknown),
        (422, (), OutcomeUnknown),  # it came before with other content: something may have happened then
        (429, (), OutcomeUnknown),
        (503, (), OutcomeUnknown),
        (402, (), EffectRefused),  # judged under the key: the first was not accepted either
        (400, (), EffectRefused),
        (403, (REPLAYED,), EffectRefused),  # the stored answer to the first
    ],
)
def test_a_refusal_settles_an_earlier_lost_reply_only_if_it_speaks_of_it(
    desk: Blocking, status: int, headers: tuple[str, ...], error: type[Exception]
) -> None:
    with Faulty(faulty.in_turn(faulty.close, faulty.status(status, *headers))) as server:
        made = desk.effect(Http())
        with pytest.raises(OutcomeUnknown):
            desk.perform(made, server.url)
        with pytest.raises(error):
            desk.perform(made, server.url)
        assert server.requests == 2
    assert desk.detail().operation.state == ("failed" if error is EffectRefused else "unknown")


def test_a_refusal_at_the_door_is_final_where_no_reply_was_lost(desk: Blocking) -> None:
    with Faulty(faulty.in_turn(faulty.status(503), faulty.status(401))) as server:
        made = desk.effect(Http())
        with pytest.raises(EffectNotSent):
            desk.perform(made, server.url)
        for _ in range(2):
            with pytest.raises(EffectRefused):
                desk.perform(made, server.url)
        assert server.requests == 2


def test_an_answer_that_was_given_before_is_marked_in_the_evidence(desk: Blocking) -> None:
    stored = faulty.status(201, "Idempotent-Replayed: TRUE", "X-Request-Id: req-7")
    with Faulty(faulty.in_turn(faulty.close, stored)) as server:
        made = desk.effect(Http())
        with pytest.raises(OutcomeUnknown):
            desk.perform(made, server.url)
        receipt = desk.perform(made, server.url)
    assert receipt.evidence == {
        "status": 201,
        "class": "succeeded",
        "sends": 1,
        "replayed": True,
        "request_id": "req-7",
    }
    assert desk.perform(made, server.url).evidence == receipt.evidence


# --- Retry-After ------------------------------------------------------------------------------------------------------

DATE = "Date: Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (("Retry-After: 7",), 7.0),
        (("Retry-After:  120 ",), 120.0),
        (("Retry-After: 0",), 0.0),
        (("Retry-After: Wed, 21 Oct 2026 07:29:30 GMT", DATE), 90.0),
        (("Retry-After: Wed, 21 Oct 2026 07:00:00 GMT", DATE), 0.0),
        (("Retry-After: Fri, 31 Dec 1999 23:59:59 GMT",), 0.0),
        (("Retry-After: 99999999999999999999",), LONGEST_WAIT_S),
        (("Retry-After: Wed, 21 Oct 2099 07:29:30 GMT",), LONGEST_WAIT_S),
        (("Retry-After: -5",), None),
        (("Retry-After: 1.5",), None),
        (("Retry-After: soon",), None),
        (("Retry-After: Wed, 99 Oct 2026 07:29:30 GMT",), None),
        (("Retry-After: inf",), None),
        ((), None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_how_long_to_wait_is_kept_in_seconds_and_bounded(
    desk: Blocking, status: int, headers: tuple[str, ...], seconds: float | None
) -> None:
    with Faulty(faulty.status(status, *headers)) as server, pytest.raises(EffectNotSent) as caught:
        desk.perform(desk.effect(Http()), server.url)
    assert caught.value.retry_after == seconds


# --- what a success holds ---------------------------------------------------------------------------------------------

JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("headers", "body", "value"),
    [
        ((JSON,), b'{"id": 1}', {"id": 1}),
        (("Content-Type: application/vnd.api+json; charset=utf-8",), b"[1]", [1]),
        (("Content-Type: text/plain; charset=latin-1",), b"\xe9", "é"),
        (("Content-Type: text/plain; charset=no-such",), b"a", "a"),
        (("Content-Type: application/pdf",), b"%PDF\xff", b"%PDF\xff"),
        ((), b"raw", b"raw"),
        ((JSON,), b"", None),
        ((JSON, "Content-Encoding: gzip"), gzip.compress(b'{"id": 1}', mtime=0), {"id": 1}),
    ],
)
def test_the_value_is_what_the_body_says_it_is(
    desk: Blocking, headers: tuple[str, ...], body: bytes, value: object
) -> None:
    with Faulty(faulty.status(201, *headers, body=body)) as server:
        assert desk.perform(desk.effect(Http()), server.url).value == value


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ((JSON,), b"<html>Created</html>"),
        ((JSON,), b'{"id": 1'),
        ((JSON,), b"\xff\xfe\xfd"),
        ((JSON,), b"[" * 100_000),
        ((JSON, "Content-Encoding: gzip"), b'{"id": 1}'),
        ((JSON, "Content-Encoding: gzip"), gzip.compress(b'{"id": 1}', mtime=0)[:-9] + b"123456789"),
    ],
)
def test_a_success_whose_body_cannot_be_decoded_is_a_success(
    desk: Blocking, headers: tuple[str, ...], body: bytes
) -> None:
    with Faulty(faulty.status(201, *headers, body=body)) as server:
        made = desk.effect(Http(), Provider())
        receipt = desk.perform(made, server.url)
        assert desk.perform(made, server.url).already_happened
        assert server.requests == 1
    assert receipt.evidence["class"] == "succeeded"
    with pytest.raises(ReceiptUnreadable, match="HTTP 201"):
        _ = receipt.value


@pytest.mark.parametrize("fault", [faulty.cut_body, faulty.close, faulty.reset, faulty.garbage])
def test_an_answer_that_did_not_come_whole_is_unknown(desk: Blocking, fault: Any) -> None:
    with Faulty(fault) as server:
        with pytest.raises(OutcomeUnknown):
            desk.perform(desk.effect(Http()), server.url)
        assert server.requests == 1


@pytest.mark.parametrize(("status", "error"), [(402, EffectRefused), (429, EffectNotSent), (500, OutcomeUnknown)])
def test_the_status_of_a_refusal_counts_even_if_its_body_is_cut(
    desk: Blocking, status: int, error: type[Exception]
) -> None:
    with Faulty(faulty.cut(faulty.status(status, body=b"no such card"))) as server, pytest.raises(error):
        desk.perform(desk.effect(Http()), server.url)


# --- nothing left -----------------------------------------------------------------------------------------------------


def test_a_request_that_cannot_be_built_was_not_sent(desk: Blocking) -> None:
    with Faulty(faulty.answer) as server:
        for request in ({"json": object()}, {"headers": {"X": "\u20ac"}}, {"follow_redirects": True}):
            with pytest.raises(EffectNotSent):
                desk.perform(desk.effect(Http(), **request), server.url)
        assert server.requests == 0


def test_an_address_without_a_scheme_was_not_sent(desk: Blocking) -> None:
    with pytest.raises(EffectNotSent):
        desk.perform(desk.effect(Http()), "no scheme")


@pytest.mark.parametrize("opening", [faulty.speaks_no_tls, faulty.stall])
def test_a_handshake_that_fails_is_not_sent(desk: Blocking, opening: Any) -> None:
    with Faulty(faulty.answer, on_open=opening) as server, pytest.raises(EffectNotSent):
        desk.perform(desk.effect(Http(), timeout=0.2), server.url.replace("http:", "https:"))


@pytest.mark.parametrize("fault", [faulty.forbid, faulty.stall, faulty.close])
def test_a_proxy_that_does_not_connect_was_handed_nothing(desk: Blocking, opened: Open, fault: Any) -> None:
    with Faulty(fault) as proxy:
        desk = opened(type(desk), lambda: CLIENT_OF[type(desk)](proxy=f"http://127.0.0.1:{proxy.port}"))
        with pytest.raises(EffectNotSent):
            desk.perform(desk.effect(Http(), timeout=0.5), "https://elsewhere.invalid/things")
        assert {line.split()[0] for line in proxy.lines} == {b"CONNECT"}


def test_without_a_client_nothing_was_sent_and_the_mistake_is_told(desk: Blocking) -> None:
    for _ in range(2):
        with pytest.raises(ResourceMissing, match="named 'other'"):
            desk.perform(desk.effect(Http(client="other"), Provider()), "http://127.0.0.1:9/things")
    assert desk.detail().operation.state == "pending"


def test_without_httpx_the_line_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "counterfoil.providers.http")
    with pytest.raises(MissingExtra, match=r"pip install 'counterfoil\[http\]'$"):
        importlib.import_module("counterfoil.providers.http")


# --- sent once, whatever the client does ------------------------------------------------------------------------------


class Again(httpx.HTTPTransport):
    """Sends again what was lost, under a name that tells nothing."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(3):
            try:
                return super().handle_request(request)
            except httpx.TransportError:
                continue
        return super().handle_request(request)


class AgainAsync(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(3):
            try:
                return await super().handle_async_request(request)
            except httpx.TransportError:
                continue
        return await super().handle_async_request(request)


REPEATING = [
    pytest.param(Blocking, lambda: httpx.Client(transport=Again()), id="blocking"),
    pytest.param(Awaiting, lambda: httpx.AsyncClient(transport=AgainAsync()), id="awaiting"),
]


@pytest.mark.parametrize(("desk_class", "client"), REPEATING)
def test_a_second_send_is_stopped_on_its_way_out_where_there_is_no_key(
    opened: Open, desk_class: Any, client: Make
) -> None:
    desk = opened(desk_class, client)
    with Faulty(faulty.close) as server:
        with pytest.raises(HiddenRetries) as caught:
            desk.perform(desk.effect(Http(), Provider()), server.url)
        assert (caught.value.sent, server.requests) == (1, 1)
    assert desk.detail().operation.state == "unknown"


@pytest.mark.parametrize(("desk_class", "client"), REPEATING)
def test_with_a_key_each_send_is_counted_in_the_evidence(opened: Open, desk_class: Any, client: Make) -> None:
    desk = opened(desk_class, client)
    with Faulty(faulty.in_turn(faulty.close, faulty.close, faulty.answer)) as server:
        receipt = desk.perform(desk.effect(Http()), server.url)
        assert (receipt.evidence["sends"], server.requests, len(set(server.keys))) == (3, 3, 1)


@pytest.mark.parametrize(
    ("desk_class", "client"),
    [
        (Blocking, lambda: httpx.Client(auth=httpx.DigestAuth("u", "p"))),
        (Awaiting, lambda: httpx.AsyncClient(auth=httpx.DigestAuth("u", "p"))),
    ],
)
def test_a_challenge_for_credentials_may_be_answered(opened: Open, desk_class: Any, client: Make) -> None:
    asking = faulty.status(401, 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth"')
    desk = opened(desk_class, client)
    with Faulty(faulty.in_turn(asking, faulty.answer)) as server:
        receipt = desk.perform(desk.effect(Http(), Provider()), server.url)
        assert (receipt.evidence["sends"], server.requests) == (2, 2)


def test_a_redirect_is_not_followed_whatever_the_client_says(desk: Blocking, opened: Open) -> None:
    following = opened(type(desk), lambda: CLIENT_OF[type(desk)](follow_redirects=True))
    with Faulty(faulty.answer) as elsewhere, Faulty(faulty.moved, location=elsewhere.url) as server:
        with pytest.raises(OutcomeUnknown):
            following.perform(following.effect(Http()), server.url)
        assert (server.requests, elsewhere.requests) == (1, 0)


def test_a_trace_of_the_effects_own_is_told_too(opened: Open) -> None:
    seen: list[str] = []
    desk = opened(Blocking, httpx.Client)
    with Faulty(faulty.answer) as server:
        desk.perform(desk.effect(Http(), extensions={"trace": lambda event, _: seen.append(event)}), server.url)
    assert "http11.send_request_headers.started" in seen


def test_an_unclear_answer_can_be_looked_at_in_the_effect(opened: Open) -> None:
    desk, api, seen = opened(Blocking, httpx.Client), Http(), list[int]()

    @effect("http.looking", key="{url}", provider=KEYED)
    def post(call: Any, *, url: str) -> Any:
        try:
            return api.send(call, "POST", url)
        except UnclearAnswer as answer:
            seen.append(answer.response.status_code)
            raise

    with Faulty(faulty.status(409)) as server, pytest.raises(OutcomeUnknown):
        desk.cf.perform(post, tenant="t", url=server.url)
    assert seen == [409]
