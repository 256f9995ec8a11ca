"""SQLAlchemy: what its exceptions mean for an effect that is one transaction; nothing of it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.providers.psycopg import by_sqlstate
from counterfoil.providers.tables import Table, classify, never_left

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement


def _never_left(error: BaseException) -> bool:
    driver = getattr(error, "orig", None)
    return isinstance(driver, BaseException) and never_left(driver)


def _judge(error: BaseException) -> Judgement | None:
    driver: Any = getattr(error, "orig", None)
    if not isinstance(driver, BaseException):
        return None
    return classify(driver) or by_sqlstate(getattr(driver, "pgcode", None))


TABLE: Final = Table(
    client="sqlalchemy",
    not_sent=frozenset({"sqlalchemy.TimeoutError"}),
    unknown=frozenset({"sqlalchemy.DBAPIError", "sqlalchemy.SQLAlchemyError", "sqlalchemy.OperationalError"}),
    never_left=_never_left,
    judge=_judge,
    by_structure=(("`DBAPIError`", "as the driver's exception in `orig`: by its table, else by its SQLSTATE"),),
)
