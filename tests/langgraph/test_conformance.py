"""The public suite for checkpointers, and that its tests did run: a saver in which nothing is detected passes, too."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES, EXTENDED_CAPABILITIES

from counterfoil import Counterfoil
from counterfoil.langgraph.saver import CounterfoilSaver
from tests import stores

BASE = {"put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5}
EXTENDED = {"delete_for_runs": 7, "copy_thread": 8, "prune": 8}


class Blocking(BaseCheckpointSaver[str]):
    """Lets the suite, which only awaits, call the saver's blocking methods."""

    def __init__(self, saver: CounterfoilSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.saver.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the interface's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = await asyncio.to_thread(
            lambda: list(self.saver.list(config, filter=filter, before=before, limit=limit))
        )
        for one in found:
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.saver.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.saver.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.saver.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.saver.prune(thread_ids, strategy=strategy))

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self.saver.get_next_version(current, channel)


def as_it_is(saver: CounterfoilSaver) -> BaseCheckpointSaver[str]:
    return saver


@pytest.mark.parametrize("adapt", [as_it_is, Blocking], ids=["awaiting", "blocking"])
@stores.on_each(*stores.STORES)
@pytest.mark.parametrize("tenant", ["", "team-A"])
async def test_the_public_suite_passes_in_every_capability_that_the_saver_claims(
    url: str, store: str, adapt: Callable[[CounterfoilSaver], BaseCheckpointSaver[str]], tenant: str
) -> None:
    async def savers() -> AsyncIterator[BaseCheckpointSaver[str]]:
        stores.empty(url)
        with Counterfoil.open(url) as cf:
            yield adapt(cf.saver(tenant=tenant))

    report = await validate(checkpointer_test(name=store)(savers))
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert report.passed_all_base()
    assert report.passed_all()
    ran = {name: result.tests_passed for name, result in report.results.items() if result.detected}
    assert ran == BASE | EXTENDED
    assert sum(ran.values()) == 81
    assert {capability.value for capability in BASE_CAPABILITIES} == BASE.keys()
    assert {capability.value for capability in EXTENDED_CAPABILITIES} == EXTENDED.keys()
