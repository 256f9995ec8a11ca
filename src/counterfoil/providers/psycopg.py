"""psycopg: what its exceptions mean for an effect that is one transaction in somebody else's database.

Nothing of it is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.tables import Table
from counterfoil.providers.tracebacks import frames

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement

ROLLED_BACK: Final = frozenset({"40001", "40P01", "55P03", "25006", "53300", "57P03"})
"""SQLSTATEs after which the transaction provably did nothing and may be tried again."""

REFUSED: Final = ("0A", "22", "23", "28", "42", "44")
"""Classes of SQLSTATE that refuse the statement itself. 57 (cancelled, shut down) is unknown: a session that is ended
while it waits for a replica has committed."""


def by_sqlstate(state: object) -> Judgement | None:
    """Return what an SQLSTATE means for an effect that is one transaction."""
    if not isinstance(state, str):
        return None
    if state in ROLLED_BACK:
        return AttemptOutcome.NOT_SENT
    return AttemptOutcome.REFUSED if state.startswith(REFUSED) else AttemptOutcome.UNKNOWN


TABLE: Final = Table(
    client="psycopg",
    not_sent=frozenset(
        {"psycopg.ConnectionTimeout", "psycopg_pool.PoolTimeout", "psycopg_pool.PoolClosed"}
        | {"psycopg_pool.TooManyRequests"}
    ),
    unknown=frozenset({"psycopg.Error", "psycopg.DatabaseError", "psycopg.OperationalError", "psycopg.InterfaceError"}),
    never_left=lambda error: bool(frames(error, "connect", "psycopg.connection", "psycopg.connection_async")),
    judge=lambda error: by_sqlstate(getattr(error, "sqlstate", None)),
    by_structure=(
        ("any, raised while connecting", "not sent"),
        (f"SQLSTATE {', '.join(sorted(ROLLED_BACK))}", "not sent: the transaction was rolled back"),
        (f"SQLSTATE of class {', '.join(REFUSED)}", "refused"),
        ("any other, and none", "unknown"),
    ),
)
