"""Declared effects, and their registry: what was declared of a function, and one set of arguments for it."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from os import urandom
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from counterfoil import codec
from counterfoil.core.arguments import DECLARED
from counterfoil.core.branches import marked
from counterfoil.core.provider_key import KEY_LENGTH, provider_key
from counterfoil.core.templates import TRUSTED_FIELDS, Template, check_trusted, validate_id
from counterfoil.delivery import Declared
from counterfoil.errors import (
    ContradictoryDeclaration,
    DuplicateEffect,
    InvalidArguments,
    NoActiveCounterfoil,
    UnsupportedValue,
)
from counterfoil.keeping import FOREVER
from counterfoil.model import OperationKey, ProviderFacts, Trusted
from counterfoil.rebuilding import rebuild_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from counterfoil.core.approvals import Gate
    from counterfoil.policy import Policy
    from counterfoil.providing import Provider
    from counterfoil.resources import Resources

T = TypeVar("T")
R = TypeVar("R")
Kind = inspect.Parameter


@dataclass(frozen=True, slots=True)
class EffectCall:
    """What an effect or a look-up is told about the operation it works for.

    `time_limit` is in seconds, for client time-outs; `attempt` counts from 1.
    """

    tenant: str
    operation_id: str
    attempt: int
    time_limit: float
    trusted: Trusted
    resources: Resources = field(repr=False)
    _key_length: int = field(default=KEY_LENGTH, repr=False)
    sends_once: bool = False
    """Whether a second send would be a second effect: it is an effect's call, and its provider declares no key."""

    @property
    def provider_key(self) -> str:
        """Return the idempotency key for the provider: the same at every attempt; made when it is asked for."""
        return provider_key(OperationKey(tenant=self.tenant, operation_id=self.operation_id), self._key_length)

    @property
    def request_id(self) -> str | None:
        """Return the trusted request id, if the run has one."""
        return self.trusted.request_id

    def resource(self, kind: type[R], name: str = "") -> R:
        """Return a live resource from this process's registry.

        Raises:
            ResourceMissing: nobody provided it.
            HiddenRetries: it sends again by itself, which without a key would be a second effect.
        """
        found = self.resources.get(kind, name)
        if self.sends_once:
            from counterfoil.providers.retries import let_send_once  # noqa: PLC0415 - only clients need it

            let_send_once(found)
        return found


class MakeCall(Protocol):
    """Makes what an effect or a look-up is told."""

    def __call__(self, effect: Effect[Any], attempt: int, /, *, sends_once: bool) -> EffectCall:
        """Make it for an attempt."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """One set of arguments, ready to be performed: checked, digested and with its operation id.

    Its identity is made of those that differ from their defaults; what is stored has the defaults as well.
    """

    key: OperationKey
    arguments: Mapping[str, Any]
    digests: codec.Digests
    payload: bytes

    @property
    def distinct(self) -> Mapping[str, Any]:
        """Return the arguments that its identity is made of."""
        return {name: self.arguments[name] for name in self.digests.parts}


Schema: TypeAlias = "Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]"
"""Takes stored arguments and what a person wrote in place of some; returns those of the latter that it judges."""


class Effect(Generic[T]):
    """A declared effect: a function with a contract. Perform it through a Counterfoil; do not call it."""

    def __init__(self, function: Callable[..., Any], *, name: str, version: int, provider: Provider) -> None:
        self.function = function
        self.name = name
        self.version = version
        self.provider = provider
        self.is_async = inspect.iscoroutinefunction(function)
        self.needs_loop = self.is_async or provider.has_async_lookup
        self.parameters = _parameters(function, name)
        self.defaults = {n: p.default for n, p in self.parameters.items() if p.default is not Kind.empty}
        self.required = self.parameters.keys() - self.defaults.keys()
        self.filled_in = [name for name in self.parameters if name in TRUSTED_FIELDS]
        self.key: Template
        self.facts: ProviderFacts
        self.not_identity: frozenset[str] = frozenset()
        self.redact: tuple[str, ...] = ()
        self.delivery = Declared()
        self.retention = FOREVER
        self.approval: Policy | None = None
        self.schema: Schema | None = None
        self.not_sent: tuple[type[BaseException], ...] = ()
        self.refused: tuple[type[BaseException], ...] = ()
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<Effect {self.name} v{self.version}>"

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuse: outside a Counterfoil nothing would remember that the effect happened.

        Raises:
            NoActiveCounterfoil: always.
        """
        raise NoActiveCounterfoil(
            f"The effect {self.name} was called directly, where nothing would keep its receipt. Write"
            f" cf.perform({self.__name__}, tenant=..., request_id=..., ...) or, in a LangGraph node,"
            f" perform({self.__name__}, ...). To test the bare function call {self.__name__}.function(call, ...)."
        )

    def bind(self, given: Mapping[str, Any], trusted: Trusted) -> Bound:
        """Check the arguments, fill in trusted ones, and derive the operation id, digests and stored payload.

        Raises:
            InvalidArguments: they do not fit the signature.
            TrustedFieldMismatch: one claims another value for a trusted field.
            UnsupportedValue: one has no canonical form.
        """
        fields = trusted.fields()
        arguments = self._arguments(given, fields)
        operation_id = self.key.render({**self.defaults, **arguments} if self.defaults else arguments, fields)
        if trusted.branch is not None:
            operation_id = validate_id("operation id", marked(operation_id, trusted.branch))
        key = OperationKey(tenant=validate_id("tenant", trusted.tenant), operation_id=operation_id)
        parts = codec.canonical_parts(arguments)
        usual = self._usual if self.defaults else {}  # stored with the operation: a later release may change them
        for name, part in usual.items():  # one that equals its default is left out of the identity,
            if name in parts and parts[name].value == part.value:  # so that a new argument changes no operation
                del parts[name]
        digests = codec.digest_parts(parts, usual=usual, not_identity=self.not_identity, salt=urandom(16))
        stored = {**{name: self.defaults[name] for name in usual}, **arguments} if usual else arguments
        return Bound(key, arguments, digests, codec.encode(stored))

    def gate(self, arguments: Mapping[str, Any]) -> Gate | None:
        """Return the gate that stands before these arguments, or None."""
        if self.approval is None:
            return None
        from counterfoil.active import inside  # noqa: PLC0415 - brings asyncio, and most effects have no policy

        with inside(f"the policy of effect {self.name}"):
            return self.approval.gate({**self.defaults, **arguments})

    def stored_gate(self, payload: bytes) -> Gate | None:
        """Return the gate that stands before stored arguments, or None."""
        return None if self.approval is None else self.gate(self.rehydrate(payload))

    def rehydrate(self, payload: bytes) -> dict[str, Any]:
        """Return stored arguments; dataclasses, models and enums are made anew from the declared types.

        Raises:
            InvalidArguments: the effect takes others than were stored.
        """
        stored = codec.decode(payload)
        unlike = sorted((self.required - stored.keys()) | (stored.keys() - self.parameters.keys()))
        if unlike:
            raise InvalidArguments(
                f"The effect {self.name} version {self.version} takes other arguments than were stored for it:"
                f" {', '.join(unlike)}. Nothing was sent. Declare the changed function under a new version, and keep"
                " the old one declared until its operations are settled."
            )
        return rebuild_arguments(self.function, stored)

    def apart(self, own: Mapping[str, Any], payload: bytes) -> Mapping[str, Any]:
        """Return arguments as objects that nobody else holds, made anew from their payload.

        Where the effect does not declare the types that would make them equal, they stay the caller's own.
        """
        try:
            stored = self.rehydrate(payload)  # with the defaults of then
        except (TypeError, ValueError):  # they do not fit what is declared
            return own
        made = {name: stored.get(name) for name in own}
        return made if made == own else own

    def _arguments(self, given: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
        check_trusted(given, fields)
        arguments = dict(given)
        for name in self.filled_in:
            if name in fields:
                arguments[name] = fields[name]
        if not arguments.keys() <= self.parameters.keys():
            unknown = ", ".join(sorted(arguments.keys() - self.parameters.keys()))
            raise InvalidArguments(
                f"The effect {self.name} has no argument {unknown}; it takes {', '.join(self.parameters)}."
            )
        if not self.required <= arguments.keys():
            missing = ", ".join(sorted(self.required - arguments.keys()))
            raise InvalidArguments(f"The effect {self.name} needs the argument {missing}.")
        return arguments

    @cached_property
    def _usual(self) -> Mapping[str, codec.Part]:
        """The canonical forms of the defaults that have one; made late: to declare an effect loads no encoder."""
        found: dict[str, codec.Part] = {}
        for name, default in self.defaults.items():
            with suppress(UnsupportedValue):  # a mark such as object(): it stands for the argument's absence
                found.update(codec.canonical_parts({name: default}))
        return found


@dataclass(frozen=True, slots=True)
class Registry:
    """All effects of this process by name and version."""

    effects: dict[tuple[str, int], Effect[Any]] = field(default_factory=dict)

    def add(self, made: Effect[Any]) -> Effect[Any]:
        """Enter an effect; declaring the same function again replaces it, as reloading a module does.

        Raises:
            DuplicateEffect: another place declares this name and version.
        """
        known = self.effects.get((made.name, made.version))
        if known is not None and _place(known) != _place(made):
            raise DuplicateEffect(
                f"The effect {made.name} version {made.version} is declared in {_place(known)} and in {_place(made)}."
                " Give one of them another name, or import the first."
            )
        self.effects[made.name, made.version] = made
        return made

    def find(self, name: str, version: int) -> Effect[Any] | None:
        """Return the effect of this name and version, if this process declares it."""
        return self.effects.get((name, version))


REGISTRY = Registry()


def _place(made: Effect[Any]) -> str:
    return f"{made.__module__}.{made.__qualname__}"


def _parameters(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    DECLARED.function(f"What is declared as effect {name}", function)
    given = list(inspect.signature(function).parameters.values())
    if not given or given[0].kind in {Kind.VAR_POSITIONAL, Kind.KEYWORD_ONLY, Kind.VAR_KEYWORD}:
        raise ContradictoryDeclaration(
            f"The effect {name} must take the call as its first argument: def {function.__name__}(call, *, title: str)."
        )
    if any(p.kind in {Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD, Kind.POSITIONAL_ONLY} for p in given[1:]):
        raise ContradictoryDeclaration(
            f"The effect {name} takes *args, **kwargs or positional-only arguments; its identity is made of named"
            " arguments, so name each."
        )
    return {p.name: p for p in given[1:]}
