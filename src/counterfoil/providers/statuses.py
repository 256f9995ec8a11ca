"""What an HTTP status means for an effect: a fixed table, and what one provider declares otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import ContradictoryDeclaration
from counterfoil.model import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing: to repeat one is nobody's harm."""

NOT_SENT: Final = frozenset({429, 503})
"""The provider says that it did nothing and may be asked again later."""

REFUSED: Final = frozenset(
    {
        400,
        401,
        402,
        403,
        404,
        405,
        406,
        407,
        410,
        411,
        412,
        413,
        414,
        415,
        416,
        417,
        421,
        422,
        423,
        424,
        426,
        428,
        431,
        451,
    }
)
"""The provider says that it will not do this, and that asking again changes nothing."""

JUDGED: Final = frozenset({400, 402, 422})
"""Refusals of the content: a provider that honours keys has looked for the key by then, so they cover earlier attempts
under it. Others come from the door: they say nothing of an earlier attempt whose reply was lost."""

TIMED_OUT: Final = frozenset({408, 499, 504, 524, 598, 599})
"""Somebody gave up waiting: declared as "nothing happened", they would hide effects."""

USUAL_MISMATCH: Final = frozenset({422})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What one provider means by a status, where it differs from the fixed table.

    Without a declaration: 2xx succeeded; 429 and 503 not sent; the other 4xx that refuse a request refused; and 3xx,
    408, 409, 425, 5xx and whatever is not listed unknown.

    Args:
        succeeded: Statuses that say that the effect exists: 303 of a form, 409 of a resource under your own id.
        not_sent: Statuses with which the provider promises that it did nothing and may be asked again.
        refused: Statuses with which it refuses for good, having done nothing.
        unknown: Statuses that prove nothing.
        mismatch: Statuses that say that the key came before with other content; 422 by the IETF draft.

    Raises:
        ContradictoryDeclaration: a status is declared twice, is none, or would hide an effect.
    """

    succeeded: Collection[int] = frozenset()
    not_sent: Collection[int] = frozenset()
    refused: Collection[int] = frozenset()
    unknown: Collection[int] = frozenset()
    mismatch: Collection[int] = USUAL_MISMATCH

    def __post_init__(self) -> None:
        """Refuse contradictions when the module is imported."""
        for each in fields(self):
            object.__setattr__(self, each.name, _statuses(each.name, getattr(self, each.name)))
        if self.mismatch == USUAL_MISMATCH:  # the default gives way to what is declared
            object.__setattr__(self, "mismatch", USUAL_MISMATCH - self._declared_otherwise())
        _refuse_overlaps(self)
        _refuse_hidden_effects(self)

    def _declared_otherwise(self) -> frozenset[int]:
        return frozenset().union(self.succeeded, self.not_sent, self.refused, self.unknown)

    def outcome(self, status: int) -> AttemptOutcome:
        """Return what a status means."""
        for name, outcome in _DECLARED.items():
            if status in getattr(self, name):
                return outcome
        return standard(status)

    def is_mismatch(self, status: int) -> bool:
        """Say whether a status that refuses does so because the key came before with other content."""
        return status in self.mismatch


_DECLARED: Final = {
    "succeeded": AttemptOutcome.SUCCEEDED,
    "not_sent": AttemptOutcome.NOT_SENT,
    "refused": AttemptOutcome.REFUSED,
    "unknown": AttemptOutcome.UNKNOWN,
    "mismatch": AttemptOutcome.REFUSED,
}


def standard(status: int) -> AttemptOutcome:
    """Return what a status means where nothing is declared."""
    if 200 <= status < 300:  # noqa: PLR2004 - the class of statuses that say "done"
        return AttemptOutcome.SUCCEEDED
    if status in NOT_SENT:
        return AttemptOutcome.NOT_SENT
    return AttemptOutcome.REFUSED if status in REFUSED else AttemptOutcome.UNKNOWN


def judged(status: object, *, is_last_of_many: bool = False) -> AttemptOutcome | Refused:
    """Return what the status of a client's exception means; one that comes after others proves nothing of those."""
    outcome = standard(status) if isinstance(status, int) else AttemptOutcome.UNKNOWN
    if is_last_of_many or outcome is AttemptOutcome.SUCCEEDED:
        return AttemptOutcome.UNKNOWN
    if outcome is AttemptOutcome.REFUSED and status not in JUDGED:
        return Refused(covers_earlier=False)
    return outcome


def _statuses(name: str, given: object) -> frozenset[int]:
    statuses = frozenset(given) if isinstance(given, set | frozenset | list | tuple) else frozenset({None})
    if wrong := [each for each in statuses if type(each) is not int or not 100 <= each <= 599]:  # noqa: PLR2004
        raise ContradictoryDeclaration(
            f"Answers({name}=...) takes a set of HTTP statuses such as {{409}}; {wrong[0]!r} is none."
        )
    return frozenset(each for each in statuses if isinstance(each, int))


def _refuse_overlaps(answers: Answers) -> None:
    seen: dict[int, str] = {}
    for name in _DECLARED:
        for status in sorted(getattr(answers, name)):
            if status in seen:
                raise ContradictoryDeclaration(
                    f"Answers declares {status} as {seen[status]} and as {name}: it is one or the other."
                )
            seen[status] = name


def _refuse_hidden_effects(answers: Answers) -> None:
    harmless = frozenset().union(answers.not_sent, answers.refused, answers.mismatch)
    if hidden := sorted((harmless | frozenset(answers.succeeded)) & TIMED_OUT):
        raise ContradictoryDeclaration(
            f"Answers declares a meaning for {_listed(hidden)}, but that is a time-out: nobody knows. Leave it unknown;"
            " where the provider can be asked, declare a look-up."
        )
    if done := sorted(s for s in harmless | frozenset(answers.unknown) if standard(s) is AttemptOutcome.SUCCEEDED):
        raise ContradictoryDeclaration(
            f"Answers declares that {_listed(done)} does not mean success. Where a body says otherwise, read it in the"
            " effect and raise Refused or NotSent there."
        )


def _listed(statuses: Collection[int]) -> str:
    return ", ".join(map(str, statuses))
