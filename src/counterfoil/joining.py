"""Work inside the caller's own open transaction: it commits with it and rolls back with it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.trusting import trusted_context
from counterfoil.desk import NOWHERE, Desk, check_effect
from counterfoil.drivers.driving import drive
from counterfoil.drivers.join import Transaction, joined, packages
from counterfoil.enqueuing import Enqueuing, Several
from counterfoil.errors import AsyncEffectInSync, NestedEffect
from counterfoil.transacting import blocking_body, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from counterfoil.delivery import Delivery
    from counterfoil.effects import Effect
    from counterfoil.enqueuing import Asked
    from counterfoil.model import Intent, Receipt
    from counterfoil.performing import Job
    from counterfoil.transacting import Body

T = TypeVar("T")
R = TypeVar("R")


class Host(Protocol):
    """Who manages the caller's transaction: the driver's connection itself, or a neighbour around one."""

    def connection(self) -> Any:
        """Return the driver's connection, on which the transaction is open.

        Raises:
            ForeignTransaction: it is not.
        """
        ...

    def prepare(self) -> None:
        """Write what the neighbour has kept back until now, so that it comes before what is done next."""
        ...

    def lend(self, body: Body) -> Body:
        """Return an effect's body as the neighbour runs it, with the handle that its users expect."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into the neighbour's own."""
        ...


class Driver:
    """A driver's connection, which nobody else manages."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def connection(self) -> Any:
        """Return it."""
        return self._connection

    def prepare(self) -> None:
        """Do nothing."""

    def lend(self, body: Body) -> Body:
        """Return the body as it is."""
        return body

    def errors(self) -> AbstractContextManager[None]:
        """Leave errors as they are."""
        return nullcontext()


class Joined:
    """A Counterfoil inside one open transaction."""

    def __init__(self, desk: Desk, host: Host) -> None:
        self._desk = desk
        self._host = host
        with host.errors():
            self._transaction()  # refuses at once what cannot be joined

    def perform(
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
        """Perform a transactional effect in this transaction; its receipt exists if and only if that commits.

        Raises:
            NestedEffect: the effect is not transactional, so it would be sent while the transaction is open.
            FingerprintMismatch: the id was used with other arguments.
            ForeignTransaction: the transaction is over, was aborted, or belongs to another database.
        """
        refuse_nested("perform")
        check_transactional(effect)
        refuse_on_loop("cf.join(...).perform", "await cf.join(...).perform(...) with an AsyncCounterfoil")
        if effect.is_async:
            raise AsyncEffectInSync(
                f"The effect {effect.name} is async, and this transaction is blocking. Join an async one:"
                " await AsyncCounterfoil.open(url).join(...).perform(...), or declare the effect with def."
            )
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return self._perform(self._desk.job(effect, arguments, trusted, NOWHERE))

    def enqueue(
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
        """Record an operation in this transaction; a dispatcher sends it if and only if that commits.

        Raises:
            FingerprintMismatch: the id was used with other arguments.
            DifferentEffect: the id belongs to another effect.
            ForeignTransaction: the transaction is over, was aborted, or belongs to another database.
        """
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return self._enqueue("enqueue", Enqueuing(self._desk, effect, arguments, trusted, NOWHERE, delivery))

    def enqueue_all(
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
        """Record several operations of one effect in this transaction; see `Counterfoil.enqueue_all`."""
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return self._enqueue("enqueue_all", Several(self._desk, effect, several, trusted, delivery))

    def _enqueue(self, name: str, asked: Asked[R]) -> R:
        refuse_nested(name)
        refuse_on_loop(f"cf.join(...).{name}", f"await cf.join(...).{name}(...) with an AsyncCounterfoil")
        with self._host.errors():
            transaction = self._transaction()
            self._host.prepare()
            return asked.conclude(transaction.run(asked.maker, tenant=asked.tenant))

    def _perform(self, job: Job) -> Receipt[Any]:
        with self._host.errors():
            transaction = self._transaction()
            self._host.prepare()
            body = blocking_body(job)
            protocol = record(job, body and self._host.lend(body), at_once=self._desk.store.claims_at_once)
            return drive(protocol, lambda step: transaction.run(step.maker, tenant=job.key.tenant))

    def _transaction(self) -> Transaction:
        return joined(self._desk.store, self._host.connection())


def check_transactional(effect: object) -> None:
    """Refuse an effect that cannot be rolled back with the caller's transaction.

    Raises:
        InvalidArguments: it is no effect.
        NestedEffect: it leaves this database.
    """
    check_effect(effect)
    if not effect.facts.transactional:  # type: ignore[attr-defined]
        raise NestedEffect(
            f"The effect {effect.name} leaves this database, so it may not be sent while a transaction is open:"  # type: ignore[attr-defined]
            " a roll-back could not take it back. Commit first and then call cf.perform."
        )


def join(desk: Desk, transaction: Any) -> Joined:
    """Join an open transaction.

    Raises:
        ForeignTransaction: it is not open, must be awaited, or belongs to another database.
    """
    return Joined(desk, host_of(transaction))


def host_of(transaction: Any) -> Host:
    """Return who manages a transaction; a neighbour is imported only where one of its objects is at hand."""
    homes = packages(transaction)
    if "sqlalchemy" in homes:
        from counterfoil.integrations.sqlalchemy import host  # noqa: PLC0415 - needs SQLAlchemy

        return host(transaction)
    if "django" in homes:
        from counterfoil.integrations.django import DjangoHost  # noqa: PLC0415 - needs Django

        return DjangoHost(transaction)
    return Driver(transaction)
