"""The real stripe client against a gateway in another process: each answer's class, and how many charges there are."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import stripe

from counterfoil import (
    Absent,
    AsyncCounterfoil,
    AttemptOutcome,
    CannotTell,
    Counterfoil,
    Effect,
    Found,
    OperationKey,
    Provider,
    Receipt,
    Refused,
    effect,
)
from counterfoil.errors import ContradictoryDeclaration, EffectNotSent, EffectRefused, MissingExtra, OutcomeUnknown
from counterfoil.providers import stripe as payments
from counterfoil.providers.tables import never_left
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.provider_client import ProviderClient
from counterfoil.testing.provider_desk import Settings
from counterfoil.testing.wire import Wire
from tests.providers.serving import served
from tests.stores import stored

INTENTS = payments.Objects("payment_intents")
REFUNDS = payments.Objects("refunds", narrow=lambda *, intent, **_: {"payment_intent": intent})
OPERATION = "order:o-1/charge"
RAW = Provider(key_lifetime="24h", classify=payments.classify)
KEYLESS = Provider(classify=payments.classify)


@pytest.fixture(scope="module")
def running() -> Iterator[ProviderClient]:
    with served("counterfoil.testing.gateway") as client:
        yield client


@pytest.fixture
def gateway(running: ProviderClient) -> ProviderClient:
    running.reset()
    return running


@pytest.fixture
def wire(gateway: ProviderClient) -> Iterator[Wire]:
    host, port = gateway.url.removeprefix("http://").split(":")
    with Wire(host, int(port)) as wire:
        yield wire


def patience(fault: str) -> float:
    """Seconds to wait for an answer that will not come, or may come late from a busy machine."""
    return 0.5 if fault.startswith("hold") else 10.0


def api(url: str, key: str = "sk_test_fine", timeout: float = 10.0) -> stripe.StripeClient:
    return payments.client(key, timeout=timeout, base_addresses={"api": url})


def charge_effect(provider: Provider, name: str = "stripe.charge", *, cents: int = 500) -> Effect[Any]:
    return effect(name, key="order:{order}/charge", provider=provider, redact=payments.SECRETS)(
        lambda call, *, order: INTENTS.create(call, {"amount": cents, "currency": "eur"})
    )


def perform(
    made: Effect[Any], client: stripe.StripeClient, url: str = "sqlite:///:memory:", *, times: int = 1
) -> list[Receipt[Any] | Exception]:
    seen: list[Receipt[Any] | Exception] = []
    with Counterfoil.open(url) as cf:
        cf.resources.provide(stripe.StripeClient, lambda: client)
        for _ in range(times):
            try:
                seen.append(cf.perform(made, tenant="t", order="o-1"))
            except (EffectNotSent, EffectRefused, OutcomeUnknown) as error:
                seen.append(error)
    return seen


# --- each answer's class ---------------------------------------------------------------------------------------------

ANSWERS = [
    ("refuse-400", EffectRefused, 0),
    ("refuse-402", EffectRefused, 0),
    ("busy-429", EffectNotSent, 0),
    ("unavailable-503", OutcomeUnknown, 0),
    ("error-500-before-accept", OutcomeUnknown, 0),
    ("error-500-after-accept", OutcomeUnknown, 1),
    ("drop-before-accept", OutcomeUnknown, 0),
    ("drop-reply", OutcomeUnknown, 1),
    ("reset-reply", OutcomeUnknown, 1),
    ("cut-reply", OutcomeUnknown, 1),
    ("hold", OutcomeUnknown, 1),
    ("hold-before-accept", OutcomeUnknown, 0),
]


@pytest.mark.parametrize(("fault", "means", "count"), ANSWERS)
def test_each_answer_has_its_class_and_is_asked_for_once(
    fault: Any, means: type[Exception], count: int, gateway: ProviderClient
) -> None:
    gateway.order(fault)
    (told,) = perform(charge_effect(KEYLESS, "stripe.keyless"), api(gateway.url, timeout=patience(fault)))
    assert isinstance(told, means)
    assert (gateway.received(), gateway.count()) == (1, count)  # no hidden retry
    gateway.release()


@pytest.mark.parametrize(("fault", "means", "count"), ANSWERS)
def test_under_its_key_an_unknown_charge_is_made_again_and_there_is_one(
    fault: Any, means: type[Exception], count: int, gateway: ProviderClient
) -> None:
    gateway.order(fault)
    client = api(gateway.url, timeout=patience(fault))
    if fault.startswith("hold"):
        first, busy = perform(charge_effect(RAW, "stripe.keyed"), client, times=2)
        assert isinstance(busy, OutcomeUnknown)  # 409: the key is still being worked on
    else:
        first, second = perform(charge_effect(RAW, "stripe.keyed"), client, times=2)
        assert isinstance(second, EffectRefused if means is EffectRefused else Receipt)
    assert isinstance(first, means)
    gateway.release()
    gateway.wait_accepted(int(means is not EffectRefused))
    assert gateway.count("payment_intents") == (means is not EffectRefused)


@pytest.mark.parametrize(
    ("break_it", "means", "count"),
    [
        (Wire.refuse, EffectNotSent, 0),
        (lambda wire: wire.cut_before_request(b"POST "), OutcomeUnknown, 0),
        (lambda wire: wire.cut_after_request(b"amount=500"), OutcomeUnknown, 1),
        (lambda wire: wire.cut_before_reply(b"HTTP/1.1 200"), OutcomeUnknown, 1),
        (Wire.black_hole, OutcomeUnknown, 0),
    ],
    ids=["refused", "request lost", "cut after the request", "reply lost", "silent"],
)
def test_a_broken_wire_is_not_sent_only_where_no_connection_stood(
    break_it: Callable[[Wire], None], means: type[Exception], count: int, gateway: ProviderClient, wire: Wire
) -> None:
    break_it(wire)
    timeout = 0.5 if break_it is Wire.black_hole else 10.0
    (told,) = perform(charge_effect(KEYLESS, "stripe.keyless"), api(wire.through(gateway.url), timeout=timeout))
    assert isinstance(told, means)
    assert len(gateway.wait_accepted(count)) == count


@pytest.mark.parametrize("key", ["sk_test_wrong", "sk_test_weak"])
def test_a_key_that_may_not_charge_is_refused(key: str, gateway: ProviderClient) -> None:
    (told,) = perform(charge_effect(RAW, "stripe.keyed"), api(gateway.url, key))
    assert isinstance(told, EffectRefused)
    assert gateway.count() == 0


def test_a_name_that_leads_nowhere_is_not_sent() -> None:
    (told,) = perform(charge_effect(RAW, "stripe.keyed"), api("http://no-such-host.invalid"))
    assert isinstance(told, EffectNotSent)


def test_a_client_with_retries_of_its_own_does_not_use_them(gateway: ProviderClient) -> None:
    gateway.order("error-500-before-accept")
    client = stripe.StripeClient("sk_test_fine", base_addresses={"api": gateway.url}, max_network_retries=5)
    (told,) = perform(charge_effect(KEYLESS, "stripe.keyless"), client)
    assert isinstance(told, OutcomeUnknown)
    assert gateway.received() == 1


# --- keys ------------------------------------------------------------------------------------------------------------


def a_call(attempt: int, client: Any) -> Any:
    return SimpleNamespace(provider_key="ab" * 32, operation_id=OPERATION, attempt=attempt, resource=lambda _: client)


def test_a_mismatch_is_a_refusal_that_tells_nothing_of_earlier_attempts(gateway: ProviderClient) -> None:
    client = api(gateway.url)
    INTENTS.create(a_call(1, client), {"amount": 1, "currency": "eur"})
    with pytest.raises(stripe.IdempotencyError) as caught:
        INTENTS.create(a_call(1, client), {"amount": 2, "currency": "eur"})
    told = payments.classify(caught.value)
    assert isinstance(told, Refused)
    assert not told.covers_earlier
    assert gateway.count() == 1


def test_a_mismatch_of_a_first_attempt_is_a_refusal(gateway: ProviderClient) -> None:
    key = RAW.key_for(OperationKey(tenant="t", operation_id=OPERATION))
    gateway.post("payment_intents", {"amount": "9"}, key=key)
    (told,) = perform(charge_effect(RAW, "stripe.mismatch"), api(gateway.url))
    assert isinstance(told, EffectRefused)
    assert gateway.count() == 1


def test_a_charge_repaired_between_two_attempts_does_not_call_the_first_one_failed(gateway: ProviderClient) -> None:
    gateway.order("drop-reply")
    client = api(gateway.url)
    with Counterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(stripe.StripeClient, lambda: client)
        for cents in (500, 501):  # the code was changed before the second try
            with pytest.raises(OutcomeUnknown):
                cf.perform(charge_effect(RAW, "stripe.changed", cents=cents), tenant="t", order="o-1")
    assert gateway.count() == 1


# --- look-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(), Settings(keys=False)], ids=["keys", "no keys"])
def test_a_lost_answer_is_found_by_the_metadata_though_no_key_is_honoured(
    settings: Settings, gateway: ProviderClient
) -> None:
    gateway.configure(settings)
    gateway.order("drop-reply")
    first, second = perform(charge_effect(INTENTS.provider(), "stripe.found"), api(gateway.url), times=2)
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert (first.answered_from, second.answered_from) == ("lookup", "receipt")
    assert first.value["id"] == "pi_1"
    assert first.evidence == {"ids": ["pi_1"], "status": "succeeded"}
    assert first.value["metadata"]["counterfoil_operation"] == "order:o-1/charge"
    assert gateway.count() == 1


def test_a_search_that_lags_proves_no_absence(gateway: ProviderClient) -> None:
    gateway.configure(Settings(keys=False, lag=60))
    gateway.order("drop-reply")
    made = charge_effect(
        Provider(lookup=INTENTS.find, lookup_lag=payments.SEARCH_LAG, classify=payments.classify), "stripe.lagging"
    )
    first, second = perform(made, api(gateway.url), times=2)
    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, OutcomeUnknown)
    assert gateway.count() == 1


def test_what_was_created_and_declined_is_no_proof_of_a_charge(gateway: ProviderClient) -> None:
    client = api(gateway.url)
    INTENTS.create(a_call(1, client), {"amount": 1, "description": "declined"})
    answer = INTENTS.find(a_call(1, client))
    assert answer == CannotTell("pi_1 was created and failed")
    assert INTENTS.find(SimpleNamespace(provider_key="cd" * 32, resource=lambda _: client)) == Absent()  # type: ignore[arg-type]


def test_two_charges_of_one_operation_are_both_in_the_evidence(gateway: ProviderClient) -> None:
    gateway.configure(Settings(keys=False))
    client = api(gateway.url)
    for _ in range(2):
        INTENTS.create(a_call(1, client), {"amount": 1})
    answer = INTENTS.find(a_call(1, client))
    assert isinstance(answer, Found)
    assert answer.value["id"] == "pi_1"
    assert answer.evidence["ids"] == ["pi_1", "pi_2"]


def test_what_has_no_search_is_found_in_a_list(gateway: ProviderClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client = api(gateway.url)
    REFUNDS.create(a_call(1, client), {"payment_intent": "pi_1"})
    for number in range(120):  # more than one page
        gateway.post("refunds", {"payment_intent": "pi_1", "metadata[counterfoil_key]": f"{number:064}"})
    found = REFUNDS.find(a_call(1, client), intent="pi_1")
    assert isinstance(found, Found)
    assert found.value["id"] == "re_1"
    assert REFUNDS.find(a_call(1, client), intent="pi_2") == Absent()
    monkeypatch.setattr(payments, "_LISTED", 100)
    assert isinstance(REFUNDS.find(a_call(1, client), intent="pi_1"), CannotTell)


@pytest.mark.parametrize(
    ("fault", "answered_from", "received"), [("drop-reply", "lookup", 1), ("drop-before-accept", "effect", 2)]
)
def test_after_the_keys_life_it_is_looked_up_before_it_is_sent_again(
    fault: Any, answered_from: str, received: int, gateway: ProviderClient
) -> None:
    gateway.configure(Settings(lag=60, key_lifetime=24 * 3600))
    gateway.order(fault)
    clock, made = FakeClock(), charge_effect(INTENTS.provider(), "stripe.later")
    with Counterfoil.open("sqlite:///:memory:", clock=clock) as cf:
        cf.resources.provide(stripe.StripeClient, lambda: api(gateway.url))
        with pytest.raises(OutcomeUnknown):
            cf.perform(made, tenant="t", order="o-1")
        clock.advance("25h")
        gateway.advance(25 * 3600)
        assert cf.perform(made, tenant="t", order="o-1").answered_from == answered_from
    assert (gateway.received(), gateway.count()) == (received, 1)


def test_after_the_keys_life_what_cannot_be_looked_up_is_for_a_person(gateway: ProviderClient) -> None:
    gateway.configure(Settings(key_lifetime=24 * 3600))
    gateway.order("drop-reply")
    clock, made = FakeClock(), charge_effect(RAW, "stripe.keyed")
    with Counterfoil.open("sqlite:///:memory:", clock=clock) as cf:
        cf.resources.provide(stripe.StripeClient, lambda: api(gateway.url))
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                cf.perform(made, tenant="t", order="o-1")
            clock.advance("25h")
            gateway.advance(25 * 3600)
        assert len(cf.review.list(tenant="t").items) == 1
    assert (gateway.received(), gateway.count()) == (1, 1)


# --- receipts, colours, declarations ---------------------------------------------------------------------------------


def test_a_client_secret_is_nowhere_in_the_database(url: str, gateway: ProviderClient) -> None:
    made = charge_effect(INTENTS.provider(), "stripe.secret")
    gateway.order("drop-reply")
    (receipt,) = perform(made, api(gateway.url), url)
    assert isinstance(receipt, Receipt)
    assert "_secret_" not in repr(receipt.value)
    assert b"_secret_abc" not in stored(url)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # between stripe and httpx
async def test_it_can_be_awaited(gateway: ProviderClient) -> None:
    gateway.order("drop-reply")

    @effect("stripe.awaited", key="order:{order}/charge", provider=INTENTS.provider(), redact=payments.SECRETS)
    async def charge(call: Any, *, order: str) -> Any:
        return await INTENTS.create_async(call, {"amount": 500, "currency": "eur"})

    client = api(gateway.url)
    async with AsyncCounterfoil.open("sqlite:///:memory:") as cf:
        cf.resources.provide(stripe.StripeClient, lambda: client)
        receipt = await cf.perform(charge, tenant="t", order="o-1")
    assert (receipt.answered_from, gateway.count()) == ("lookup", 1)
    with Wire("127.0.0.1", 9) as closed:
        closed.refuse()
        with pytest.raises(stripe.APIConnectionError) as caught:
            await INTENTS.create_async(a_call(1, api(f"http://127.0.0.1:{closed.port}")), {})
    assert payments.classify(caught.value) is AttemptOutcome.NOT_SENT


@pytest.mark.parametrize(
    ("status", "means"),
    [(408, "unknown"), (409, "unknown"), (429, "not_sent"), (500, "unknown"), (502, "unknown"), (503, "unknown")],
)
def test_other_errors_go_by_their_status(status: int, means: str) -> None:
    assert payments.classify(stripe.APIError("", http_status=status)) == AttemptOutcome(means)
    assert not never_left(stripe.APIError("", http_status=status))


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_who_is_turned_away_at_the_door_has_not_learnt_of_his_last_visit(status: int) -> None:
    told = payments.classify(stripe.APIError("", http_status=status))
    assert isinstance(told, Refused)
    assert not told.covers_earlier


def test_what_says_nothing_is_unknown_and_what_is_not_stripes_is_left_alone() -> None:
    assert payments.classify(stripe.APIError("")) is AttemptOutcome.UNKNOWN
    assert payments.classify(ValueError()) is None


@pytest.mark.parametrize("cls", [stripe.StripeError, stripe.APIError, stripe.APIConnectionError])
def test_a_class_that_a_lost_answer_raises_cannot_be_declared_harmless(cls: type[Exception]) -> None:
    with pytest.raises(ContradictoryDeclaration):
        effect("stripe.harmless", key="{order}", not_sent=cls)(lambda call, *, order: None)


@pytest.mark.parametrize("kind", ["payment_intent", "balance", "nothing.at.all"])
def test_a_kind_that_stripe_does_not_create_is_refused_when_it_is_declared(kind: str) -> None:
    with pytest.raises(ContradictoryDeclaration):
        payments.Objects(kind)


def test_money_may_insist_on_the_key() -> None:
    effect("stripe.money", key="{order}", provider=INTENTS.provider(), require_key=True)(lambda call, *, order: None)


def test_without_stripe_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stripe", None)
    monkeypatch.delitem(sys.modules, "counterfoil.providers.stripe")
    with pytest.raises(MissingExtra, match=r"pip install 'counterfoil\[stripe\]'$"):
        import counterfoil.providers.stripe  # noqa: F401
