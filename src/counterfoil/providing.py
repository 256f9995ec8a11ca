"""What the downstream that executes an effect can do, as its author declares it, and what its look-up answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterfoil.core.arguments import DECLARED
from counterfoil.core.durations import Duration, milliseconds
from counterfoil.core.provider_key import KEY_LENGTH, SHORTEST_KEY, provider_key
from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import ContradictoryDeclaration
from counterfoil.model import LookupAnswer, OperationKey, ProviderFacts, Refused

Lookup = Callable[..., Any]
Classifier = Callable[[BaseException], AttemptOutcome | Refused | None]


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
        concurrency: How many attempts a dispatcher makes at once, of all effects that share this object.
        rate: How many attempts it begins in a time, such as `"10/s"` or `"100/1m"`.
    """

    key_lifetime: Duration | None = None
    lookup: Lookup | None = None
    lookup_lag: Duration | None = None
    on_absent: str = "retry"
    key_length: int = 255
    classify: Classifier | None = None
    concurrency: int | None = None
    rate: str | None = None
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
        if self.concurrency is not None:
            DECLARED.number("Provider(concurrency=...)", self.concurrency, least=1)
        if self.rate is not None:
            DECLARED.text("Provider(rate=...)", self.rate)
            _rate(self.rate)
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

    @property
    def sends_per_second(self) -> float | None:
        """Return how many attempts a dispatcher may begin in a second, or None without a limit."""
        return None if self.rate is None else _rate(self.rate)

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


_LONGEST_NUMBER = 9
FOREVER = float("inf")

OPAQUE = Provider()
"""The provider that neither honours a key nor can be asked."""


def _ms(value: Duration | None, what: str) -> int | None:
    return None if value is None else milliseconds(value, what)


def _rate(text: str) -> float:
    number, _, period = text.partition("/")
    unit = period if period[:1].isdigit() else f"1{period}"
    if not number.isascii() or not number.isdigit() or len(number) > _LONGEST_NUMBER or not period:
        raise ContradictoryDeclaration(f"Provider(rate={text!r}): write a number and a time, such as '10/s'.")
    rate = int(number) * 1000 / (milliseconds(unit, "Provider(rate=...)") or FOREVER)
    if rate <= 0:
        raise ContradictoryDeclaration(f"Provider(rate={text!r}) lets nothing through: write at least one.")
    return rate


def answer_type(answer: object) -> LookupAnswer | None:
    """Return a look-up's answer if it is one of the three, else None."""
    return answer if isinstance(answer, LookupAnswer) else None
