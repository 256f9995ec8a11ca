"""Mint an id for a business action that has none, in a step before the one that uses it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.workflows import NeedsBranch
from counterfoil.errors import BranchRequired, InvalidId, NoActiveCounterfoil
from counterfoil.ids import random_id
from counterfoil.langgraph.context import Here, locate
from counterfoil.langgraph.skipping import astore_held, store_held
from counterfoil.runners import Waiting
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import NotStored, ThreadKey
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from counterfoil.storage.script import Maker

PREFIX = "mint-"
STORED_WITHIN_MS = 5_000
"""How long a step waits for the checkpoint it runs on: where a run begins, the runtime stores that beside the step."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def mint(name: str) -> str:
    """Return a new id to put into the state; a later step uses it in an effect's key.

    A step that runs again before it is finished gets the same id again. Each name can be minted once in a step.

    Raises:
        BranchRequired: this run has gone back behind a step that minted this name, so the same business action would
            get a second id.
        NoActiveCounterfoil: there is no LangGraph run with a checkpointer of ours here.
        InvalidId: the name is not made of lower-case letters, digits and underscores.
    """
    refuse_nested("mint")
    refuse_on_loop("mint", f"await amint({name!r})")
    here = locate("mint")
    maker, waiting = _minting(here, name), Waiting(STORED_WITHIN_MS)
    store_held(here.run)
    while isinstance(minted := write(here.desk, maker, tenant=here.trusted.tenant), NotStored):
        time.sleep(_pause(waiting))
    return _taken(name, minted)


async def amint(name: str) -> str:
    """Return a new id to put into the state, in an async node; see `mint`."""
    refuse_nested("mint")
    here = locate("mint")
    maker, waiting = _minting(here, name), Waiting(STORED_WITHIN_MS)
    await astore_held(here.run)
    while isinstance(minted := await asyncio.shield(awrite(here.desk, maker, tenant=here.trusted.tenant)), NotStored):  # noqa: ASYNC110 - the database tells
        await asyncio.sleep(_pause(waiting))
    return _taken(name, minted)


def _pause(waiting: Waiting) -> float:
    if (pause := waiting.next()) is None:
        raise NoActiveCounterfoil(
            "mint was called in a graph whose checkpoints are not stored: entered again, this step would get another"
            " id. A child graph that mints is compiled without checkpointer=False."
        )
    return pause


def _minting(here: Here, name: str) -> Maker[Any]:
    if not _NAME.fullmatch(name):
        raise InvalidId(f"The name {name!r} cannot be minted: use up to 40 lower-case letters, digits and underscores.")
    step = here.step
    if step is None:
        raise NoActiveCounterfoil(
            "mint was called in a run without a thread or checkpointer: the id would be lost with the process. Compile"
            " the graph with cf.compile(builder) and run it with a thread_id."
        )
    key = ThreadKey(tenant=here.trusted.tenant, thread_id=here.origin.thread_id or "")
    return lambda: threads.mint(key, name=name, step=step, make=lambda: random_id(f"{PREFIX}{name}"))


def _taken(name: str, minted: str | NeedsBranch) -> str:
    if isinstance(minted, NeedsBranch):
        raise BranchRequired(
            f"This run went back behind a step that had minted {name!r}; minting again would give the same business"
            " action a second id and let its effects happen twice. Go on without a checkpoint_id if that step is not"
            " finished, or go back to a checkpoint after it. To try another line of history, with effects of its own,"
            " open a branch: cf.fork(thread_id, checkpoint, branch='what-if'). A new business action gets a new thread."
        )
    return minted
