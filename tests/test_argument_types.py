"""Every public function names an argument of the wrong type or size itself; nothing breaks further down."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, Delivery, Policy, Provider, Retention, effect
from counterfoil.core.arguments import CALLED, LARGEST
from counterfoil.errors import ContradictoryDeclaration, CounterfoilError, InvalidArguments, InvalidId, InvalidUrl
from counterfoil.model import Origin, Trusted

# --- declarations ----


def sent(call: Any, *, title: str = "") -> Any:
    raise AssertionError("nothing may be sent")


def declare(**contract: Any) -> Any:
    return effect(**{"name": "types.declared", "key": "{request_id}/x", **contract})(sent)


WRONG_DECLARATIONS: dict[str, list[Any]] = {
    "name": [None, 5, "", "\ud800", "a\0b", "a" * 513, b"a"],
    "key": [None, 5, "", "\ud800/{title}"],
    "version": [None, "x", "1", 1.5, 0, -1, True, 10**30, 10**5000],
    "provider": [None, "opaque", Provider],
    "time_limit": [None, 5, "soon"],
    "lease": [5, "soon"],
    "heartbeat": [None, 1, "no"],
    "require_key": [None, 1, "no"],
    "not_sent": [None, "TimeoutError", [ValueError], int, (ValueError, 5), ValueError("x")],
    "refused": [None, "TimeoutError", [ValueError], int],
    "redact": [None, 5, (1,), {"a": 1}, ("\ud800",), ""],
    "not_identity": [None, 5, (1,), b"title"],
    "stable": [None, 5, (1,)],
    "approval": [5, "yes", True, Policy],
    "delivery": [None, 5, "5m", Delivery, Delivery(at=datetime(2027, 1, 1, tzinfo=UTC))],
    "retention": [None, 5, "400d", Retention],
}


DECLARED = [(name, value) for name, values in WRONG_DECLARATIONS.items() for value in values]


def numbered(cases: list[Any]) -> list[str]:
    """Name each case: some of the values cannot be written out."""
    return [f"{case[0]} {index}" for index, case in enumerate(cases)]


@pytest.mark.parametrize(("name", "value"), DECLARED, ids=numbered(DECLARED))
def test_an_effect_is_refused_at_import(name: str, value: Any) -> None:
    with pytest.raises(CounterfoilError) as caught:
        declare(**{name: value})
    assert name in str(caught.value)
    str(caught.value).encode()


def test_every_keyword_of_an_effect_is_among_them() -> None:
    assert set(WRONG_DECLARATIONS) == set(inspect.signature(effect).parameters)


@pytest.mark.parametrize("function", [None, 5, "sent"])
def test_only_a_function_is_an_effect(function: Any) -> None:
    with pytest.raises(ContradictoryDeclaration, match="function"):
        effect("types.declared", key="{request_id}/x")(function)


WRONG_PROVIDERS: dict[str, list[Any]] = {
    "lookup": [5, "find", ()],
    "classify": [5, "find", ()],
    "key_length": [None, "64", float("inf"), float("nan"), 64.0, True, -1, 10**30],
    "on_absent": [None, 5, [], {}],
    "is_transactional": [None, 1, "no"],
}
PROVIDED = [(name, value) for name, values in WRONG_PROVIDERS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), PROVIDED, ids=numbered(PROVIDED))
def test_a_provider_is_refused_at_import(name: str, value: Any) -> None:
    rest: dict[str, Any] = {"lookup_lag": "0s"} if name == "lookup" else {}
    with pytest.raises(ContradictoryDeclaration, match=name):
        Provider(**{name: value, **rest})


# --- calls ----

TEXTS: list[Any] = [None, 5, 1.5, b"x", "", "\ud800", "a\0b", ["x"]]
NUMBERS: list[Any] = ["10", 1.5, True, -1, 10**30, 10**5000, [1]]
FILTERS = [value for value in TEXTS if value is not None]


def resolve(cf: Any, **given: Any) -> Any:
    rest = {"verdict": "happened", "by": "ada", "evidence": "seen", "expect_version": 1}
    return cf.review.resolve(**{"case_id": "case-1", "tenant": "t", **rest, **given})


READS: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "operations.get": (lambda cf, x: cf.operations.get(x, tenant="t"), TEXTS),
    "operations.explain": (lambda cf, x: cf.operations.explain(x, tenant="t"), TEXTS),
    "operations.find": (lambda cf, x: cf.operations.find(x, tenant="t"), [value for value in TEXTS if value != ""]),
    "operations.find limit": (lambda cf, x: cf.operations.find("x", tenant="t", limit=x), [None, 0, *NUMBERS]),
    "operations.list limit": (lambda cf, x: cf.operations.list(tenant="t", limit=x), [None, 0, 1001, *NUMBERS]),
    "operations.list before": (lambda cf, x: cf.operations.list(tenant="t", before=x), NUMBERS),
    "operations.list effect": (lambda cf, x: cf.operations.list(tenant="t", effect=x), FILTERS),
    "operations.list request_id": (lambda cf, x: cf.operations.list(tenant="t", request_id=x), FILTERS),
    "operations.list thread_id": (lambda cf, x: cf.operations.list(tenant="t", thread_id=x), FILTERS),
    "operations.list state": (lambda cf, x: cf.operations.list(tenant="t", state=x), FILTERS),
    "operations.list older_than": (lambda cf, x: cf.operations.list(tenant="t", older_than=x), FILTERS),
    "operations.list tenant": (lambda cf, x: cf.operations.list(tenant=x), TEXTS),
    "operations.counts tenant": (lambda cf, x: cf.operations.counts(tenant=x), TEXTS),
    "review.list after": (lambda cf, x: cf.review.list(tenant="t", after=x), NUMBERS),
    "review.list state": (lambda cf, x: cf.review.list(tenant="t", state=x), FILTERS),
    "review.show": (lambda cf, x: cf.review.show(x, tenant="t"), TEXTS),
    "review.open": (lambda cf, x: cf.review.open(x, tenant="t"), TEXTS),
    "review.resolve case": (lambda cf, x: resolve(cf, case_id=x), TEXTS),
    "review.resolve verdict": (lambda cf, x: resolve(cf, verdict=x), TEXTS),
    "review.resolve by": (lambda cf, x: resolve(cf, by=x), [None, 5, b"ada", ["ada"]]),
    "review.resolve reason": (lambda cf, x: resolve(cf, reason=x), [None, 5, b"seen"]),
    "review.resolve evidence": (lambda cf, x: resolve(cf, evidence=x), [5, b"seen", ["seen"]]),
    "review.resolve version": (lambda cf, x: resolve(cf, expect_version=x), [None, *NUMBERS]),
}
CASES = [(name, call, value) for name, (call, values) in READS.items() for value in values]


@pytest.mark.parametrize(("name", "call", "value"), CASES, ids=numbered(CASES))
def test_a_read_or_a_verdict_is_refused(name: str, call: Callable[[Any, Any], Any], value: Any) -> None:
    with Counterfoil.open("sqlite:///:memory:") as cf, pytest.raises(CounterfoilError) as blocking:
        call(cf, value)
    awaited = asyncio.run(refused_async(call, value))
    assert (type(awaited), str(awaited)) == (type(blocking.value), str(blocking.value))
    assert awaited.code not in {"operation-not-found", "case-not-found", "constraint-violated"}
    str(awaited).encode()


async def refused_async(call: Callable[[Any, Any], Any], value: Any) -> CounterfoilError:
    async with AsyncCounterfoil.open("sqlite:///:memory:") as cf:
        with pytest.raises(CounterfoilError) as caught:
            await call(cf, value)
        return caught.value


@pytest.mark.parametrize("colour", [Counterfoil, AsyncCounterfoil])
@pytest.mark.parametrize("url", [5, b"sqlite:///a.db", ["a"]])
def test_a_database_is_named_by_a_text(colour: Any, url: Any) -> None:
    with pytest.raises(InvalidUrl):
        colour.open(url)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda cf: cf.config(tenant="t", thread_id="t", config="x"), InvalidArguments),
        (lambda cf: cf.config(tenant="t", thread_id="t", config={"configurable": 5}), InvalidArguments),
        (lambda cf: cf.config(tenant=5, thread_id="t"), InvalidId),
        (lambda cf: cf.config(tenant="t", thread_id=5), InvalidId),
        (lambda cf: cf.config(tenant="t", thread_id="\ud800"), InvalidId),
        (lambda cf: cf.saver(tenant=5), InvalidId),
        (lambda cf: cf.saver(tenant=False), InvalidId),
        (lambda cf: cf.fork("t", tenant=0, branch="b"), InvalidId),
        (lambda cf: cf.fork("t", tenant=[], branch="b"), InvalidId),
        (lambda cf: cf.saver(tenant=None), InvalidId),
        (lambda cf: cf.saver(tenant="\ud800"), InvalidId),
        (lambda cf: cf.resources.provide(5, dict), InvalidArguments),
        (lambda cf: cf.resources.provide([], dict), InvalidArguments),
        (lambda cf: cf.resources.provide(dict, dict, name=[]), InvalidArguments),
        (lambda cf: cf.resources.get([]), InvalidArguments),
    ],
)
def test_another_call_is_refused(call: Callable[[Counterfoil], Any], error: type[CounterfoilError]) -> None:
    with Counterfoil.open("sqlite:///:memory:") as cf, pytest.raises(error):
        call(cf)


named: Any = effect("types.named", key="{request_id}/named", approval=Policy())(sent)
NAMED_WRONG: dict[str, Callable[[Any], Any]] = {
    "perform_as": lambda cf: cf.perform_as(named, {1: 2}, Trusted(tenant="t", request_id="r"), Origin()),
    "enqueue_all": lambda cf: cf.enqueue_all(named, [{1: 2}], tenant="t", request_id="r"),
    "approvals.edit": lambda cf: cf.approvals.edit("approval-1", tenant="t", by="mei", changes={"title": "b", 1: 2}),
}


@pytest.mark.parametrize("name", NAMED_WRONG)
def test_arguments_are_named_by_texts(name: str) -> None:
    with Counterfoil.open("sqlite:///:memory:") as cf:
        cf.approvals.request(named, tenant="t", request_id="r", title="a")
        with pytest.raises(InvalidArguments, match="write a text"):
            NAMED_WRONG[name](cf)

    async def awaited() -> None:
        async with AsyncCounterfoil.open("sqlite:///:memory:") as cf:
            await cf.approvals.request(named, tenant="t", request_id="r", title="a")
            with pytest.raises(InvalidArguments, match="write a text"):
                await NAMED_WRONG[name](cf)

    asyncio.run(awaited())


LONG = ["x" * 2_000_000, "x y " * 500_000, "梅" * 700_000]
ECHOING: dict[str, Callable[[Any, str], Any]] = {
    **{name: call for name, (call, values) in READS.items() if values is TEXTS or "state" in name},
    "approvals.show": lambda cf, x: cf.approvals.show(x, tenant="t"),
    "approvals.approve": lambda cf, x: cf.approvals.approve(x, tenant="t", by="mei"),
    "grants.revoke": lambda cf, x: cf.grants.revoke(x, tenant="t", by="ops", reason="why"),
    "outbox.cancel": lambda cf, x: cf.outbox.cancel(x, tenant="t", by="ops", reason="why"),
    "outbox.resume": lambda cf, x: cf.outbox.resume(tenant="t", stream=x),
    "tokens.issue role": lambda cf, x: cf.tokens.issue(tenant="t", name="n", role=x),
    "workflows.start": lambda cf, x: cf.workflows.start(x, {}, workflow_id="w", tenant="t"),
    "fork": lambda cf, x: cf.fork("t", tenant="t", branch=x),
    "perform": lambda cf, x: cf.perform(named, tenant="t", request_id="r", **{x: 1}),
}


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(CounterfoilError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("name", ECHOING)
def test_a_message_does_not_repeat_what_is_too_long_to_read(name: str) -> None:
    with Counterfoil.open("sqlite:///:memory:") as cf:
        told = [refusal(partial(ECHOING[name], cf, value)) for value in LONG]
    assert max(map(len, told)) < 13_000


def test_a_message_of_usual_length_is_kept_and_a_long_one_keeps_its_ends() -> None:
    usual = f"Operation {'i' * 1_050} was refused: {'why ' * 1_000}. Nothing was sent."
    assert CounterfoilError(usual).message == usual
    long = CounterfoilError(f"Operation {'i' * 2_000} was refused: {'why ' * 9_000}. Nothing was sent.").message
    assert long.startswith(f"Operation {'i' * 60}... (2000 characters) was refused: why why")
    assert long.endswith("why . Nothing was sent.")


# --- the checks themselves ----


def test_what_fits_comes_back() -> None:
    assert CALLED.text("x", "é") == "é"
    assert CALLED.optional_text("x", None) is None
    assert CALLED.texts("x", "a") == ("a",)
    assert CALLED.texts("x", ["a", "b"]) == ("a", "b")
    assert CALLED.number("x", LARGEST) == LARGEST
    assert CALLED.flag("x", value=False) is False
    assert CALLED.exceptions("x", OSError) == (OSError,)
    assert CALLED.exceptions("x", ()) == ()
    assert CALLED.mapping("x", None) == {}


def test_a_refusal_shows_a_short_number_and_never_a_text() -> None:
    with pytest.raises(InvalidArguments, match=r"^limit is 0; write a whole number from 1 to 5\.$"):
        CALLED.number("limit", 0, least=1, most=5)
    with pytest.raises(InvalidArguments, match=r"^limit is of type str; write"):
        CALLED.number("limit", "canary")
