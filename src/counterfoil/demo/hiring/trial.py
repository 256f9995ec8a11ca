"""One run of the hiring workflow, whose worker is killed at one place; what is left is counted from outside."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from counterfoil import Counterfoil
from counterfoil.demo.hiring.cuts import Cut, Idle, InCharge, InMail
from counterfoil.demo.hiring.office import Office, open_office
from counterfoil.demo.hiring.person import is_opaque, settle
from counterfoil.demo.hiring.timeline import BEGINNING_MS, MOMENTS, WORKFLOW, Moment, Told, given
from counterfoil.demo.hiring.worker import Drainer, Work
from counterfoil.demo.stage import PATIENCE_S, DemoBroken
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.mail_client import MailboxClient
from counterfoil.testing.mail_desk import MailFault
from counterfoil.testing.provider_client import ProviderClient
from counterfoil.testing.provider_desk import Settings
from counterfoil.testing.provider_faults import Fault

LATER: Final = "1m"
"""When the next worker looks, or a worker again: beyond every lease and pause, and before the next moment."""
SOON_MS: Final = 120_000
"""What is due within this time is due in this moment still."""
LIVING: Final = frozenset({"accepted", "running", "waiting"})
"""In which a workflow can go on."""
ROUNDS: Final = 12
"""Looks within one moment; a healthy run needs three at the most."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The mail server and the gateway, each in a process of its own."""

    mail: MailboxClient
    gateway: ProviderClient

    def reset(self, *, honours_keys: bool) -> None:
        """Empty both."""
        self.mail.reset()
        self.gateway.reset()
        self.gateway.configure(Settings(keys=honours_keys, lookup=honours_keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a moment did, as the undisturbed run saw it: where others can be killed."""

    committed: Mapping[str, int]
    mails: tuple[tuple[str, str], ...]
    charges: int
    operations: tuple[str, ...]
    opaque: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a run left: counted in the mailbox, at the gateway and in the database."""

    mails: Mapping[tuple[str, str], int]
    charges: int
    reviews: int
    state: Mapping[str, Any]
    done: tuple[Done, ...] = ()

    @property
    def mails_max(self) -> int:
        """Return how many mails of one round a candidate got at the most."""
        return max(self.mails.values(), default=0)


@dataclass(slots=True)
class Trial:
    """One run: a conductor that moves the time on and tells events, and workers that do what is due."""

    office: Office
    servers: Servers
    cut: Cut | None = None
    clock: FakeClock = field(default_factory=lambda: FakeClock(BEGINNING_MS))
    worker: Drainer | None = None
    killed: bool = False
    done: list[Done] = field(default_factory=list)

    def play(self) -> Left:
        """Play all moments.

        Raises:
            DemoBroken: the worker was not killed where it should have been, or did what nobody provided for.
        """
        self.servers.reset(honours_keys=self.office.honours_keys)
        with open_office(self.office, clock=self.clock) as cf:
            try:
                for number, moment in enumerate(MOMENTS):
                    self._come_to(cf, moment)
                    self._work(cf, number)
                if self.cut is not None and not self.killed:
                    raise DemoBroken(f"no worker came to {self.cut}")
                return self._left(cf)
            finally:
                self._end(cf)

    def _end(self, cf: Counterfoil) -> None:
        if self.worker is not None:
            self.worker.close()
        found = cf.workflows.list(tenant=self.office.tenant).items
        for one in found:
            if one.status in LIVING:  # no other run's worker may find it
                cf.workflows.cancel(one.workflow_id, tenant=one.tenant, by="demo", reason="the run is over")

    # --- a moment ----------------------------------------------------------------------------------------------------

    def _come_to(self, cf: Counterfoil, moment: Moment) -> None:
        self.clock.advance(moment.after)
        for event in moment.early:
            self._tell(cf, event)
        if moment.starts:
            cf.workflows.start(self.office.graph, given(), tenant=self.office.tenant, workflow_id=WORKFLOW)
        for event in moment.events:
            self._tell(cf, event)

    def _tell(self, cf: Counterfoil, event: Told) -> None:
        cf.workflows.deliver(
            event.event,
            tenant=self.office.tenant,
            workflow_id=WORKFLOW,
            event_id=event.event_id,
            subject=event.subject,
            sequence=event.sequence,
            payload=event.payload,
        )

    def _work(self, cf: Counterfoil, number: int) -> None:
        """Let workers look until nothing is to be done, by them or by a person."""
        cut = self.cut if self.cut is not None and self.cut.moment == number else None
        committed: Counter[str] = Counter()
        for _ in range(ROUNDS):
            ended = self._look(None if self.killed else cut)
            committed.update(ended or {})
            is_settled = settle(cf, self.office, self.servers.mail, self.servers.gateway)
            if ended is not None and not is_settled and not self._is_due_soon(cf):
                break
            self.clock.advance(LATER)
        else:
            raise DemoBroken(f"a workflow went on and on after {self.cut}")
        if self.cut is None:
            self._note(cf, committed)

    def _look(self, cut: Cut | None) -> dict[str, int] | None:
        if self.worker is None:
            self.worker = Drainer(self.office)
        self._hold(cut)
        self.worker.begin(Work(self.clock.now_ms(), cut))
        if isinstance(cut, InMail | InCharge):
            self._kill_held(cut, self.worker)
        ended = self.worker.end()
        if isinstance(cut, Idle):
            self.worker.kill()
            ended = None
        if ended is None:
            self.worker, self.killed = None, True
        return ended

    def _hold(self, cut: Cut | None) -> None:
        """Let a server keep its answer back."""
        match cut:
            case InMail(_, address, _):
                self.servers.mail.order(MailFault(phase="dot", does="hold", recipient=address))
            case InCharge():
                self.servers.gateway.order(Fault(name="hold"))
            case _:
                pass

    def _kill_held(self, cut: InMail | InCharge, worker: Drainer) -> None:
        """Kill the worker between what its server has done and what it hears of it."""
        server = self.servers.mail if isinstance(cut, InMail) else self.servers.gateway
        try:
            server.wait_held(1, timeout=PATIENCE_S)
        except TimeoutError:
            raise DemoBroken(f"no server came to {cut}") from None
        worker.kill()
        server.release()

    def _is_due_soon(self, cf: Counterfoil) -> bool:
        found = cf.workflows.get(WORKFLOW, tenant=self.office.tenant)
        if found.status not in LIVING:
            return False
        return found.due_at is not None and found.due_at <= found.now + SOON_MS

    # --- what is left ------------------------------------------------------------------------------------------------

    def _note(self, cf: Counterfoil, committed: Mapping[str, int]) -> None:
        seen = {name for one in self.done for name in one.operations}
        operations = reversed(cf.operations.list(tenant=self.office.tenant, limit=100).items)
        new = [one for one in operations if one.operation_id not in seen]
        before = Counter(mail for one in self.done for mail in one.mails)
        mails = Counter(self._mails())
        self.done.append(
            Done(
                committed=dict(committed),
                mails=tuple((mails - before).elements()),
                charges=self.servers.gateway.count() - sum(one.charges for one in self.done),
                operations=tuple(one.operation_id for one in new),
                opaque=tuple(is_opaque(one) for one in new),
            )
        )

    def _mails(self) -> list[tuple[str, str]]:
        return [(mail.recipients[0], mail.subject) for mail in self.servers.mail.mails()]

    def _left(self, cf: Counterfoil) -> Left:
        tenant = self.office.tenant
        found = cf.workflows.get(WORKFLOW, tenant=tenant)
        mails = Counter(self._mails())
        report = self.office.reports / f"{WORKFLOW}.md"
        operations = cf.operations.list(tenant=tenant, limit=100).items
        state = {
            "status": found.status,
            "result": cf.workflows.result(WORKFLOW, tenant=tenant) if found.status == "done" else found.error_text,
            "mails": sorted(mails),
            "charged": sorted(
                {(one.body["amount"], one.body["description"]) for one in self.servers.gateway.accepted()}
            ),
            "report": hashlib.sha256(report.read_bytes()).hexdigest() if report.is_file() else None,
            "operations": sorted((one.operation_id, one.state) for one in operations),
            "events": sorted((one.name, one.state) for one in cf.workflows.waits(WORKFLOW, tenant=tenant)),
        }
        reviews = sum(case.verdict is not None for case in cf.review.list(tenant=tenant, state=None).items)
        charges = self.servers.gateway.count()
        return Left(mails=dict(mails), charges=charges, reviews=reviews, state=state, done=tuple(self.done))
