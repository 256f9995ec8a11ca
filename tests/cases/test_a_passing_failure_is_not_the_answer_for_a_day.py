"""B35: a passing 503 was kept and repeated to every retry for 24 hours.

Sources: https://github.com/C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend/issues/380,
https://github.com/ietf-wg-httpapi/idempotency/issues/41, https://github.com/KanishJebaMathewM/Truxify/issues/2869
"""

from typing import Any

import pytest

from counterfoil import Counterfoil
from counterfoil.errors import CounterfoilError, EffectNotSent, EffectRefused, OutcomeUnknown
from tests.cases.counted import Counted

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
