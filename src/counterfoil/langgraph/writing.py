"""Write what may be written twice: where nobody heard of a COMMIT, running the guarded write again looks it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from counterfoil.errors import CommitUnknown

if TYPE_CHECKING:
    from counterfoil.desk import Desk
    from counterfoil.storage.script import Maker

T = TypeVar("T")


def write(desk: Desk, maker: Maker[T]) -> T:
    """Run a script that changes nothing more where it took effect before."""
    try:
        return desk.store.write(maker)
    except CommitUnknown as lost:
        with lost.outlasting():
            return desk.store.write(maker)


async def awrite(desk: Desk, maker: Maker[T]) -> T:
    """Run a script that changes nothing more where it took effect before, for a caller on an event loop."""
    try:
        return await desk.async_store.write(maker)
    except CommitUnknown as lost:
        with lost.outlasting():
            return await desk.async_store.write(maker)
