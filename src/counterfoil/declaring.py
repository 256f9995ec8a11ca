"""Declare a function as an effect, and refuse at import what can never be kept."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from counterfoil.core.arguments import DECLARED, LONGEST
from counterfoil.core.durations import Duration, milliseconds
from counterfoil.core.templates import Template
from counterfoil.delivery import AT_ONCE, Declared, Delivery
from counterfoil.effects import REGISTRY, Effect
from counterfoil.errors import ContradictoryDeclaration
from counterfoil.keeping import FOREVER, Retention, refuse_too_short
from counterfoil.policy import Policy
from counterfoil.providing import OPAQUE, Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from counterfoil.model import Answered, ProviderFacts, Statement

R = TypeVar("R")
Errors = type[BaseException] | tuple[type[BaseException], ...]

DEFAULT_TIME_LIMIT = "30s"
HIGHEST_VERSION = 2**31 - 1
"""What the smallest whole number of any database holds."""
LONGEST_LEASE_MS = 30_000
"""A longer effect renews its lease by heartbeat, so that a crash is noticed within this time and not at its limit."""


class Declare(Protocol):
    """What `effect(...)` returns: the decorator, which keeps the type that the effect returns."""

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, Answered[R]]], /) -> Effect[R]: ...

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> Effect[R]: ...

    @overload
    def __call__(self, function: Callable[..., Answered[R]], /) -> Effect[R]: ...

    @overload
    def __call__(self, function: Callable[..., Statement[R]], /) -> Effect[R]: ...

    @overload
    def __call__(self, function: Callable[..., R], /) -> Effect[R]: ...


def effect(  # noqa: PLR0913 - the contract has this many clauses, each named at the call
    name: str,
    *,
    key: str,
    version: int = 1,
    provider: Provider = OPAQUE,
    time_limit: Duration = DEFAULT_TIME_LIMIT,
    lease: Duration | None = None,
    heartbeat: bool = True,
    not_sent: Errors = (),
    refused: Errors = (),
    not_identity: Collection[str] = (),
    redact: Collection[str] = (),
    require_key: bool = False,
    stable: Collection[str] = (),
    delivery: Delivery = AT_ONCE,
    retention: Retention = FOREVER,
    approval: Policy | None = None,
) -> Declare:
    """Declare a function as an effect.

    The function takes `call` first (a transactional one takes the open transaction) and its business arguments as
    keywords; it returns what the receipt will hold, or with `Provider.one_statement()` the statement that does it all.
    It raises `NotSent` if nothing happened and may be tried again, `Refused` if the provider refused for good; whatever
    else it raises leaves the outcome unknown.

    Args:
        name: The effect's name, part of no id but stored with each operation: `"ticket.create"`.
        key: Template of the operation id over arguments and trusted fields: `"{request_id}/create-ticket"`.
        version: Raise it when the meaning of the arguments changes; an unsettled operation keeps its own.
        provider: What the downstream can do; the default is nothing.
        time_limit: How long one attempt may take; after it, its outcome counts as unknown.
        lease: How long a claim lasts without a heartbeat; by default the time limit, 30 seconds at the most.
        heartbeat: Whether long attempts renew their lease from a thread of their own.
        not_sent: Exceptions that mean that nothing happened.
        refused: Exceptions that mean that the provider refused for good.
        not_identity: Arguments that do not tell operations apart, such as a trace id or the time of sending.
        redact: Dotted paths in the result that hold secrets and are not stored.
        require_key: Insist on a provider that honours keys; for money.
        stable: Key fields with a suspicious name that are stable all the same.
        delivery: On which terms a dispatcher sends it where it is enqueued.
        retention: How long what is known of its operations is kept, in place of what the Counterfoil was opened with.
        approval: Which of its operations are sent only once a person has approved them.

    Raises:
        ContradictoryDeclaration: two declarations cannot both be true, or one is not what it must be.
        UnstableId: the key uses a field that changes from one try to the next.
        UnknownTemplateField: the key uses a field that is neither an argument nor trusted.
        DuplicateEffect: the name and version are declared elsewhere.
    """
    DECLARED.text("effect(name=...)", name, longest=LONGEST)
    DECLARED.number("effect(version=...)", version, least=1, most=HIGHEST_VERSION)
    DECLARED.flag("effect(heartbeat=...)", heartbeat)
    DECLARED.flag("effect(require_key=...)", require_key)
    hidden, steady = DECLARED.texts("effect(redact=...)", redact), DECLARED.texts("effect(stable=...)", stable)
    harmless = DECLARED.exceptions("effect(not_sent=...)", not_sent)
    final = DECLARED.exceptions("effect(refused=...)", refused)
    _check_provider(name, provider)

    def declare(function: Callable[..., Any], /) -> Effect[Any]:
        _refuse_generator(name, function)
        made: Effect[Any] = Effect(function, name=name, version=version, provider=provider)
        made.key = Template.parse(key, arguments=made.parameters.keys(), stable=steady)
        made.facts = _facts(made, time_limit, lease, heartbeat=heartbeat)
        made.not_identity = _known(made, not_identity)
        made.redact, made.not_sent, made.refused = hidden, harmless, final
        made.delivery = Declared.of(_checked_delivery(name, delivery), made.parameters)
        made.retention = _checked_retention(name, retention)
        made.approval = _checked_approval(name, approval)
        _refuse_contradictions(made, require_key=require_key)
        refuse_too_short(name, made.retention.periods, made.facts, made.delivery.usual)
        return REGISTRY.add(made)

    return declare


# --- checks at import ------------------------------------------------------------------------------------------------


def _facts(made: Effect[Any], time_limit: Duration, lease: Duration | None, *, heartbeat: bool) -> ProviderFacts:
    limit = milliseconds(time_limit, "time_limit")
    longest = min(limit, LONGEST_LEASE_MS) if heartbeat else limit
    granted = longest if lease is None else milliseconds(lease, "lease")
    if limit == 0 or granted == 0:
        raise ContradictoryDeclaration(f"The effect {made.name} has no time: time_limit and lease must be above zero.")
    if granted < limit and not heartbeat:
        raise ContradictoryDeclaration(
            f"The effect {made.name} has a lease shorter than its time limit and no heartbeat: a healthy attempt would"
            " be taken for dead. Lengthen the lease, or leave heartbeat on."
        )
    return made.provider.facts(time_limit=limit, lease=min(granted, limit))


def _known(made: Effect[Any], names: Collection[str]) -> frozenset[str]:
    chosen = frozenset(DECLARED.texts("effect(not_identity=...)", names))
    if unknown := sorted(chosen - made.parameters.keys()):
        raise ContradictoryDeclaration(f"The effect {made.name} has no argument {', '.join(unknown)} (not_identity).")
    if inside := sorted(chosen & set(made.key.fields)):
        raise ContradictoryDeclaration(
            f"The effect {made.name} uses {', '.join(inside)} in its key and declares it not_identity: it is one or"
            " the other."
        )
    return chosen


def _check_provider(name: str, provider: object) -> None:
    if not isinstance(provider, Provider):
        raise ContradictoryDeclaration(
            f"The effect {name} declares provider={provider!r}; write Provider(...), Provider.transactional(), or"
            " nothing for a provider that neither honours a key nor can be asked."
        )


def _checked_delivery(name: str, delivery: object) -> Delivery:
    if not isinstance(delivery, Delivery) or delivery.at is not None:
        raise ContradictoryDeclaration(
            f"The effect {name} declares delivery={delivery!r}; write delivery=Delivery(stream=..., max_attempts=...)."
            " A time (at) belongs to one operation: give it to enqueue."
        )
    return delivery


def _checked_retention(name: str, retention: object) -> Retention:
    if not isinstance(retention, Retention):
        raise ContradictoryDeclaration(
            f"The effect {name} declares retention={retention!r}; write retention=Retention(receipt='400d')."
        )
    return retention


def _checked_approval(name: str, approval: object) -> Policy | None:
    if approval is not None and not isinstance(approval, Policy):
        raise ContradictoryDeclaration(
            f"The effect {name} declares approval={approval!r}; write approval=Policy(), or leave it out."
        )
    return approval


def _refuse_generator(name: str, function: object) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ContradictoryDeclaration(
            f"The effect {name} is a generator: calling it would run none of its lines, and yet look like success."
            " Return the result instead of yielding it."
        )


def _check_lookup(made: Effect[Any]) -> None:
    """Refuse a look-up that could not be called: it is needed only when a reply was lost, and then it must work."""
    lookup = made.provider.lookup
    if lookup is None:
        return
    try:
        inspect.signature(lookup).bind(None, **dict.fromkeys(made.parameters))
    except ValueError:
        return  # some callables do not tell their signature
    except TypeError as error:
        takes = ", ".join(("call", *made.parameters))
        raise ContradictoryDeclaration(
            f"The look-up of effect {made.name} cannot be called as look-ups are, with ({takes}): {error}. It gets the"
            " call and the effect's own arguments as keywords; take those that it does not need as **_."
        ) from None


def _ambiguous(declared: tuple[type[BaseException], ...]) -> tuple[str, ...]:
    if not declared:
        return ()
    from counterfoil.providers.tables import ambiguous  # noqa: PLC0415 - most effects declare none

    return ambiguous(declared)


def _check_statement(made: Effect[Any]) -> None:
    """Refuse what a receipt that the database itself writes cannot honour."""
    if not made.provider.is_one_statement:
        return
    if made.is_async:
        raise ContradictoryDeclaration(
            f"The effect {made.name} is one statement, which it only has to return: nothing is awaited, so write def."
        )
    if made.redact:
        raise ContradictoryDeclaration(
            f"The effect {made.name} declares redact, but the database itself writes the row that its statement returns"
            " into the receipt. Leave the secret columns out of returning."
        )


def _refuse_contradictions(made: Effect[Any], *, require_key: bool) -> None:
    _check_lookup(made)
    _check_statement(made)
    if require_key and made.facts.key_lifetime is None:
        raise ContradictoryDeclaration(
            f"The effect {made.name} requires a key, but its provider declares none. Only a provider that honours keys"
            " keeps a stalled sender from acting twice; declare Provider(key_lifetime=...), or drop require_key."
        )
    if made.facts.key_lifetime is not None and made.facts.key_lifetime <= made.facts.time_limit:
        raise ContradictoryDeclaration(f"The effect {made.name} may outlast its provider's key: shorten time_limit.")
    if caught := _ambiguous((*made.not_sent, *made.refused)):
        raise ContradictoryDeclaration(
            f"The effect {made.name} declares {', '.join(caught)} to mean that nothing happened, but it also catches"
            " time-outs or lost replies, after which nobody knows. Name the narrower exceptions."
        )
