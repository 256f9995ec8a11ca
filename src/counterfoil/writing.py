"""Write what may be written twice: where nobody heard of a COMMIT, running the guarded write again looks it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from counterfoil.errors import CommitUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.desk import Desk
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")


def never(_answer: object) -> bool:
    """Say that an answer is no refusal."""
    return False


def write(desk: Desk, maker: Maker[T], *, tenant: Whose, refuses: Callable[[T], bool] = never) -> T:
    """Run a script that changes nothing more where it took effect before.

    Raises:
        CommitUnknown: neither time was heard of, or the second was refused, maybe for what the first did.
    """
    try:
        return desk.store.write(maker, tenant=tenant)
    except CommitUnknown as lost:
        with lost.outlasting():
            answer = desk.store.write(maker, tenant=tenant)
        if refuses(answer):
            raise
        return answer


async def awrite(desk: Desk, maker: Maker[T], *, tenant: Whose, refuses: Callable[[T], bool] = never) -> T:
    """Run a script that changes nothing more where it took effect before, for a caller on an event loop."""
    try:
        return await desk.async_store.write(maker, tenant=tenant)
    except CommitUnknown as lost:
        with lost.outlasting():
            answer = await desk.async_store.write(maker, tenant=tenant)
        if refuses(answer):
            raise
        return answer
