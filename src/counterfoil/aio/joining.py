"""Work inside the caller's own open transaction on an event loop; see its blocking twin."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from counterfoil.active import refuse_nested
from counterfoil.aio.transacting import awaiting_body
from counterfoil.core.trusting import trusted_context
from counterfoil.desk import NOWHERE
from counterfoil.drivers.driving import adrive
from counterfoil.drivers.join import ajoined, packages
from counterfoil.enqueuing import Enqueuing, Several
from counterfoil.errors import ForeignTransaction
from counterfoil.joining import check_transactional
from counterfoil.transacting import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from counterfoil.delivery import Delivery
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.enqueuing import Asked
    from counterfoil.model import Intent, Receipt
    from counterfoil.performing import Job
    from counterfoil.transacting import Body

T = TypeVar("T")
R = TypeVar("R")


class AsyncHost(Protocol):
    """Who manages the caller's transaction: the driver's connection itself, or a neighbour around one."""

    async def connection(self) -> Any:
        """Return the driver's connection, on which the transaction is open.

        Raises:
            ForeignTransaction: it is not.
        """
        ...

    async def prepare(self) -> None:
        """Write what the neighbour has kept back until now, so that it comes before what is done next."""
        ...

    def lend(self, body: Body) -> Body:
        """Return an effect's body as the neighbour runs it, with the handle that its users expect."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into the neighbour's own."""
        ...


class AsyncDriver:
    """An async driver's connection, which nobody else manages."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def connection(self) -> Any:
        """Return it."""
        return self._connection

    async def prepare(self) -> None:
        """Do nothing."""

    def lend(self, body: Body) -> Body:
        """Return the body as it is."""
        return body

    def errors(self) -> AbstractContextManager[None]:
        """Leave errors as they are."""
        return nullcontext()


class AsyncJoined:
    """A Counterfoil inside one open transaction, for callers on an event loop."""

    def __init__(self, desk: Desk, host: AsyncHost) -> None:
        self._desk = desk
        self._host = host

    async def perform(
        self,
        effect: Effect[T],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        **arguments: Any,
    ) -> Receipt[T]:
        """Perform a transactional effect in this transaction; see `Joined.perform`. Its body must be async."""
        refuse_nested("perform")
        check_transactional(effect)
        if not effect.is_async and not effect.provider.is_one_statement:
            raise ForeignTransaction(
                f"The effect {effect.name} is blocking, and the statements of this transaction must be awaited. Declare"
                " it with async def, or as one statement with Provider.one_statement()."
            )
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return await self._perform(self._desk.job(effect, arguments, trusted, NOWHERE))

    async def enqueue(
        self,
        effect: Effect[Any],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        delivery: Delivery | None = None,
        **arguments: Any,
    ) -> Intent:
        """Record an operation in this transaction; see `Joined.enqueue`."""
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return await self._enqueue("enqueue", Enqueuing(self._desk, effect, arguments, trusted, NOWHERE, delivery))

    async def enqueue_all(
        self,
        effect: Effect[Any],
        several: Iterable[Mapping[str, Any]],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        delivery: Delivery | None = None,
    ) -> tuple[Intent, ...]:
        """Record several operations of one effect in this transaction; see `Joined.enqueue_all`."""
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return await self._enqueue("enqueue_all", Several(self._desk, effect, several, trusted, delivery))

    async def _enqueue(self, name: str, asked: Asked[R]) -> R:
        refuse_nested(name)
        with self._host.errors():
            transaction = ajoined(self._desk.async_store, await self._host.connection())
            await self._host.prepare()
            return asked.conclude(await transaction.run(asked.maker, tenant=asked.tenant))

    async def _perform(self, job: Job) -> Receipt[Any]:
        with self._host.errors():
            transaction = ajoined(self._desk.async_store, await self._host.connection())
            await self._host.prepare()
            body = self._host.lend(awaiting_body(job)) if job.effect.is_async else None
            protocol = record(job, body, at_once=self._desk.async_store.claims_at_once)
            return await adrive(protocol, lambda step: transaction.run(step.maker, tenant=job.key.tenant))


def join(desk: Desk, transaction: Any) -> AsyncJoined:
    """Join an open transaction.

    Raises:
        ForeignTransaction: it is not open, or belongs to another driver.
    """
    homes = packages(transaction)
    if "sqlalchemy" in homes:
        from counterfoil.integrations.sqlalchemy import async_host  # noqa: PLC0415 - needs SQLAlchemy

        return AsyncJoined(desk, async_host(transaction))
    ajoined(desk.async_store, transaction)  # refuses at once what cannot be joined
    return AsyncJoined(desk, AsyncDriver(transaction))
