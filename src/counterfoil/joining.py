"""Work inside the caller's own open transaction: it commits with it and rolls back with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.active import refuse_nested
from counterfoil.desk import Desk, check_effect
from counterfoil.drivers.join import check_joinable, check_open, run_joined
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.errors import AsyncEffectInSync, ForeignTransaction, NestedEffect
from counterfoil.ledger import NOWHERE, encoding, transactional_body, transactional_receipt
from counterfoil.model import Receipt, Trusted
from counterfoil.storage.scripts import settling

if TYPE_CHECKING:
    from counterfoil.effects import Effect

T = TypeVar("T")


class Joined:
    """A Counterfoil inside one open transaction."""

    def __init__(self, desk: Desk, connection: Any) -> None:
        self._desk = desk
        self._connection = connection

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
        """
        refuse_nested("perform")
        check_effect(effect)
        if not effect.facts.transactional:
            raise NestedEffect(
                f"The effect {effect.name} leaves this database, so it may not be sent while a transaction is open:"
                " a roll-back could not take it back. Commit first and then call cf.perform."
            )
        if effect.is_async:
            raise AsyncEffectInSync(f"The effect {effect.name} is async; a joined sqlite3 transaction is blocking.")
        trusted = Trusted(tenant=tenant or "", request_id=request_id, workflow_id=workflow_id, principal=principal)
        job = self._desk.job(effect, arguments, trusted, NOWHERE)
        check_open(self._connection)  # it may have been committed since it was joined
        body, encode = transactional_body(job), encoding(job)
        seen = run_joined(
            _sqlite(self._desk), self._connection, lambda: settling.transactional(job.request, body, encode)
        )
        return transactional_receipt(job, seen)


def join(desk: Desk, transaction: Any) -> Joined:
    """Join an open transaction.

    Raises:
        ForeignTransaction: it is not open, or belongs to another database.
    """
    return Joined(desk, check_joinable(_sqlite(desk), transaction))


def _sqlite(desk: Desk) -> SqliteStore:
    if not isinstance(desk.store, SqliteStore):
        raise ForeignTransaction("cf.join works inside sqlite3 transactions so far.")
    return desk.store
