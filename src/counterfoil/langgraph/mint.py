"""Mint an id for a business action that has none, in a step before the one that uses it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.workflows import NeedsBranch
from counterfoil.errors import BranchRequired, InvalidId, NoActiveCounterfoil
from counterfoil.ids import random_id
from counterfoil.langgraph.context import Here, locate
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from counterfoil.storage.script import Maker

PREFIX = "mint-"
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
    return _taken(name, here.desk.store.write(_minting(here, name)))


async def amint(name: str) -> str:
    """Return a new id to put into the state, in an async node; see `mint`."""
    refuse_nested("mint")
    here = locate("mint")
    return _taken(name, await asyncio.shield(here.desk.async_store.write(_minting(here, name))))


def _minting(here: Here, name: str) -> Maker[Any]:
    if not _NAME.fullmatch(name):
        raise InvalidId(f"The name {name!r} cannot be minted: use up to 40 lower-case letters, digits and underscores.")
    origin = here.origin
    if origin.thread_id is None or origin.checkpoint_id is None or origin.task_id is None:
        raise NoActiveCounterfoil(
            "mint was called in a run without a thread or checkpointer: the id would be lost with the process. Compile"
            " the graph with cf.compile(builder) and run it with a thread_id."
        )
    key = ThreadKey(tenant=here.trusted.tenant, thread_id=origin.thread_id)
    place = {"checkpoint_ns": origin.checkpoint_ns or "", "checkpoint_id": origin.checkpoint_id}
    task = origin.task_id
    return lambda: threads.mint(key, name=name, place=place, task_id=task, make=lambda: random_id(f"{PREFIX}{name}"))


def _taken(name: str, minted: str | NeedsBranch) -> str:
    if isinstance(minted, NeedsBranch):
        raise BranchRequired(
            f"This run went back behind a step that had minted {name!r}; minting again would give the same business"
            " action a second id and let its effects happen twice. Go on from a checkpoint after that step, or start a"
            " new thread for a new business action."
        )
    return minted
