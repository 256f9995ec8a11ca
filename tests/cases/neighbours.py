"""One database of two tenants: what belongs to the first carries its mark, and is compared before and after."""

import asyncio
import inspect
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
from typing_extensions import TypedDict

from counterfoil import CounterfoilError, Delivery, EffectCall, NotSent, Principal, Provider, Role, effect
from counterfoil.drivers.probes import Point
from counterfoil.langgraph import enqueue, perform, wait_for
from counterfoil.policy import Policy
from tests import stores
from tests.colours import COLOURS, Coloured
from tests.langgraph.shop import chain

MARK = "quince"
"""Stands in everything that belongs to the tenant whose neighbour calls, and in nothing else."""
OURS = f"{MARK}-ltd"


@effect("neighbours.pay", key="{request_id}/pay")
def pay(call: EffectCall, *, title: str) -> Any:
    if title.endswith("lost"):
        raise OSError("the wire broke")
    if title.endswith("later"):
        raise NotSent(title)
    return {"tenant": call.tenant, "title": title}


@effect("neighbours.letter", key="{request_id}/letter", approval=Policy())
def letter(call: EffectCall, *, to: str) -> str:
    return to


@effect("neighbours.row", key="{request_id}/row", provider=Provider.transactional())
def row(tx: Any, *, title: str = "") -> str:
    return title


@effect("neighbours.arow", key="{request_id}/row", provider=Provider.transactional())
async def arow(tx: Any, *, title: str = "") -> str:
    return title


@effect("neighbours.look", key="{request_id}/look", provider=Provider(lookup=lambda call, **_: None, lookup_lag="0s"))
def looked(call: EffectCall, *, title: str) -> str:
    return title


class Said(TypedDict, total=False):
    title: str
    tenant: str
    request_id: str
    thread_id: str
    seen: Any
    came: Any


@effect("neighbours.whose", key="{request_id}/whose")
def whose(call: EffectCall, *, tenant: str) -> str:
    return tenant


def act(state: Said) -> Said:
    """Perform, enqueue and keep what the state says: a node of the graph that both tenants run."""
    receipt = perform(pay, title=state["title"])
    enqueue(letter, to=state["title"])
    return {"seen": receipt.value}


def wait(state: Said) -> Said:
    came = wait_for("paid")
    return {"came": came and came.event_id}


ACTS: Any = chain(("act", act), schema=Said)
WAITS: Any = chain(("wait", wait), schema=Said)


@dataclass(frozen=True)
class Ids:
    """What the things of a tenant are called."""

    tenant: str
    paid: str = f"{MARK}-paid/pay"
    lost: str = f"{MARK}-lost/pay"
    pending: str = f"{MARK}-pending/pay"
    parked: str = f"{MARK}-later/pay"
    looked: str = f"{MARK}-looked/look"
    asked: str = f"{MARK}-asked/letter"
    approved: str = f"{MARK}-approved/letter"
    request: str = f"{MARK}-paid"
    asker: str = f"{MARK}-looked"
    thread: str = f"{MARK}-thread"
    workflow: str = f"{MARK}-workflow"
    done: str = f"{MARK}-done"
    event: str = f"{MARK}-event"
    stream: str = f"{MARK}-stream"
    checkpoint: str = ""
    run: str = ""
    case: str = ""
    approval: str = ""
    decided: str = ""
    grant: str = ""
    token: str = ""

    def named(self) -> Mapping[str, str]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def hide(self, text: str) -> str:
        """Put a placeholder for each id, the longer ones first."""
        for name, value in sorted(self.named().items(), key=lambda pair: -len(pair[1])):
            text = text.replace(value, f"<{name}>")
        return text


OPERATIONS = ("paid", "looked", "lost", "pending", "parked", "asked", "approved")
NOBODY = Ids(
    **{name: str(value).replace(MARK, "nobody") for name, value in Ids(OURS).named().items()}
    | {"case": "case-990001", "approval": "approval-990002", "decided": "approval-990003", "grant": "grant-990004"}
    | {"tenant": "nobody-ltd", "token": "b" * 13, "checkpoint": "1f000000-0000-6000-8000-000000000000", "run": "no-run"}
)
"""Ids that nobody has."""


class World:
    """One database, a Counterfoil of each colour on it, and a tenant with a thing of each kind in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.points: list[tuple[Point, str]] = []
        """Each statement and commit since they were last asked for."""
        self.colours = {colour: Coloured(colour, url, probe=self._note) for colour in COLOURS}
        self.graphs = {name: self._register(made) for name, made in self.colours.items()}
        self._watching: Any = (
            psycopg.connect(url, autocommit=True)
            if stores.is_postgres(url)
            else sqlite3.connect(stores.file_of(url), isolation_level=None)
        )
        kind = "tablename from pg_tables" if stores.is_postgres(url) else "name from sqlite_master where type = 'table'"
        names = [str(name) for (name,) in self._watching.execute(f"select {kind}").fetchall()]
        self._tables = sorted(name for name in names if name.startswith("counterfoil_"))
        self.secret = ""
        """The neighbour's own token."""
        self.ids = self._fill(self.colours["sync"].cf)

    def _note(self, point: Point, name: str) -> None:
        self.points.append((point, name))

    def _register(self, made: Coloured) -> Any:
        made.call("workflows.register", WAITS, name="waits")
        return made.cf.compile(ACTS)

    def _fill(self, cf: Any) -> Ids:
        who = {"tenant": OURS, "principal": f"{MARK}-ann"}
        for name in ("paid", "lost"):
            with suppress(CounterfoilError):
                cf.perform(pay, request_id=f"{MARK}-{name}", title=f"{MARK}-{name}", **who)
        cf.perform(looked, request_id=f"{MARK}-looked", title="x", **who)
        cf.enqueue(pay, request_id=f"{MARK}-later", title=f"{MARK}-later", delivery=Delivery(max_attempts=1), **who)
        approvals = [
            cf.approvals.request(letter, request_id=f"{MARK}-{name}", to=f"{MARK}-to", **who)
            for name in ("asked", "approved")
        ]
        cf.approvals.approve(approvals[1].approval_id, tenant=OURS, by=f"{MARK}-bo", reason=MARK)
        config = cf.config(thread_id=f"{MARK}-thread", request_id=f"{MARK}-run", **who)
        config["metadata"] = {"run_id": f"{MARK}-run-id"}
        self.graphs["sync"].invoke({"title": MARK}, config)
        for name in ("workflow", "done"):
            cf.workflows.start("waits", {"title": MARK}, workflow_id=f"{MARK}-{name}", **who)
        cf.workflows.deliver("paid", tenant=OURS, workflow_id=f"{MARK}-done", event_id=f"{MARK}-event", payload=MARK)
        cf.drain(pay, looked)
        cf.workflows.deliver("told", tenant=OURS, workflow_id=f"{MARK}-workflow", event_id=f"{MARK}-e2", payload=MARK)
        cf.outbox.pause(tenant=OURS, stream=f"{MARK}-stream", by=f"{MARK}-bo", reason=MARK)
        later = Delivery(stream=f"{MARK}-stream")
        cf.enqueue(pay, request_id=f"{MARK}-pending", title=MARK, delivery=later, **who)
        grant = cf.grants.issue(pay, request_id=f"{MARK}-granted", title=MARK, by=f"{MARK}-bo", **who)
        cf.tenants.create(OURS, f"{MARK} Ltd", by=f"{MARK}-bo")
        token, self.secret = cf.tokens.issue(tenant=OURS, name=f"{MARK}-bo", role="admin", expires_in=None)
        (case,) = [one for one in cf.review.list(tenant=OURS).items if one.operation_id == Ids.lost]
        checkpoint = self.graphs["sync"].get_state(config).config["configurable"]["checkpoint_id"]
        return Ids(
            tenant=OURS,
            case=case.case_id,
            approval=approvals[0].approval_id,
            decided=approvals[1].approval_id,
            grant=grant.grant_id,
            token=token.token_id,
            checkpoint=checkpoint,
            run=f"{MARK}-run-id",
        )

    # --- looking -----------------------------------------------------------------------------------------------------

    def rows(self, tenant: str | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a tenant, or of all."""
        wanted = "" if tenant is None else f" where tenant = '{tenant}'"
        found = []
        for table in self._tables:
            if table != "counterfoil_migration":
                rows = self._watching.execute(f"select * from {table}{wanted}")  # noqa: S608 - names of ours
                found += sorted(((table, *one) for one in rows.fetchall()), key=repr)
        return found

    def ran(self) -> list[tuple[Point, str]]:
        """Return which statements and commits were run since this was last asked."""
        found, self.points = self.points, []
        return found

    # --- asking ------------------------------------------------------------------------------------------------------

    def ask(self, colour: str, function: Any, *given: Any, **named: Any) -> Any:
        """Call something of a colour and return all that comes of it."""
        return settle(self.colours[colour].runner, function, *given, **named)

    def connection(self, colour: str) -> Any:
        """Open a connection of the application's own."""
        run = self.colours[colour].runner.run
        match stores.is_postgres(self.url), colour:
            case True, "sync":
                return psycopg.connect(self.url)
            case True, _:
                return run(psycopg.AsyncConnection.connect(self.url))
            case False, "sync":
                return sqlite3.connect(stores.file_of(self.url), isolation_level=None)
            case _:
                return run(_lite(stores.file_of(self.url)))

    def close(self) -> None:
        self._watching.close()
        for made in self.colours.values():
            made.close()


async def _lite(file: Path) -> Any:
    return await aiosqlite.connect(file, isolation_level=None)


def settle(runner: asyncio.Runner, function: Any, *given: Any, **named: Any) -> Any:
    """Call a function, await what it returns, and gather what that yields."""

    async def gathered(many: Any) -> list[Any]:
        return [one async for one in many]

    async def awaited(one: Any) -> Any:
        return await one

    found = function(*given, **named)
    if inspect.isawaitable(found):
        found = runner.run(awaited(found))
    if inspect.isasyncgen(found):
        return runner.run(gathered(found))
    return list(found) if inspect.isgenerator(found) else found


def told(ids: Ids, call: Any) -> tuple[Any, ...]:
    """Return what a call says, with a placeholder for each id: its value, or its error whole."""
    try:
        return ("value", ids.hide(repr(call())))
    except CounterfoilError as error:
        facts = ids.hide(repr(sorted(error.facts.items())))
        return (type(error), error.code, error.retry, ids.hide(error.message), facts)


def admin(tenant: str) -> Principal:
    return Principal(tenant=tenant, name="eve", role=Role.ADMIN)


def neighbours(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Iterator[World]:
    """Make a world on the database that a fixture's parameter names, for all tests of a file."""
    if request.param == stores.POSTGRES:
        server, names = (request.getfixturevalue(name) for name in ("postgres_server", "postgres_names"))
        name = next(names)
        url = server.create_database(name, template=request.getfixturevalue("postgres_template"))
        yield from _opened(url)
        server.drop_database(name)
    else:
        yield from _opened(f"sqlite:///{folders.mktemp('world') / 'ledger.db'}")


def _opened(url: str) -> Iterator[World]:
    made = World(url)
    yield made
    made.close()
