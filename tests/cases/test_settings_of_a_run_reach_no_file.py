"""B64: scalar values of the run configuration are copied into the metadata of each checkpoint, API keys included.

Source: https://github.com/aegra/aegra/issues/267
"""

import logging
import pickle
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from counterfoil import CounterfoilError, EffectCall, effect
from counterfoil.errors import SecretInState
from counterfoil.langgraph import perform
from tests.langgraph.shop import WHO, Shop, State, accept, chain

CONFIGURABLE = {
    "api_key": "canary-api-key-1",
    "model_token": "canary-token-2",
    "setting": "canary-setting-3",
    "number": 7700770077,
    "database": "postgresql://app:canary-password-4@db.internal/prod",
    "nested": {"api_key": "canary-nested-5"},
}
METADATA = {"Authorization": "Bearer canary6abcdef0123456789", "owner": "canary-owner-7", "nested": {"x": "canary-8"}}
CANARIES = (b"canary", b"7700770077")


@effect("case.settings", key="{request_id}/settings", redact=["secret", "headers.authorization"])
def call_out(call: EffectCall, *, title: str) -> dict[str, Any]:
    accept(call)
    return {"id": 1, "secret": "canary-receipt-9", "headers": {"authorization": "canary-receipt-10", "etag": "kept"}}


@effect("case.settings-failing", key="{request_id}/failing")
def failing(call: EffectCall) -> None:
    accept(call)
    raise RuntimeError("cannot reach postgresql://app:canary-password-11@db.internal")


def build() -> Any:
    def node(state: State) -> State:
        return {"answer": interrupt("well?")}

    def paying(state: State) -> State:
        return {"answer": perform(call_out, title="x").value["headers"]}

    return chain(("ask", node), ("pay", paying))


def searched(folder: Path) -> list[str]:
    """Return the files in which a canary can be read."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and holds(path.read_bytes()))


def holds(text: bytes) -> bool:
    return any(canary in text for canary in CANARIES)


def test_without_counterfoil_they_can_be_read_in_the_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "stock.db", check_same_thread=False)) as connection:
        graph = chain(("n", lambda state: {"number": 1})).compile(checkpointer=SqliteSaver(connection))
        graph.invoke({}, {"configurable": {"thread_id": "t", **CONFIGURABLE}, "metadata": dict(METADATA)})
    assert searched(tmp_path) == ["stock.db"]


@pytest.mark.parametrize("kind", ["managed", "plain"])
def test_no_setting_of_a_run_reaches_the_file_or_the_log(
    shop: Shop, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    graph = shop.cf.compile(build()) if kind == "managed" else build().compile(checkpointer=shop.cf.saver())
    config = shop.cf.config(**WHO, config={"configurable": dict(CONFIGURABLE), "metadata": dict(METADATA)})
    graph.invoke({"order": "1"}, config)
    graph.update_state(config, {"number": 1}, as_node="__start__")
    graph.invoke(None, config)
    ended = graph.invoke(Command(resume="yes"), config)
    assert ended["answer"]["etag"] == "kept"
    assert searched(shop.folder) == []
    assert not holds(shop.raw())
    assert "canary" not in caplog.text
    shown = pickle.dumps(
        [
            shop.cf.operations.list(tenant="team-A"),
            shop.cf.operations.get("r-1/settings", tenant="team-A"),
            shop.cf.operations.explain("r-1/settings", tenant="team-A"),
            [one.metadata for one in graph.get_state_history(config)],
        ]
    )
    assert b"canary" not in shown
    assert shop.count == 1


@pytest.mark.parametrize("kind", ["managed", "plain"])
def test_no_text_of_a_failing_effect_reaches_the_file(shop: Shop, kind: str) -> None:
    builder = chain(("n", lambda state: {"answer": perform(failing).value}))
    graph = shop.cf.compile(builder) if kind == "managed" else builder.compile(checkpointer=shop.cf.saver())
    with suppress(CounterfoilError):
        graph.invoke({}, shop.cf.config(**WHO))
    assert shop.count == 1
    assert searched(shop.folder) == []
    assert not holds(shop.raw())


BY_SHAPE = {
    "field": {"client": {"api_key": "canary-12"}},
    "header": "Authorization: Bearer canary0123456789abcdef",
    "url": "redis://:canary-password-13@cache.internal:6379/0",
    "encoded": "QXV0aG9yaXphdGlvbjogQmVhcmVyIGNhbmFyeTAxMjM0NTY3ODlhYmNkZWY=",
    "key": {"Bearer canary0123456789abcdef": 1},
}


@pytest.mark.parametrize("shape", BY_SHAPE)
@pytest.mark.parametrize("kind", ["managed", "plain"])
def test_a_setting_that_a_node_copies_into_the_state_is_refused(shop: Shop, kind: str, shape: str) -> None:
    builder = chain(("n", lambda state: {"answer": BY_SHAPE[shape]}))
    graph = shop.cf.compile(builder) if kind == "managed" else builder.compile(checkpointer=shop.cf.saver())
    with pytest.raises(SecretInState) as caught:
        graph.invoke({}, shop.cf.config(**WHO))
    assert "canary" not in str(caught.value)
    assert searched(shop.folder) == []
    assert not holds(shop.raw())
    assert b"QXV0aG9yaXphdGlvbjog" not in shop.raw()
