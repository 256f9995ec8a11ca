"""Living with changed code: a settled operation answers any version, an unsettled one goes only to its own."""

from itertools import count
from typing import Any

import pytest

from counterfoil import Found, NotSent, Provider
from counterfoil.errors import EffectNotSent, EffectVersionMissing, OutcomeUnknown
from tests.conformance.subject import Subject

_names = (f"conformance.versioned-{n}" for n in count(1))


def test_an_operation_settled_under_one_version_answers_the_next(subject: Subject) -> None:
    name = next(_names)
    first = subject.ticket(name=name, version=1)
    receipt = subject.perform(first, title="a")

    def second(call: Any, *, title: str, priority: str = "low") -> Any:
        raise AssertionError("sent twice")

    newer = subject.effect(second, name=name, version=2)
    answer = subject.perform(newer, title="a", priority="low")
    assert (answer.value, answer.effect_version) == (receipt.value, 1)


@pytest.mark.parametrize("ending", [NotSent("503"), OSError()])
def test_an_unsettled_operation_goes_on_under_the_version_that_began_it(subject: Subject, ending: Exception) -> None:
    name, seen = next(_names), list[Any]()

    def first(call: Any, *, title: str) -> Any:
        seen.append((1, title, call.provider_key))
        if len(seen) == 1:
            raise ending
        return {"version": 1}

    def second(call: Any, *, title: str, priority: str = "low") -> Any:
        seen.append((2, title, call.provider_key))
        return {"version": 2}

    older = subject.effect(first, name=name, version=1, provider=Provider(key_lifetime="1h", key_length=32))
    with pytest.raises((EffectNotSent, OutcomeUnknown)):
        subject.perform(older, title="a")
    newer = subject.effect(second, name=name, version=2, provider=Provider(key_lifetime="1h", key_length=64))
    receipt = subject.perform(newer, title="a", priority="low")
    assert (receipt.value, receipt.effect_version, receipt.attempt) == ({"version": 1}, 1, 2)
    assert [version for version, _, _ in seen] == [1, 1]
    assert len({key for _, _, key in seen}) == 1
    assert len(seen[0][2]) == 32


def test_the_look_up_of_the_version_that_began_it_is_asked(subject: Subject) -> None:
    name, asked = next(_names), list[str]()

    def lookup(call: Any, *, title: str) -> Any:
        asked.append(title)
        return Found({"found": True}) if len(asked) > 1 else None

    def first(call: Any, *, title: str) -> Any:
        raise OSError

    older = subject.effect(first, name=name, version=1, provider=subject.provider(lookup=lookup, lookup_lag="0s"))
    with pytest.raises(RuntimeError):
        subject.perform(older, title="a")
    newer = subject.effect(lambda call, *, title, priority="low": None, name=name, version=2)
    assert subject.perform(newer, title="a", priority="low").value == {"found": True}
    assert asked == ["a", "a"]


def test_an_unsettled_operation_of_a_version_that_is_gone_is_held(subject: Subject) -> None:
    from counterfoil.effects import REGISTRY

    name = next(_names)

    def send(call: Any, *, title: str) -> Any:
        raise NotSent

    older = subject.effect(send, name=name, version=1)
    with pytest.raises(EffectNotSent):
        subject.perform(older, title="a")
    del REGISTRY.effects[name, 1]
    newer = subject.ticket(name=name, version=2)
    for _ in range(2):
        with pytest.raises(EffectVersionMissing, match="version 1") as caught:
            subject.perform(newer, title="a")
        assert caught.value.facts["stored"] == 1
    assert len(subject.sent) == 0
    assert subject.state == "pending"


@pytest.mark.parametrize(
    "changed",
    [
        {"key_lifetime": "1h", "key_length": 32},  # it would get another key than the first time
        {},  # it honours no key any more
    ],
)
def test_a_provider_that_is_declared_otherwise_now_is_not_sent_to_again(subject: Subject, changed: Any) -> None:
    name = next(_names)

    def lose() -> None:
        raise OSError

    with pytest.raises(OutcomeUnknown):
        subject.perform(subject.ticket(lose, name=name, provider=Provider(key_lifetime="1h")), title="a")
    with pytest.raises(OutcomeUnknown):
        subject.perform(subject.ticket(lose, name=name, provider=Provider(**changed)), title="a")
    assert len(subject.sent) == 1


def test_a_key_that_is_declared_after_the_send_does_not_cover_it(subject: Subject) -> None:
    name = next(_names)

    def lose() -> None:
        raise OSError

    with pytest.raises(OutcomeUnknown):
        subject.perform(subject.ticket(lose, name=name), title="a")
    with pytest.raises(OutcomeUnknown):
        subject.perform(subject.ticket(lose, name=name, provider=Provider(key_lifetime="1h")), title="a")
    assert len(subject.sent) == 1


def test_a_look_up_that_is_declared_after_the_send_is_asked(subject: Subject) -> None:
    name = next(_names)

    def lose() -> None:
        raise OSError

    with pytest.raises(OutcomeUnknown):
        subject.perform(subject.ticket(lose, name=name), title="a")
    provider = subject.provider(lookup=lambda call, *, title: Found({"id": 1}), lookup_lag="0s")
    assert subject.perform(subject.ticket(lose, name=name, provider=provider), title="a").value == {"id": 1}
