"""B32: the caller changed the request but kept the key; or wants the first result back and gets only an error.

Sources: https://github.com/fjordllc/bootcamp/issues/3928, https://github.com/stripe/stripe-java/issues/389
"""

from typing import Any

import pytest

from counterfoil import Counterfoil, NotSent, Refused, effect
from counterfoil.errors import CounterfoilError, FingerprintMismatch

ENDINGS: dict[str, BaseException | None] = {
    "confirmed": None,
    "not sent": NotSent(),
    "refused": Refused("402"),
    "unknown": OSError(),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_conflict_shows_both_digests_and_the_fields_and_sends_nothing(url: str, ending: str) -> None:
    sent: list[int] = []

    @effect("cases.pay", key="{payment}")
    def pay(call: Any, *, payment: str, amount: int, note: str = "") -> str:
        sent.append(amount)
        if (error := ENDINGS[ending]) is not None:
            raise error
        return "paid"

    with Counterfoil.open(url) as cf:

        def ask(**given: Any) -> Any:
            return cf.perform(pay, tenant="t", payment="pay-41", **given)

        if ending == "confirmed":
            assert ask(amount=10).value == "paid"
        else:
            with pytest.raises(CounterfoilError):
                ask(amount=10)
        for given, fields in (({"amount": 12}, ("amount",)), ({"amount": 10, "note": "hush"}, ("note",))):
            with pytest.raises(FingerprintMismatch) as caught:
                ask(**given)
            assert caught.value.fields == fields
            stored, given_digest = caught.value.facts["stored"], caught.value.facts["given"]
            assert stored != given_digest
            assert stored[:17] in str(caught.value)
            assert given_digest[:17] in str(caught.value)
            assert "hush" not in str(caught.value)
        assert sent == [10]
        if ending == "confirmed":
            assert ask(amount=10).already_happened
    assert sent == [10]
