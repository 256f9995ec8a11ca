"""What Procrastinate's worker does, in single passes: each ends when no job is left that it may take."""

from typing import Any

from counterfoil.engine.procrastinate import Procrastinate
from counterfoil.runtime.workflows import WorkflowRunner
from counterfoil.storage.script import Ddl, Script
from counterfoil.storage.scripts.threads import ThreadKey


async def drain(runner: WorkflowRunner) -> None:
    """Enter what is due now, and what becomes due meanwhile, as jobs hand it out; in place of a runner's own search."""
    engine, handed = Procrastinate(runner.desk), list[ThreadKey]()

    async def enter(key: ThreadKey, found: Any = None) -> None:
        handed.append(key)
        await runner.enter(key, found)

    if not (await runner.desk.async_store.read(has_jobs) or await engine.sweep()):
        return
    async with engine.opened(enter) as app:
        await engine.reap()
        is_idle = False
        while not is_idle:
            before = len(handed)
            await app.run_worker_async(**{**engine.options, "listen_notify": False, "wait": False})
            is_idle = len(handed) == before and not await engine.sweep()


def has_jobs() -> Script[bool]:
    """Say whether any job waits or is at work."""
    return bool((yield Ddl("select 1 from procrastinate_jobs limit 1")))
