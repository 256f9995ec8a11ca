"""Declare effects and providers, and refuse at import what can never be kept."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from counterfoil import codec
from counterfoil.core.arguments import DECLARED, LONGEST
from counterfoil.core.branches import marked
from counterfoil.core.durations import milliseconds
from counterfoil.core.outcomes import ambiguous
from counterfoil.core.provider_key import KEY_LENGTH, SHORTEST_KEY, provider_key
from counterfoil.core.states import AttemptOutcome
from counterfoil.core.templates import TRUSTED_FIELDS, Template, check_trusted, validate_id
from counterfoil.errors import ContradictoryDeclaration, DuplicateEffect, InvalidArguments, NoActiveCounterfoil
from counterfoil.model import LookupAnswer, OperationKey, ProviderFacts, Statement, Trusted
from counterfoil.rebuilding import rebuild_arguments

if TYPE_CHECKING:
    from counterfoil.resources import Resources

T = TypeVar("T")
R = TypeVar("R")
Kind = inspect.Parameter
Duration = str | timedelta
Errors = type[BaseException] | tuple[type[BaseException], ...]

DEFAULT_TIME_LIMIT = "30s"
HIGHEST_VERSION = 2**31 - 1
"""What the smallest whole number of any database holds."""
LONGEST_LEASE_MS = 30_000
"""A longer effect renews its lease by heartbeat, so that a crash is noticed within this time and not at its limit."""


@dataclass(frozen=True, slots=True)
class EffectCall:
    """What an effect or a look-up is told about the operation it works for.

    `time_limit` is in seconds, for client time-outs; `attempt` counts from 1.
    """

    tenant: str
    operation_id: str
    provider_key: str
    attempt: int
    time_limit: float
    trusted: Trusted
    resources: Resources = field(repr=False)

    @property
    def request_id(self) -> str | None:
        """Return the trusted request id, if the run has one."""
        return self.trusted.request_id

    def resource(self, kind: type[R], name: str = "") -> R:
        """Return a live resource from this process's registry.

        Raises:
            ResourceMissing: nobody provided it.
        """
        return self.resources.get(kind, name)


Lookup = Callable[..., Any]
Classifier = Callable[[BaseException], AttemptOutcome | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What the downstream that executes an effect can do; what is not declared, it cannot.

    Args:
        key_lifetime: How long it honours `call.provider_key`; a repeat inside it does nothing new.
        lookup: `lookup(call, **args) -> Found | Absent | CannotTell`: asks whether the effect happened.
        lookup_lag: How long an accepted effect may stay invisible to the look-up; `"0s"` if it never does.
        on_absent: `"retry"` sends again once absence is proved, `"review"` leaves that to a person.
        key_length: The longest key it takes, in characters.
        classify: Says what an exception means, or None to leave it to the rules of this package.
    """

    key_lifetime: Duration | None = None
    lookup: Lookup | None = None
    lookup_lag: Duration | None = None
    on_absent: str = "retry"
    key_length: int = 255
    classify: Classifier | None = None
    is_transactional: bool = False
    is_one_statement: bool = False

    @classmethod
    def transactional(cls) -> Provider:
        """Return the provider of effects that are rows in Counterfoil's own database."""
        return cls(is_transactional=True)

    @classmethod
    def one_statement(cls) -> Provider:
        """Return the provider of effects that are rows there, written by the one `Statement` that they return."""
        return cls(is_transactional=True, is_one_statement=True)

    def __post_init__(self) -> None:
        """Refuse contradictions.

        Raises:
            ContradictoryDeclaration: two declarations cannot both be true, or one is not what it must be.
        """
        self._check_types()
        if self.is_transactional and (self.key_lifetime is not None or self.lookup is not None):
            raise ContradictoryDeclaration(
                "A transactional provider needs neither a key nor a look-up: leave them out."
            )
        if self.is_one_statement and not self.is_transactional:
            raise ContradictoryDeclaration(
                "Provider(is_one_statement=True) without is_transactional=True: write Provider.one_statement()."
            )
        if self.on_absent not in ("retry", "review"):  # a set has words of its own for what has no hash
            raise ContradictoryDeclaration(f"Provider(on_absent={self.on_absent!r}): write 'retry' or 'review'.")
        if self.lookup is None and self.lookup_lag is not None:
            raise ContradictoryDeclaration("Provider(lookup_lag=...) without lookup=: name the look-up, too.")
        if self.lookup is not None and self.lookup_lag is None and self.on_absent == "retry":
            raise ContradictoryDeclaration(
                "Provider(lookup=...) would send again on a 'no' without saying how long a 'no' may be wrong. State"
                " lookup_lag='30s' (or '0s' if an accepted effect is visible at once), or on_absent='review'."
            )
        if self.key_length < SHORTEST_KEY:
            raise ContradictoryDeclaration(
                f"Provider(key_length={self.key_length}): fewer than {SHORTEST_KEY} characters cannot keep keys apart."
            )

    def _check_types(self) -> None:
        for name in ("lookup", "classify"):
            if getattr(self, name) is not None:
                DECLARED.function(f"Provider({name}=...)", getattr(self, name))
        DECLARED.number("Provider(key_length=...)", self.key_length)
        DECLARED.flag("Provider(is_transactional=...)", self.is_transactional)
        DECLARED.flag("Provider(is_one_statement=...)", self.is_one_statement)

    @property
    def asking(self) -> Lookup:
        """Return the look-up; decisions ask for it only where one is declared."""
        if self.lookup is None:
            raise LookupError("this provider cannot be asked")
        return self.lookup

    @property
    def has_async_lookup(self) -> bool:
        """Say whether its look-up must be awaited."""
        return inspect.iscoroutinefunction(self.lookup)

    def key_for(self, key: OperationKey) -> str:
        """Return the idempotency key for an operation: derived, so that it survives a restore, and short enough."""
        return provider_key(key, self.key_length)

    def facts(self, *, time_limit: int, lease: int) -> ProviderFacts:
        """Return the declaration in milliseconds, as it is stored with each operation."""
        return ProviderFacts(
            transactional=self.is_transactional,
            key_lifetime=_ms(self.key_lifetime, "key_lifetime"),
            key_length=min(self.key_length, KEY_LENGTH),
            queryable=self.lookup is not None,
            lookup_lag=_ms(self.lookup_lag, "lookup_lag"),
            retry_on_absent=self.on_absent == "retry",
            time_limit=time_limit,
            lease=lease,
        )


OPAQUE = Provider()
"""The provider that neither honours a key nor can be asked."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One set of arguments, ready to be performed: checked, digested and with its operation id.

    The digests are made of those that differ from their defaults.
    """

    key: OperationKey
    arguments: Mapping[str, Any]
    digests: codec.Digests
    payload: bytes

    @property
    def distinct(self) -> Mapping[str, Any]:
        """Return the arguments that the digests are made of."""
        return {name: self.arguments[name] for name in self.digests.parts}


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
        self._default_forms: dict[str, bytes] = {}
        self.key: Template
        self.facts: ProviderFacts
        self.not_identity: frozenset[str] = frozenset()
        self.redact: tuple[str, ...] = ()
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
        key = OperationKey(
            tenant=validate_id("tenant", trusted.tenant),
            operation_id=self._operation_id({**self.defaults, **arguments}, trusted),
        )
        parts = codec.canonical_parts(arguments)
        for name in self.defaults.keys() & parts.keys():  # one that equals its default is left out of the identity,
            if parts[name].value == self._default_form(name):  # so that a new argument changes no operation
                del parts[name]
        digests = codec.digest_parts(parts, not_identity=self.not_identity, salt=secrets.token_bytes(16))
        return Bound(key, arguments, digests, codec.encode(arguments))

    def _operation_id(self, arguments: Mapping[str, Any], trusted: Trusted) -> str:
        plain = self.key.render(arguments, trusted.fields())
        return plain if trusted.branch is None else validate_id("operation id", marked(plain, trusted.branch))

    def rehydrate(self, payload: bytes) -> dict[str, Any]:
        """Return stored arguments; dataclasses, models and enums are made anew from the declared types."""
        return rebuild_arguments(self.function, codec.decode(payload))

    def _arguments(self, given: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
        check_trusted(given, fields)
        filled = {name: fields[name] for name in self.filled_in if name in fields}
        arguments = {**given, **filled}
        if unknown := sorted(arguments.keys() - self.parameters.keys()):
            raise InvalidArguments(
                f"The effect {self.name} has no argument {', '.join(unknown)}; it takes {', '.join(self.parameters)}."
            )
        if missing := sorted(self.required - arguments.keys()):
            raise InvalidArguments(f"The effect {self.name} needs the argument {', '.join(missing)}.")
        return arguments

    def _default_form(self, name: str) -> bytes:
        """Return a default's canonical form, made when it is first compared: declaring an effect loads no encoder."""
        if (form := self._default_forms.get(name)) is None:
            form = self._default_forms[name] = codec.canonical(self.defaults[name], f"$.{name}")
        return form


class Declare(Protocol):
    """What `effect(...)` returns: the decorator, which keeps the type that the effect returns."""

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> Effect[R]: ...

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
        _refuse_contradictions(made, require_key=require_key)
        return REGISTRY.add(made)

    return declare


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


# --- checks at import ------------------------------------------------------------------------------------------------


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
    if caught := ambiguous((*made.not_sent, *made.refused)):
        raise ContradictoryDeclaration(
            f"The effect {made.name} declares {', '.join(caught)} to mean that nothing happened, but it also catches"
            " time-outs or lost replies, after which nobody knows. Name the narrower exceptions."
        )


def _ms(value: Duration | None, what: str) -> int | None:
    return None if value is None else milliseconds(value, what)


def answer_type(answer: object) -> LookupAnswer | None:
    """Return a look-up's answer if it is one of the three, else None."""
    return answer if isinstance(answer, LookupAnswer) else None
