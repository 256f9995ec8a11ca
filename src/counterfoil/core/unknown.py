"""What may be done with an attempt whose outcome nobody knows: a function of declared facts and times."""

from __future__ import annotations

from dataclasses import dataclass, replace

from counterfoil.model import Absent, CannotTell, Found, LookupAnswer, ProviderFacts

KEY_MARGIN_MS = 60_000
"""Kept back from a provider's key lifetime: covers clock skew and a send that was slow to leave."""


UNPERMITTED = "its approval ran out, so that it is not sent again under its key"
"""Why a person decides about an outcome that its provider's key alone would let be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When the operation was first tried, when its last attempt must be over, and the time now."""

    first_attempt_at: int
    attempt_deadline: int
    now: int


@dataclass(frozen=True, slots=True)
class AskProvider:
    """The provider can be asked; `asked_at` is the time from which its answer counts."""

    asked_at: int


@dataclass(frozen=True, slots=True)
class Resend:
    """The provider honours the key until `until`: sending again under the same key is harmless."""

    until: int


@dataclass(frozen=True, slots=True)
class AskAgainAt:
    """A look-up said no, too early to count; from `at` on a no proves absence."""

    at: int


@dataclass(frozen=True, slots=True)
class PersonDecides:
    """Nothing that a machine may do settles it."""

    why: str


UnknownPlan = AskProvider | Resend | AskAgainAt | PersonDecides


@dataclass(frozen=True, slots=True)
class Happened:
    """The provider holds the effect."""

    answer: Found


@dataclass(frozen=True, slots=True)
class ProvedAbsent:
    """The provider does not hold the effect, asked late enough to count; `retry` says whether to try again."""

    retry: bool


AnswerPlan = Happened | ProvedAbsent | Resend | AskAgainAt | PersonDecides


def still_holding(begun: ProviderFacts, now: ProviderFacts) -> ProviderFacts:
    """Return what holds of an operation whose provider may be declared otherwise by now.

    The declaration of now counts, but for the key: it covers the first attempt only if that was sent under it.
    """
    if begun == now:
        return now
    if begun.key_lifetime is None or now.key_lifetime is None or begun.key_length != now.key_length:
        return replace(now, key_lifetime=None)
    return replace(now, key_lifetime=min(begun.key_lifetime, now.key_lifetime))


def key_valid_until(facts: ProviderFacts, first_attempt_at: int) -> int | None:
    """Return until when a resend under the key may begin, or None without a key.

    Counted from the *first* attempt, less the time limit (the resend itself may take that long) and a margin.
    """
    if facts.key_lifetime is None:
        return None
    return first_attempt_at + facts.key_lifetime - facts.time_limit - KEY_MARGIN_MS


def all_under_key(facts: ProviderFacts, *, first_attempt_at: int, now: int) -> bool:
    """Say whether every attempt until now was sent while the provider honoured the key: then they are one."""
    return facts.key_lifetime is not None and now < first_attempt_at + facts.key_lifetime


def resend_plan(facts: ProviderFacts, times: Times) -> Resend | None:
    """Return the permission to send again under the key, if there is one now."""
    until = key_valid_until(facts, times.first_attempt_at)
    return Resend(until) if until is not None and times.now < until else None


def absence_counts_from(facts: ProviderFacts, times: Times) -> int | None:
    """Return from when on a look-up's no proves absence, or None if it never does.

    Later than the attempt's deadline plus the look-up's own lag: before that the effect may still arrive or may not
    be visible yet. Without a stated lag a no never proves anything.
    """
    if facts.lookup_lag is None:
        return None
    return times.attempt_deadline + facts.lookup_lag


def decide_unknown(facts: ProviderFacts, times: Times) -> UnknownPlan:
    """Decide what to do first with an unknown outcome: ask, send again under the key, or call a person."""
    if facts.queryable:
        return AskProvider(times.now)
    if resend := resend_plan(facts, times):
        return resend
    if facts.key_lifetime is not None:
        return PersonDecides("the provider's key lifetime is over and it cannot be asked")
    return PersonDecides("the provider neither honours a key nor can be asked")


def decide_answer(answer: LookupAnswer, *, asked_at: int, facts: ProviderFacts, times: Times) -> AnswerPlan:
    """Decide what a look-up's answer means; `asked_at` is the time *before* the question was put."""
    match answer:
        case Found():
            return Happened(answer)
        case Absent():
            return _absent(asked_at, facts, times)
        case CannotTell(reason):
            told = f": {reason}" if reason else ""
            return resend_plan(facts, times) or PersonDecides(f"the provider cannot tell{told}")


def _absent(asked_at: int, facts: ProviderFacts, times: Times) -> AnswerPlan:
    counts_from = absence_counts_from(facts, times)
    if counts_from is not None and asked_at > counts_from:
        return (
            ProvedAbsent(retry=True) if facts.retry_on_absent else PersonDecides("it is absent; retry is not declared")
        )
    if resend := resend_plan(facts, times):
        return resend
    if counts_from is not None:
        return AskAgainAt(counts_from + 1)
    return PersonDecides("the look-up found nothing, but states no lag, so its no proves nothing")
