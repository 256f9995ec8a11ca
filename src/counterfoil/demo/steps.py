"""What goes into a demo process and what comes out of it: plain data, light to import."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Column = Literal["plain", "counterfoil"]
COLUMNS: Final[tuple[Column, ...]] = ("plain", "counterfoil")


APPROVE, REJECT = "approve", "reject"


@dataclass(frozen=True, slots=True)
class Start:
    """Send a new input to the thread."""

    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GoOn:
    """Resume the thread with None: from its newest checkpoint, or from the one before the node `back_to`."""

    back_to: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Resume the thread's interrupt with a person's answer."""

    value: Any


@dataclass(frozen=True, slots=True)
class Decide:
    """Decide as a person who is asked for a permission: `APPROVE` or `REJECT`."""

    ruling: str


Given = Start | GoOn | Answer | Decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of the graph in a process of its own; `database` is Counterfoil's URL, or the file of plain LangGraph."""

    column: Column
    url: str
    database: str
    given: Given = GoOn()
    tenant: str
    tenant_prefix: str = ""
    request_id: str
    thread_id: str
    opaque: bool = False
    reviewed: bool = False
    mail_works: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a run ended, and what its effect line saw.

    `end` is `finished`, `waiting` (a person is asked), `parked` (an outcome is unknown), `killed`, `failed`, or the
    code of a Counterfoil error. `calls` counts the entries into the line with the effect, `receipts` holds the ticket
    ids it returned and `sources` where Counterfoil took them from.
    """

    end: str
    detail: str = ""
    calls: int = 0
    receipts: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(slots=True)
class Trace:
    """Notes what the line with the effect sees while a run goes on."""

    calls: int = 0
    receipts: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def watch(self, open_ticket: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
        """Wrap the line with the effect."""

        def watched(title: str) -> dict[str, Any]:
            self.calls += 1
            ticket = open_ticket(title)
            self.receipts.append(ticket["id"])
            return ticket

        return watched

    def report(self, end: str, detail: str = "") -> Report:
        """Close the notes."""
        return Report(
            end=end,
            detail=detail,
            calls=self.calls,
            receipts=tuple(self.receipts),
            sources=tuple(self.sources),
        )
