"""Webhooks and events to a real receiver that verifies and parses them: each answer's class, and how many arrived."""

import asyncio
import inspect
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, Effect, NotSent, Provider, Receipt, Refused, effect
from counterfoil.errors import ContradictoryDeclaration, EffectNotSent, EffectRefused, MissingExtra, OutcomeUnknown
from counterfoil.providers import cloudevents, webhooks
from counterfoil.providers.http import UnclearAnswer
from counterfoil.testing.provider_client import ProviderClient
from counterfoil.testing.wire import Wire
from tests.providers.receiver import SECRETS
from tests.providers.serving import served

REMEMBERS = Provider(key_lifetime="24h")
NOBODY_KNOWS = Provider()
SENDER = webhooks.Sender(SECRETS["new"])
PUBLISHER = cloudevents.Publisher("/orders")
PAYLOAD = {"type": "order.paid", "data": {"text": "Grüße 你好", "cents": 500}}
WAYS = ("webhook", "webhook awaited", "event", "event awaited")


@pytest.fixture(scope="module")
def running() -> Iterator[ProviderClient]:
    with served("tests.providers.receiver") as client:
        yield client


@pytest.fixture
def receiver(running: ProviderClient) -> ProviderClient:
    running.reset()
    return running


@pytest.fixture
def wire(receiver: ProviderClient) -> Iterator[Wire]:
    host, port = receiver.url.removeprefix("http://").split(":")
    with Wire(host, int(port)) as wire:
        yield wire


def posting(
    way: str, url: str, provider: Provider = NOBODY_KNOWS, *, query: str = "", time_limit: str = "10s", **declared: Any
) -> Effect[Any]:
    """One message as an effect, in each of the ways; `declared` is what the statuses of its receiver mean."""
    kind, _, awaited = way.partition(" ")
    hooks, events = SENDER, PUBLISHER
    if declared:
        hooks = webhooks.Sender(SECRETS["new"], answers=webhooks.answers(**declared))
        events = cloudevents.Publisher("/orders", answers=cloudevents.answers(**declared))
    places = {"webhook": f"{url}/hooks/new{query}", "event": f"{url}/events{query}"}
    event: Any = {"type": "order.paid", "data": PAYLOAD["data"]}

    def post(call: Any, *, order: str) -> Any:
        if kind == "webhook":
            return hooks.send(call, places[kind], PAYLOAD)
        return events.publish(call, places[kind], **event)

    async def post_async(call: Any, *, order: str) -> Any:
        if kind == "webhook":
            return await hooks.asend(call, places[kind], PAYLOAD)
        return await events.apublish(call, places[kind], **event)

    name = f"posting.{way.replace(' ', '-')}"
    return effect(name, key="order:{order}/told", provider=provider, time_limit=time_limit)(
        post_async if awaited else post
    )


def perform(made: Effect[Any], *, times: int = 1) -> list[Receipt[Any] | Exception]:
    if inspect.iscoroutinefunction(made.function):
        return asyncio.run(_perform_async(made, times))
    seen: list[Receipt[Any] | Exception] = []
    with Counterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(httpx.Client, httpx.Client)
        for _ in range(times):
            try:
                seen.append(cf.perform(made, tenant="t", order="o-1"))
            except (EffectNotSent, EffectRefused, OutcomeUnknown) as error:
                seen.append(error)
    return seen


async def _perform_async(made: Effect[Any], times: int) -> list[Receipt[Any] | Exception]:
    seen: list[Receipt[Any] | Exception] = []
    async with AsyncCounterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(httpx.AsyncClient, httpx.AsyncClient)
        for _ in range(times):
            try:
                seen.append(await cf.perform(made, tenant="t", order="o-1"))
            except (EffectNotSent, EffectRefused, OutcomeUnknown) as error:
                seen.append(error)
    return seen


# --- each answer's class ---------------------------------------------------------------------------------------------

STATUSES: list[tuple[int, type]] = [
    (200, Receipt),
    (202, Receipt),
    (204, Receipt),
    (302, OutcomeUnknown),
    (307, OutcomeUnknown),
    (400, OutcomeUnknown),
    (401, OutcomeUnknown),
    (404, OutcomeUnknown),
    (410, EffectRefused),
    (429, EffectNotSent),
    (500, OutcomeUnknown),
    (502, OutcomeUnknown),
    (503, EffectNotSent),
    (504, OutcomeUnknown),
]


@pytest.mark.parametrize(("status", "means"), STATUSES)
@pytest.mark.parametrize("way", WAYS)
def test_each_status_has_its_class(way: str, status: int, means: type, receiver: ProviderClient) -> None:
    (told,) = perform(posting(way, receiver.url, query=f"?answer={status}"))
    assert isinstance(told, means)
    if isinstance(told, Receipt):
        assert (told.value["status"], told.value["duplicate"]) == (status, False)
    assert receiver.count() == 0  # a redirect was not followed


@pytest.mark.parametrize(
    ("fault", "count"),
    [("drop-before-accept", 0), ("drop-reply", 1), ("reset-reply", 1), ("cut-reply", 1), ("hold", 1)],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_lost_answer_is_unknown_and_not_sent_again(
    way: str, fault: Any, count: int, receiver: ProviderClient
) -> None:
    receiver.order(fault)
    limit = "500ms" if fault == "hold" else "10s"
    for told in perform(posting(way, receiver.url, time_limit=limit), times=2):
        assert isinstance(told, OutcomeUnknown)
    assert (receiver.received(), receiver.count()) == (1, count)


@pytest.mark.parametrize("fault", ["drop-before-accept", "drop-reply", "reset-reply", "cut-reply"])
@pytest.mark.parametrize("way", WAYS)
def test_a_receiver_that_remembers_ids_is_sent_it_again_and_has_it_once(
    way: str, fault: Any, receiver: ProviderClient
) -> None:
    receiver.order(fault)
    first, second, third = perform(posting(way, receiver.url, REMEMBERS), times=3)
    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, Receipt)
    assert isinstance(third, Receipt)
    assert (receiver.received(), receiver.count()) == (2, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_connection_was_not_sent(way: str, receiver: ProviderClient, wire: Wire) -> None:
    wire.refuse()
    (told,) = perform(posting(way, wire.through(receiver.url)))
    assert isinstance(told, EffectNotSent)


# --- duplicates, what is declared, and when to come again ------------------------------------------------------------


@pytest.mark.parametrize("way", ["webhook", "webhook awaited"])
def test_a_duplicate_is_proof_of_delivery(way: str, receiver: ProviderClient) -> None:
    receiver.order("drop-reply")
    first, second = perform(posting(way, receiver.url, REMEMBERS, query="?repeat=409"), times=2)
    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, Receipt)
    assert (second.value["status"], second.value["duplicate"]) == (409, True)
    assert receiver.count() == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_duplicate_may_have_another_face(way: str, receiver: ProviderClient) -> None:
    receiver.order("drop-reply")
    made = posting(way, receiver.url, REMEMBERS, query="?repeat=422", duplicate={422})
    first, second = perform(made, times=2)
    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, Receipt)
    assert second.value["duplicate"]


def test_a_conflict_proves_nothing_of_an_event(receiver: ProviderClient) -> None:
    (told,) = perform(posting("event", receiver.url, query="?answer=409"))
    assert isinstance(told, OutcomeUnknown)


@pytest.mark.parametrize("way", WAYS)
def test_a_known_receivers_statuses_can_be_declared(way: str, receiver: ProviderClient) -> None:
    told = [
        perform(posting(way, receiver.url, query=f"?answer={status}", refused={400}, not_sent={502}))[0]
        for status in (400, 502, 401)
    ]
    assert [type(each) for each in told] == [EffectRefused, EffectNotSent, OutcomeUnknown]


@pytest.mark.parametrize(("header", "seconds"), [("30", 30.0), ("soon", None), ("", None)])
@pytest.mark.parametrize("way", WAYS)
def test_a_busy_receiver_says_when_to_come_again(
    way: str, header: str, seconds: float | None, receiver: ProviderClient
) -> None:
    (told,) = perform(posting(way, receiver.url, query=f"?answer=503&retry-after={header}"))
    assert isinstance(told, EffectNotSent)
    assert told.retry_after == seconds


# --- webhooks: id, time, signature -----------------------------------------------------------------------------------


def call(client: httpx.Client | None = None) -> Any:
    return SimpleNamespace(provider_key="ab" * 32, time_limit=5.0, sends_once=True, resource=lambda kind, name: client)


def test_each_attempt_has_the_same_id_and_a_fresh_time() -> None:
    times = iter([datetime(2026, 10, 21, 7, 28, tzinfo=UTC), datetime(2026, 10, 21, 7, 29, tzinfo=UTC)])
    sender = webhooks.Sender(SECRETS["new"], now=lambda: next(times))
    first, second = (sender.message(call(), PAYLOAD)[0] for _ in range(2))
    assert first["webhook-id"] == second["webhook-id"] == "ab" * 32
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 60
    assert first["webhook-signature"] != second["webhook-signature"]


@pytest.mark.parametrize("place", ["old", "new"])
def test_while_secrets_are_changed_both_receivers_believe_it(place: str, receiver: ProviderClient) -> None:
    sender = webhooks.Sender([SECRETS["new"], SECRETS["old"]])
    with httpx.Client() as client:
        told = sender.send(call(client), f"{receiver.url}/hooks/{place}", PAYLOAD)
    assert told.value == {"webhook_id": "ab" * 32, "status": 201, "duplicate": False}
    assert (told.evidence["class"], told.evidence["sends"]) == ("succeeded", 1)
    (hook,) = receiver.accepted()
    assert (hook.key, hook.body) == ("ab" * 32, {"data": PAYLOAD})


def test_a_strangers_signature_is_not_believed(receiver: ProviderClient) -> None:
    with httpx.Client() as client, pytest.raises(UnclearAnswer):
        SENDER.send(call(client), f"{receiver.url}/hooks/old", PAYLOAD)
    assert receiver.count() == 0


@pytest.mark.parametrize("payload", ['{"a": 1}', b'{"a": 1}'])
def test_text_is_sent_as_it_is(payload: str | bytes) -> None:
    assert SENDER.message(call(), payload)[1] == b'{"a": 1}'


@pytest.mark.parametrize("payload", [object(), float("nan"), b"\xff", {1: {2}}])
def test_what_is_not_json_is_refused(payload: object) -> None:
    with pytest.raises(Refused):
        SENDER.message(call(), payload)


@pytest.mark.parametrize("secrets", [[], "whsec_", "whsec_a", ["whsec_!"], ""])
def test_a_secret_that_cannot_be_one_is_refused(secrets: Any) -> None:
    with pytest.raises(ContradictoryDeclaration):
        webhooks.Sender(secrets)


def test_a_secret_is_shown_nowhere() -> None:
    assert SECRETS["new"] not in repr(vars(SENDER))


@pytest.mark.parametrize("status", [200, 204, 504, 600, 99])
def test_success_cannot_be_declared_away(status: int) -> None:
    with pytest.raises(ContradictoryDeclaration):
        webhooks.answers(refused={status})


def test_to_an_address_that_is_none_nothing_is_sent() -> None:
    with httpx.Client() as client, pytest.raises(NotSent):
        SENDER.send(call(client), "http://example.org:port", PAYLOAD)


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    ("data", "arrives"),
    [({"n": 1, "text": "你好"}, {"n": 1, "text": "你好"}), ("Grüße", "Grüße"), (b"\x00\xff", "\x00\xff")],
    ids=["json", "text", "bytes"],
)
def test_an_event_arrives_as_published(mode: Any, data: Any, arrives: Any, receiver: ProviderClient) -> None:
    at = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)
    with httpx.Client() as client:
        publisher = cloudevents.Publisher("/orders", mode=mode)
        told = publisher.publish(
            call(client),
            f"{receiver.url}/events",
            type="order.paid",
            data=data,
            subject="o-1 你",
            time=at,
            traceparent="00-a",
        )
    assert told.value == {"id": "ab" * 32, "source": "/orders", "status": 201, "duplicate": False}
    (event,) = receiver.accepted()
    assert event.key == "/orders " + "ab" * 32
    assert (event.body["mode"], event.body["data"]) == (mode, arrives)
    attributes = event.body["attributes"]
    assert {attributes[name] for name in ("id", "type", "subject", "time", "traceparent", "specversion")} == {
        "ab" * 32,
        "order.paid",
        "o-1 你",
        str(at),
        "00-a",
        "1.0",
    }


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_each_attempt_publishes_the_same_bytes(mode: Any) -> None:
    publisher = cloudevents.Publisher("/orders", mode=mode)
    first, second = (publisher.message(call(), "order.paid", {"n": 1}, {}) for _ in range(2))
    assert first == second
    assert "time" not in first.body.decode()
    assert "ce-time" not in first.headers


@pytest.mark.parametrize(
    ("data", "attributes"),
    [([1], {}), ({"n": 1}, {"subject": ""}), ({"n": 1}, {"Bad-Name": "x"}), ({"n": {1}}, {}), (None, {})],
)
def test_what_is_no_event_is_refused(data: Any, attributes: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        PUBLISHER.message(call(), "order.paid", data, attributes)


def test_a_source_cannot_be_empty_and_a_mode_not_invented() -> None:
    for wrong in ({"source": ""}, {"source": "/orders", "mode": "batch"}):
        with pytest.raises(ContradictoryDeclaration):
            cloudevents.Publisher(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("package", "room"), [("standardwebhooks.webhooks", "webhooks"), ("cloudevents.core.bindings.http", "cloudevents")]
)
def test_without_its_library_it_says_what_to_install(package: str, room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"counterfoil.providers.{room}")
    with pytest.raises(MissingExtra, match=rf"pip install 'counterfoil\[{room}\]'$"):
        __import__(f"counterfoil.providers.{room}")
