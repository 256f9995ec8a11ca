"""Scripts that delete a workflow: all that is kept of it but for the operations that it asked for, which are proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.leases import is_over
from counterfoil.core.states import ThreadState
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts import audit, checkpoints, threads
from counterfoil.storage.scripts.checkpoints import Deleted
from counterfoil.storage.scripts.workflows import Hindered

if TYPE_CHECKING:
    from counterfoil.core.access import Actor
    from counterfoil.storage.scripts.threads import ThreadKey


def delete(
    key: ThreadKey, *, by: Actor, reason: str, expected_version: int | None, tried: Deleted
) -> Script[bool | Hindered]:
    """Delete a workflow with its history, waits and events; say whether there was anything.

    It is one transaction: whoever dies in it has deleted nothing, and does it again. A thread that is no workflow
    stays; of one that was never started its events go. What a try found there, `tried` tells another one.
    """
    yield from threads.alone(key)
    row = yield from one_row("lock_thread", **key.params)
    if row is None or row["status"] is None:
        events = yield from all_rows("delete_events", **key.params)
        was_there = bool(events) or tried.is_tried  # by a try whose COMMIT nobody heard of
        tried.is_tried = was_there
        if events:
            yield from _note(key, None, by, reason)
        return was_there
    if _is_run(row) or expected_version not in {None, row["version"]}:
        return Hindered((yield from held_row("get_workflow", **key.params)))
    yield from checkpoints.delete_thread(key, tried=Deleted(), by=by, reason=reason)
    yield from _note(key, row, by, reason)
    tried.is_tried = True
    return True


def _note(key: ThreadKey, row: Row | None, by: Actor, reason: str) -> Script[None]:
    known = {} if row is None else {"before": row["status"], "request_id": row["request_id"]}
    subject = Subject(Kind.WORKFLOW, key.thread_id)
    yield from audit.note(by, Deed.DELETE_WORKFLOW, subject, tenant=key.tenant, reason=reason, **known)


def _is_run(row: Row) -> bool:
    return row["state"] == ThreadState.RUNNING and not is_over(row["lease_until"], row["now"])
