"""Name every fault the counting provider can commit, and what it does, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

FaultName = Literal[
    "refuse-400",
    "refuse-402",
    "busy-429",
    "unavailable-503",
    "error-500-before-accept",
    "error-500-after-accept",
    "drop-before-accept",
    "drop-reply",
    "reset-reply",
    "cut-reply",
    "hold-before-accept",
    "hold",
    "kill-client",
]

Ending = Literal["answer", "fin", "rst", "cut", "kill"]
"""How the exchange ends: in full, closed, reset, closed half-way, or client killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Order one fault for the next POST of this kind and key (None: of any)."""

    name: FaultName
    kind: str | None = None
    key: str | None = None

    def matches(self, kind: str, key: str | None) -> bool:
        """Say whether a POST of this kind and key triggers the fault."""
        return self.kind in (None, kind) and self.key in (None, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Describe an error answer; `promise` says in it that nothing was accepted."""

    status: int
    code: str
    promise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Say what the provider does with one POST."""

    accepts: bool = True
    hold: Literal["before", "after"] | None = None
    problem: Problem | None = None
    ending: Ending = "answer"


def _refused(status: int, code: str) -> Behaviour:
    problem = Problem(status=status, code=code, promise=True)
    return Behaviour(accepts=False, problem=problem)


# A 500 promises nothing: the caller cannot tell the two of them apart.
_BROKEN: Final = Problem(status=500, code="internal-error")

FAIR: Final = Behaviour()

BEHAVIOURS: Final[Mapping[FaultName, Behaviour]] = {
    "refuse-400": _refused(400, "invalid-request"),
    "refuse-402": _refused(402, "payment-required"),
    "busy-429": _refused(429, "too-many-requests"),
    "unavailable-503": _refused(503, "unavailable"),
    "error-500-before-accept": Behaviour(accepts=False, problem=_BROKEN),
    "error-500-after-accept": Behaviour(problem=_BROKEN),
    "drop-before-accept": Behaviour(accepts=False, ending="fin"),
    "drop-reply": Behaviour(ending="fin"),
    "reset-reply": Behaviour(ending="rst"),
    "cut-reply": Behaviour(ending="cut"),
    "hold-before-accept": Behaviour(hold="before"),
    "hold": Behaviour(hold="after"),
    "kill-client": Behaviour(ending="kill"),
}
