"""Open a branch of a thread: what `cf.fork` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.core.branches import marked, validate_branch
from counterfoil.core.templates import validate_id
from counterfoil.errors import BranchTaken, CheckpointNotFound, InvalidArguments
from counterfoil.langgraph.context import conf_of
from counterfoil.shown import Branch
from counterfoil.storage.scripts import branches
from counterfoil.storage.scripts.branches import Begun, Forked, NameTaken, NoCheckpoint
from counterfoil.storage.scripts.threads import ThreadKey
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from counterfoil.desk import Desk
    from counterfoil.storage.script import Maker

Answer = Forked | NoCheckpoint | NameTaken


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch that is wanted."""

    source: ThreadKey
    checkpoint_id: str | None
    name: str

    @classmethod
    def of(cls, tenant: str | None, thread_id: str, checkpoint: object, name: str) -> Fork:
        """Check what is asked for.

        Raises:
            InvalidId: the thread id or the branch's name cannot be stored or told apart.
            InvalidArguments: the checkpoint is neither an id nor a configuration of this thread.
        """
        source = ThreadKey(
            tenant="" if tenant in (None, "") else validate_id("tenant", tenant),
            thread_id=validate_id("thread id", thread_id),
        )
        validate_id("the branch's thread id", marked(source.thread_id, validate_branch(name)))
        return cls(source, _checkpoint_id(checkpoint, source.thread_id), name)

    def script(self) -> Maker[Answer]:
        """Return what makes the script."""
        tried = Begun()
        return lambda: branches.fork(self.source, checkpoint_id=self.checkpoint_id, name=self.name, tried=tried)

    def opened(self, answer: Answer) -> Branch:
        """Return the branch.

        Raises:
            CheckpointNotFound: the thread has no such checkpoint.
            BranchTaken: the name belongs to a branch from another checkpoint.
        """
        thread, tenant = self.source.thread_id, self.source.tenant
        match answer:
            case Forked(key, branch, checkpoint_id):
                return Branch(
                    tenant=tenant,
                    thread_id=key.thread_id,
                    branch=branch,
                    branched_from=thread,
                    checkpoint_id=checkpoint_id,
                )
            case NoCheckpoint():
                wanted = self.checkpoint_id or "at all"
                raise CheckpointNotFound(
                    f"Thread {thread} has no checkpoint {wanted} of its own graph to branch from. It may have been"
                    " pruned, or belong to another tenant; graph.get_state_history shows those that there are.",
                    tenant=tenant,
                    operation_id="",
                    thread_id=thread,
                )
            case NameTaken(key, checkpoint_id):
                begins = f"begins at checkpoint {checkpoint_id}" if checkpoint_id else f"is thread {key.thread_id}"
                raise BranchTaken(
                    f"The branch {self.name!r} of thread {thread} {begins}, and one name cannot stand for two lines of"
                    " history: their operations would share ids. Fork from that checkpoint, or take another name.",
                    tenant=tenant,
                    operation_id="",
                    thread_id=key.thread_id,
                    checkpoint_id=checkpoint_id,
                )


def fork(desk: Desk, wanted: Fork) -> Branch:
    """Open a branch for a blocking caller."""
    return wanted.opened(write(desk, wanted.script(), tenant=wanted.source.tenant))


async def afork(desk: Desk, wanted: Fork) -> Branch:
    """Open a branch for a caller on an event loop."""
    return wanted.opened(await awrite(desk, wanted.script(), tenant=wanted.source.tenant))


def _checkpoint_id(checkpoint: object, thread_id: str) -> str | None:
    match checkpoint:
        case None:
            return None
        case str():
            return validate_id("checkpoint id", checkpoint)
        case Mapping():
            return _addressed(conf_of(checkpoint), thread_id)
        case _:
            raise InvalidArguments(
                "The checkpoint to branch from is its id, or a configuration such as snapshot.config, not"
                f" {type(checkpoint).__qualname__}."
            )


def _addressed(conf: Mapping[str, object], thread_id: str) -> str:
    if conf.get("checkpoint_ns") or str(conf.get("thread_id")) != thread_id or not conf.get("checkpoint_id"):
        raise InvalidArguments(
            f"The configuration does not address a checkpoint of thread {thread_id} and its own graph. Take one from"
            " graph.get_state_history: snapshot.config."
        )
    return validate_id("checkpoint id", str(conf["checkpoint_id"]))
