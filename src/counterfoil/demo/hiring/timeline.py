"""What happens around the workflow on which day, and how a person settles what nobody knows: plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from counterfoil.demo.hiring.screening import CVS, handed_in
from counterfoil.testing.clock import START_MS

WORKFLOW: Final = "hiring-1"
CENTS: Final = 250_000
CANDIDATES: Final = ("ann", "bob", "cy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event as its sender knows it."""

    event: str
    event_id: str
    subject: str
    payload: Mapping[str, Any]
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment in which something comes or is due; `after` is the time since the one before."""

    label: str
    after: str = "0s"
    early: tuple[Told, ...] = ()
    starts: bool = False
    events: tuple[Told, ...] = ()


ANNS_TIME: Final = Told(event="slot", event_id="s-1", subject="ann", payload={"at": "2026-01-02T10:00:00+00:00"})
BOBS_TIME: Final = Told(event="slot", event_id="s-2", subject="bob", payload={"at": "2026-01-03T10:00:00+00:00"})
ANNS_GRADE: Final = Told(event="feedback", event_id="f-2", subject="ann", payload={"grade": 5}, sequence=2)
ANNS_OLD_GRADE: Final = Told(event="feedback", event_id="f-1", subject="ann", payload={"grade": 1}, sequence=1)
BOBS_LATE_GRADE: Final = Told(event="feedback", event_id="f-3", subject="bob", payload={"grade": 4}, sequence=1)

MOMENTS: Final = (
    # ann's time comes before the workflow is started
    Moment(label="start", early=(ANNS_TIME,), starts=True),
    # her time again, and feedback long before anybody waits for it
    Moment(label="day 1, early and double events", after="2h", events=(ANNS_TIME, ANNS_GRADE)),
    # an older feedback after the newer one; bob has not answered for a day
    Moment(label="day 2, a time-out", after="24h", events=(ANNS_OLD_GRADE,)),
    Moment(label="day 2, bob's time", after="4h", events=(BOBS_TIME,)),
    # the interviews are over: ann's feedback is there, bob's is waited for
    Moment(label="day 3, after the interviews", after="30h", events=(ANNS_GRADE,)),
    # nobody said anything of bob for three days
    Moment(label="day 6, three days later", after="73h"),
    Moment(label="day 7, after the end", after="24h", events=(BOBS_LATE_GRADE,)),
)
BEGINNING_MS: Final = START_MS


def given() -> dict[str, Any]:
    """Return what the workflow is started with."""
    cvs = [handed_in(name, f"{name}@example.org", CVS / f"{name}.txt") for name in CANDIDATES]
    return {"fee_cents": CENTS, "cvs": cvs}
