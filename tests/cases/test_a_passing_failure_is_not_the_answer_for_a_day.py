"""B35: a passing 503 was kept and repeated to every retry for 24 hours.

Sources: https://github.com/C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend/issues/380,
https://github.com/ietf-wg-httpapi/idempotency/issues/41, https://github.com/KanishJebaMathewM/Truxify/issues/2869
"""

from typing import Any

import pytest

from counterfoil import Counterfoil, Provider
from counterfoil.errors import CounterfoilError, EffectNotSent, EffectRefused, OutcomeUnknown
from counterfoil.providers import classify
from tests.cases.counted import Counted
from tests.cases.over_http import BLOCKING, KEYED, OPAQUE, posting, provide
from tests.providers import faulty
from tests.providers.faulty import Faulty

# what the provider answers, what the caller is told, whether a later try is sent, and how many effects there are then
ANSWERS: dict[str, tuple[type[CounterfoilError], bool, int]] = {
    "unavailable-503": (EffectNotSent, True, 1),
    "busy-429": (EffectNotSent, True, 1),
    "refuse-400": (EffectRefused, False, 0),
    "refuse-402": (EffectRefused, False, 0),
    "error-500-after-accept": (OutcomeUnknown, False, 1),
    "error-500-before-accept": (OutcomeUnknown, False, 0),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_answer_has_its_class_and_keeps_it(url: str, counted: Counted, answer: Any) -> None:
    error, again, effects = ANSWERS[answer]
    counted.provider.order(answer)
    with Counterfoil.open(url) as cf:
        with pytest.raises(error):
            counted.perform(cf, "opaque")
        if again:
            assert counted.perform(cf, "opaque").attempt == 2
        else:
            with pytest.raises(error):
                counted.perform(cf, "opaque")
    assert counted.provider.received() == 1 + again
    assert counted.provider.count() == effects


def test_503_429_then_an_answer_is_one_effect(url: str, counted: Counted) -> None:
    counted.provider.order("unavailable-503", "busy-429")
    with Counterfoil.open(url) as cf:
        for _ in range(2):
            with pytest.raises(EffectNotSent):
                counted.perform(cf, "opaque")
        assert counted.perform(cf, "opaque").attempt == 3
        assert counted.perform(cf, "opaque").already_happened
    assert counted.provider.count() == 1


def test_a_500_is_unknown_until_the_provider_is_asked(url: str, counted: Counted) -> None:
    counted.provider.order("error-500-after-accept")
    with Counterfoil.open(url) as cf:
        assert counted.perform(cf, "queryable").answered_from == "lookup"
    assert counted.provider.count() == 1


# --- through real clients ---------------------------------------------------------------------------------------------

JUDGING = {"adapter": OPAQUE, "httpx": Provider(classify=classify), "requests": Provider(classify=classify)}
STORED = "Idempotent-Replayed: true"


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("client", JUDGING)
def test_each_answer_has_the_same_class_through_each_client(
    url: str, counted: Counted, client: str, answer: Any
) -> None:
    error, again, effects = ANSWERS[answer]
    counted.provider.order(answer)
    made, asked = posting(BLOCKING[client], JUDGING[client]), {"tenant": "t", "request_id": "r-1", "title": "a"}
    with Counterfoil.open(url) as cf:
        provide(cf)
        with pytest.raises(error) as caught:
            cf.perform(made, **asked, url=f"{counted.provider.url}/tickets")
        if client == "adapter" and isinstance(caught.value, EffectNotSent):
            assert caught.value.retry_after == 1.0
        if again:
            receipt = cf.perform(made, **asked, url=f"{counted.provider.url}/tickets")
            assert receipt.evidence.get("class", "succeeded") == "succeeded"
        else:
            with pytest.raises(error):
                cf.perform(made, **asked, url=f"{counted.provider.url}/tickets")
        words = cf.operations.get("ticket:r-1", tenant="t").attempts[0].error_text
    assert str(words).startswith("HTTP ")
    assert (counted.provider.received(), counted.provider.count()) == (1 + again, effects)


@pytest.mark.parametrize(
    ("stored", "error"), [(503, EffectNotSent), (429, EffectNotSent), (500, OutcomeUnknown), (402, EffectRefused)]
)
def test_a_provider_that_stores_its_own_failure_for_a_day_makes_it_no_other(
    url: str, stored: int, error: type[CounterfoilError]
) -> None:
    """It repeats a 503 to every retry under the key; that it did nothing stays true, and is never called final."""
    kept = faulty.status(stored, STORED)
    turns = faulty.in_turn(faulty.status(stored), kept, kept, faulty.answer)
    with Faulty(turns) as server, Counterfoil.open(url) as cf:
        provide(cf)
        made, asked = posting(BLOCKING["adapter"], KEYED), {"tenant": "t", "request_id": "r-1", "title": "a"}
        for _ in range(3):
            with pytest.raises(error):
                cf.perform(made, **asked, url=server.url)
        if error is EffectRefused:
            assert server.requests == 1
        else:
            assert cf.perform(made, **asked, url=server.url).attempt == 4
            assert len(set(server.keys)) == 1


def test_a_500_after_accepting_then_a_200_under_the_key_is_one_effect(url: str, counted: Counted) -> None:
    counted.provider.order("error-500-after-accept")
    made, asked = posting(BLOCKING["adapter"], KEYED), {"tenant": "t", "request_id": "r-1", "title": "a"}
    with Counterfoil.open(url) as cf:
        provide(cf)
        with pytest.raises(OutcomeUnknown) as caught:
            cf.perform(made, **asked, url=f"{counted.provider.url}/tickets")
        assert caught.value.retry == "safe"
        assert cf.perform(made, **asked, url=f"{counted.provider.url}/tickets").evidence["replayed"]
    assert counted.provider.count() == 1


@pytest.mark.parametrize("refusal", [401, 403, 404, 429, 503])
def test_a_refusal_at_the_door_does_not_make_a_500_a_no(url: str, refusal: int) -> None:
    """The 500 may have accepted; a token that has expired since then proves nothing of it."""
    with Faulty(faulty.in_turn(faulty.status(500), faulty.status(refusal))) as server, Counterfoil.open(url) as cf:
        provide(cf)
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                cf.perform(posting(BLOCKING["adapter"], KEYED), tenant="t", request_id="r-1", title="a", url=server.url)
        assert server.requests == 2
