"""What both colours of Counterfoil share: the store, the resources, the heartbeats, and how a job is made."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from counterfoil import codec
from counterfoil.activity import Activity
from counterfoil.bell import Bell
from counterfoil.core.arguments import CALLED
from counterfoil.core.branches import branch_of, thread_in_keys
from counterfoil.core.durations import Duration, milliseconds
from counterfoil.core.templates import validate_id
from counterfoil.drivers.stores import open_store
from counterfoil.drivers.urls import parse_url
from counterfoil.effects import Bound, Effect, EffectCall
from counterfoil.errors import InvalidArguments, TenantMissing
from counterfoil.heartbeats import Heartbeats
from counterfoil.keeping import FOREVER, Retention, refuse_too_short
from counterfoil.liveness import holder_name
from counterfoil.model import OperationKey, Origin, Trusted
from counterfoil.performing import Job
from counterfoil.resources import Resources
from counterfoil.storage.scripts.claims import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.clock import Clock
    from counterfoil.core.outbox import Terms
    from counterfoil.drivers.probes import Probe
    from counterfoil.storage.script import Row
    from counterfoil.storage.store import AsyncStore, Store

T = TypeVar("T")

NOWHERE = Origin()
EMBEDDED = "embedded"
"""The engine that is there always: a search of the rows."""


class AtWork(Protocol):
    """A worker that a block keeps; both from any thread."""

    def stop(self) -> None:
        """Tell it to claim nothing more."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until it has finished what is under way, no longer than this."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """One opened database and all that goes with it."""

    store: Store
    async_store: AsyncStore
    wait_ms: int
    resources: Resources = field(default_factory=Resources)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    holder: str = field(default_factory=holder_name)
    entries: itertools.count[int] = field(default_factory=itertools.count)
    bell: Bell = field(default_factory=Bell)
    """Rings where something was enqueued in this process."""
    activity: Activity = field(init=False)
    retention: Retention = FOREVER
    engine: str = EMBEDDED
    """What wakes workflows, by name."""
    strict: bool = False
    """Whether operations must have been granted beforehand."""
    graphs: dict[tuple[str, int], Any] = field(default_factory=dict)
    """The graphs that workflows run, by name and version."""
    at_work: set[AtWork] = field(default_factory=set)
    """The workers that blocks of this process keep."""
    fitting: set[Effect[Any]] = field(default_factory=set)
    """Effects that this retention suits; those declared later are looked at when they are first asked for."""

    def __post_init__(self) -> None:
        """Keep a list of who is at work, by the names of this desk's holders."""
        object.__setattr__(self, "activity", Activity(self.holder))

    def wait_until_idle(self, seconds: float) -> None:
        """End the workers and wait for the entries that are under way; in a forked child they are the parent's."""
        if self.store.forked:
            return
        until = time.monotonic() + seconds
        workers = tuple(self.at_work)
        for each in workers:
            each.stop()
        for each in workers:
            each.wait(max(0.0, until - time.monotonic()))
        self.activity.wait_until_idle(max(0.0, until - time.monotonic()))

    def job(self, effect: Effect[Any], given: Mapping[str, Any], trusted: Trusted, origin: Origin) -> Job:
        """Check the arguments and make one entry into `perform`.

        Raises:
            UsageError: the caller's code is wrong; the class says how.
        """
        check_effect(effect)
        CALLED.arguments("the arguments", given)
        if self.retention is not FOREVER and effect not in self.fitting:
            self.check_retention(effect, effect.delivery.usual)
            self.fitting.add(effect)
        if not trusted.tenant:
            raise TenantMissing(
                f"The effect {effect.name} was asked for without a tenant, so its operation could not be told from"
                " another tenant's. Pass tenant='...' where the run is entered: cf.perform(..., tenant=...) or"
                " cf.run(graph, input, tenant=...). A program with one tenant names it once, for example 'default'."
            )
        for name, value in trusted.fields().items():
            validate_id(name, value)
        bound = effect.bind(given, trusted)
        if effect.approval is not None:  # what the policy sees is what is sent, whoever alters the caller's objects
            bound = replace(bound, arguments=effect.apart(bound.arguments, bound.payload))
        request = self._request(effect, bound, trusted, origin)
        if effect.approval is not None:
            request = replace(request, gate=effect.gate(bound.arguments))
        return Job(effect, bound, request, partial(self._call, bound, trusted), follow=self._follower)

    def _follower(self, job: Job, row: Row) -> Job:
        """Return the entry into an operation that follows an edited one, for the same asker; it has its own content."""
        following = self.stored_job(job.effect, row)
        request = replace(following.request, gate=job.request.gate, asker=job.request.asker)
        return replace(following, request=request, follow=job.follow)

    def check_retention(self, effect: Effect[Any], terms: Terms) -> None:
        """Refuse terms under which an operation could be tried longer than it is remembered.

        Raises:
            ContradictoryDeclaration: they could.
        """
        if self.retention is FOREVER and effect.retention is FOREVER:
            return
        refuse_too_short(effect.name, effect.retention.periods.over(self.retention.periods), effect.facts, terms)

    def stored_job(self, effect: Effect[Any], row: Row) -> Job:
        """Make an entry for an operation as it is stored; its arguments are made anew from the stored payload."""
        trusted = stored_trusted(row)
        digests = codec.Digests(identity=row["identity_digest"], content=row["content_digest"], parts={}, salt=b"")
        key = OperationKey(tenant=row["tenant"], operation_id=row["operation_id"])
        bound = Bound(key, {}, digests, row["payload"] or b"")
        request = self._request(effect, bound, trusted, NOWHERE)
        return Job(effect, bound, request, partial(self._call, bound, trusted), went_back=True)

    def _request(self, effect: Effect[Any], bound: Bound, trusted: Trusted, origin: Origin) -> Request:
        return Request(
            key=bound.key,
            effect=effect.name,
            effect_version=effect.version,
            facts=effect.facts,
            digests=bound.digests,
            payload=bound.payload,
            # unique per entry, so that a claim whose COMMIT nobody heard of can be looked up by it
            holder=f"{self.holder}/{next(self.entries)}",
            trusted=trusted,
            origin=origin,
            asker=origin.task_id or "",
            strict=self.strict,
        )

    def _call(
        self, bound: Bound, trusted: Trusted, effect: Effect[Any], attempt: int, *, sends_once: bool
    ) -> EffectCall:
        return EffectCall(
            tenant=bound.key.tenant,
            operation_id=bound.key.operation_id,
            attempt=attempt,
            time_limit=effect.facts.time_limit / 1000,
            trusted=trusted,
            resources=self.resources,
            _key_length=effect.facts.key_length,
            sends_once=sends_once,
        )


def stored_trusted(row: Row) -> Trusted:
    """Return the trusted context that an operation was asked for in."""
    branch = branch_of(row["operation_id"])
    return Trusted(
        tenant=row["tenant"],
        request_id=row["request_id"],
        workflow_id=row["workflow_id"],
        principal=row["principal"],
        thread_id=thread_in_keys(row["thread_id"], branch),
        branch=branch,
    )


def check_effect(effect: object) -> None:
    """Refuse a plain function where an effect is wanted.

    Raises:
        InvalidArguments: it is not a declared effect.
    """
    if not isinstance(effect, Effect):
        raise InvalidArguments(
            f"A declared effect is wanted, not {getattr(effect, '__name__', type(effect).__name__)!r}. Put"
            ' @effect("name", key="{request_id}/...") above the function.'
        )


def open_desk(  # noqa: PLR0913 - see Counterfoil.open
    url: str,
    *,
    wait: Duration,
    upgrade: bool,
    clock: Clock | None,
    probe: Probe | None,
    network_filesystem: bool,
    connections: int | None,
    retention: Retention,
    engine: str,
    strict: bool,
) -> Desk:
    """Open a database, make its schema if it is new, and refuse one that does not fit this code."""
    from counterfoil.purging import check_declared  # noqa: PLC0415 - few are opened with a retention

    if not isinstance(retention, Retention):
        raise InvalidArguments(
            f"retention is {retention!r}; write retention=Retention(receipt='400d'), or leave it out."
        )
    if retention is not FOREVER:
        check_declared(retention)
    store = open_store(
        parse_url(url), clock=clock, probe=probe, network_filesystem=network_filesystem, connections=connections
    )
    try:
        store.migrate(upgrade=upgrade)
        patience = milliseconds(wait, "wait")
        desk = Desk(store, store.awaiting(), patience, retention=retention, engine=engine, strict=strict)
        if engine != EMBEDDED:
            _tell(desk, engine)
    except BaseException:
        store.close()
        raise
    return desk


def _tell(desk: Desk, engine: str) -> None:
    """Let an engine be told of workflows that can be entered."""
    from counterfoil.engine.choosing import chosen  # noqa: PLC0415 - most programs leave it to a search

    chosen(desk, engine)
