"""B60: some dataclasses, enums and dict kinds come back as None, str or plain dict, without an error.

Sources: https://github.com/langchain-ai/langgraph/issues/9021, https://github.com/langchain-ai/langgraph/issues/8184,
https://github.com/langchain-ai/langgraph/issues/6718
"""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from counterfoil.errors import StateNotStorable
from tests.cases import worlds_apart
from tests.langgraph.shop import WHO, Shop, chain, conf


@pytest.mark.filterwarnings("ignore")
def test_without_counterfoil_several_come_back_changed() -> None:
    graph = worlds_apart.builder().compile(checkpointer=InMemorySaver())
    kept = {name: one for name, one in worlds_apart.values().items() if name != "large"}
    graph.update_state(conf(), {"kept": kept}, as_node="fill")
    found = graph.get_state(conf()).values["kept"]
    changed = {name for name, want in kept.items() if worlds_apart.shape(found[name]) != worlds_apart.shape(want)}
    assert {"dataclass", "tuple", "defaultdict", "deque"} <= changed


def test_every_type_comes_back_equal_in_a_new_process(shop: Shop) -> None:
    graph = shop.cf.compile(worlds_apart.builder(), interrupt_before=["later"])
    graph.invoke({}, shop.cf.config(thread_id="t", tenant="team-A"))
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from tests.cases.worlds_apart import main; main(sys.argv[1])", shop.url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = dict(line.split() for line in done.stdout.splitlines())
    assert told == dict.fromkeys(worlds_apart.values(), "True")


def test_every_type_comes_back_equal_here(shop: Shop) -> None:
    graph = shop.cf.compile(worlds_apart.builder())
    found = graph.invoke({}, shop.cf.config(thread_id="t", tenant="team-A"))["kept"]
    again = graph.get_state(shop.cf.config(thread_id="t", tenant="team-A")).values["kept"]
    for name, want in worlds_apart.values().items():
        assert found[name] == again[name] == want
        assert worlds_apart.shape(again[name]) == worlds_apart.shape(want)


class Local:
    pass


@pytest.mark.parametrize(
    "value",
    [Local(), threading.Lock(), socket, lambda: 1, (one for one in "x"), iter([]), sys.stdout, type("Made", (), {})],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("kind", ["managed", "plain"])
def test_what_would_not_come_back_is_refused_with_its_path(shop: Shop, kind: str, value: Any) -> None:
    builder = chain(("n", lambda state: {"answer": {"deep": [value]}}))
    graph = shop.cf.compile(builder) if kind == "managed" else builder.compile(checkpointer=shop.cf.saver())
    with pytest.raises(StateNotStorable, match=r"\$\.answer\.deep\[0\]") as caught:
        graph.invoke({}, shop.cf.config(**WHO))
    assert caught.value.facts["path"].endswith("$.answer.deep[0]")
    assert "answer" not in graph.get_state(shop.cf.config(**WHO)).values
