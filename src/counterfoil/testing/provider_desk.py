"""Count what the provider accepted, remember its keys, and keep its faults and holds."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from threading import Condition
from typing import Any, Final

from counterfoil.testing.provider_faults import BEHAVIOURS, FAIR, Behaviour, Fault

# Any: effects carry whatever JSON the test sends; the provider only counts it.
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Say how good a provider it is; `lag` and `key_lifetime` are seconds."""

    keys: bool = True
    lookup: bool = True
    lag: float = 0.0
    key_lifetime: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Hold one POST as it arrived, accepted or not."""

    kind: str
    body: JsonObject
    key: str | None = None
    request_id: str | None = None
    tenant: str | None = None
    client_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Record one accepted effect: `number` counts all, `id` counts its kind."""

    number: int
    id: int
    kind: str
    key: str | None
    request_id: str | None
    tenant: str | None
    body: JsonObject
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Name a POST whose answer is withheld until it is released."""

    kind: str
    key: str | None
    request_id: str | None
    accepted: bool


@dataclass(slots=True, kw_only=True)
class Claim:
    """Carry a submission from its admission to its answer."""

    submission: Submission
    epoch: int
    since: float
    accepted: Accepted | None = None
    in_progress: bool = True


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Refuse a key that came before with another kind or body."""


@dataclass(frozen=True, slots=True)
class Twin:
    """Refuse a key whose first POST is still being answered."""


class Desk:
    """Keep the provider's whole state under one condition."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the desk with the settings that `reset` comes back to."""
        self._initial: Final = settings
        self._clock: Final = clock
        self._changed: Final = Condition()
        self._epoch = 0
        self._clear()

    def _clear(self) -> None:
        self.settings = self._initial
        self._advanced = 0.0
        self._received = 0
        self._accepted: list[Accepted] = []
        self._claims: dict[str, Claim] = {}
        self._faults: list[Fault] = []
        self._held: list[Held] = []

    def _now(self) -> float:
        return self._clock() + self._advanced

    # -- submissions

    def arrive(self, submission: Submission) -> Behaviour:
        """Count an arrival and consume the first fault that matches it."""
        with self._changed:
            self._received += 1
            for fault in self._faults:
                if fault.matches(submission.kind, submission.key):
                    self._faults.remove(fault)
                    return BEHAVIOURS[fault.name]
            return FAIR

    def admit(self, submission: Submission) -> Claim | Mismatch | Twin:
        """Claim the submission's key, or say why it must not be accepted."""
        with self._changed:
            first = self._remembered(submission.key)
            if first is None:
                return self._claim(submission)
            if _meaning(first.submission) != _meaning(submission):
                return Mismatch()
            return Twin() if first.in_progress else first

    def _remembered(self, key: str | None) -> Claim | None:
        claim = self._claims.get(key) if key is not None else None
        lifetime = self.settings.key_lifetime
        if claim is None or not self.settings.keys:
            return None
        forgotten = lifetime is not None and self._now() - claim.since >= lifetime
        return None if forgotten else claim

    def _claim(self, submission: Submission) -> Claim:
        claim = Claim(submission=submission, epoch=self._epoch, since=self._now())
        if submission.key is not None and self.settings.keys:
            self._claims[submission.key] = claim
        return claim

    def accept(self, claim: Claim) -> Accepted | None:
        """Accept a claim once; return None if a reset has made it void."""
        with self._changed:
            if claim.epoch != self._epoch:
                return None
            if claim.accepted is None:
                claim.accepted = self._number(claim.submission)
                self._accepted.append(claim.accepted)
                self._changed.notify_all()
            return claim.accepted

    def _number(self, submission: Submission) -> Accepted:
        same_kind = sum(one.kind == submission.kind for one in self._accepted)
        return Accepted(
            number=len(self._accepted) + 1,
            id=same_kind + 1,
            kind=submission.kind,
            key=submission.key,
            request_id=submission.request_id,
            tenant=submission.tenant,
            body=submission.body,
            at=self._now(),
        )

    def conclude(self, claim: Claim) -> None:
        """End a claim's progress: a later POST under its key gets the same answer."""
        with self._changed:
            claim.in_progress = False

    # -- holds

    def hold(self, claim: Claim) -> None:
        """Block until this claim is released or the desk is reset."""
        seen = claim.submission
        held = Held(
            kind=seen.kind,
            key=seen.key,
            request_id=seen.request_id,
            accepted=claim.accepted is not None,
        )
        with self._changed:
            if claim.epoch != self._epoch:
                return
            self._held.append(held)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not _contains(self._held, held))

    def wait_held(self, count: int, wait: float) -> list[Held]:
        """Return the held POSTs as soon as there are `count`, or after `wait`."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) >= count, timeout=wait)
            return list(self._held)

    def release(self, key: str | None) -> int:
        """Release the POSTs held under this key (None: all) and count them."""
        with self._changed:
            kept = [held for held in self._held if key not in (None, held.key)]
            released = len(self._held) - len(kept)
            self._held = kept
            self._changed.notify_all()
            return released

    # -- questions

    def find(self, kind: str, key: str | None, request_id: str | None) -> list[Accepted]:
        """Return the accepted effects a look-up may see by now."""
        with self._changed:
            visible = self._now() - self.settings.lag
            return [
                one
                for one in self._accepted
                if one.kind == kind
                and key in (None, one.key)
                and request_id in (None, one.request_id)
                and one.at <= visible
            ]

    def count(self, total: int, wait: float) -> JsonObject:
        """Count what was accepted, as soon as it is `total` or after `wait`."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._accepted) >= total, timeout=wait)
            accepted = list(self._accepted)
            received = self._received
        return {
            "total": len(accepted),
            "received": received,
            "kinds": Counter(one.kind for one in accepted),
            "keys": _counted(one.key for one in accepted),
            "request_ids": _counted(one.request_id for one in accepted),
            "tenants": _counted(one.tenant for one in accepted),
            "accepted": [asdict(one) for one in accepted],
        }

    # -- orders

    def order(self, faults: Iterable[Fault]) -> None:
        """Queue one-shot faults behind those already ordered."""
        with self._changed:
            self._faults.extend(faults)

    def configure(self, settings: Settings) -> None:
        """Replace the settings."""
        with self._changed:
            self.settings = settings

    def advance(self, seconds: float) -> None:
        """Move the provider's clock forward, for lags and key lifetimes."""
        with self._changed:
            self._advanced += seconds

    def reset(self) -> None:
        """Forget everything; whatever is still held is let go and accepted nowhere."""
        with self._changed:
            self._epoch += 1
            self._clear()
            self._changed.notify_all()


def _meaning(submission: Submission) -> tuple[str, str]:
    # As text: Python holds True and 1 for equal, JSON does not.
    return submission.kind, json.dumps(submission.body, sort_keys=True)


def _contains(held: list[Held], one: Held) -> bool:
    # By identity: two equal POSTs may be held at once and released apart.
    return any(candidate is one for candidate in held)


def _counted(values: Iterable[str | None]) -> Counter[str]:
    return Counter(value for value in values if value is not None)
