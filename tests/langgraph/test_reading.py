"""What reading costs: one statement for a state, one for each page of a list, none of them longer on a long thread."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from counterfoil import Counterfoil
from counterfoil.drivers.probes import Point
from counterfoil.errors import InvalidArguments
from counterfoil.langgraph.pages import Pages
from counterfoil.langgraph.saver import CounterfoilSaver
from counterfoil.storage import catalog, migrator
from counterfoil.storage.scripts.checkpoints import Stored
from tests.langgraph.shop import WHO, Shop, State, chain, conf
from tests.langgraph.test_saver import checkpoint, many, put, root, steps

ROWS = 120
BEFORE = ["get_checkpoint_seq", "page_namespace_checkpoints"]


class Statements:
    """Notes the name of each statement that was run."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, point: Point, name: str) -> None:
        if point is Point.BEFORE_STATEMENT:
            self.names.append(name)

    def take(self) -> list[str]:
        taken, self.names = self.names, []
        return taken


@pytest.fixture
def noted() -> Statements:
    return Statements()


@pytest.fixture
def cf(shop: Shop, noted: Statements) -> Counterfoil:
    return shop.open(probe=noted)


@pytest.fixture
def saver(cf: Counterfoil, noted: Statements) -> CounterfoilSaver:
    """A saver over a thread of many checkpoints, each with a large value and a pending write."""
    made, config = cf.saver(), root()
    for number in range(ROWS):
        config = put(made, config, f"{number:04}", step=number, text="x" * 1000 + str(number))
        made.put_writes(config, [("number", number)], "task")
    noted.take()
    return made


# --- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint_id", [None, "0000", "0119"])
def test_a_checkpoint_is_read_whole_in_one_statement(
    saver: CounterfoilSaver, noted: Statements, checkpoint_id: str | None
) -> None:
    found = saver.get_tuple(conf("t", checkpoint_ns="", checkpoint_id=checkpoint_id))
    assert noted.take() == ["read_newest_checkpoint" if checkpoint_id is None else "read_checkpoint"]
    assert found is not None
    number = int(checkpoint_id or "0119")
    assert found.checkpoint["channel_values"] == {"text": "x" * 1000 + str(number)}
    assert found.pending_writes == [("task", "number", number)]


async def test_the_state_of_a_thread_is_one_statement_in_both_colours(cf: Counterfoil, noted: Statements) -> None:
    graph = cf.compile(chain(("n", lambda state: {"answer": "x" * 1000})))
    cf.run(graph, {"order": "1"}, **WHO)
    noted.take()
    assert graph.get_state(cf.config(**WHO)).values["answer"] == "x" * 1000
    assert noted.take() == ["read_newest_checkpoint"]
    assert (await graph.aget_state(cf.config(**WHO))).values["answer"] == "x" * 1000
    assert noted.take() == ["read_newest_checkpoint"]


@pytest.mark.parametrize(
    ("asked", "found", "statements"),
    [
        ({}, ROWS, ["page_namespace_checkpoints"] * 3),
        ({"limit": 10}, 10, ["page_namespace_checkpoints"]),
        ({"limit": 60}, 60, ["page_namespace_checkpoints"] * 2),
        ({"limit": 0}, 0, []),
        ({"limit": 10, "filter": {"step": 3}}, 1, ["page_namespace_checkpoints"]),
        ({"limit": 10, "filter": {"source": "loop"}}, 10, ["page_namespace_checkpoints"]),
        ({"limit": 10, "filter": {"source": "fork"}}, 0, ["page_namespace_checkpoints"]),
        ({"limit": 10, "before": conf("t", checkpoint_id="0050")}, 10, BEFORE),
        ({"limit": 10, "before": conf("t", checkpoint_id="nowhere")}, 0, BEFORE),
    ],
    ids=["all", "ten", "sixty", "none", "step", "source", "no-such-source", "before", "before-nothing"],
)
def test_a_list_reads_no_more_than_it_is_asked_for(
    saver: CounterfoilSaver, noted: Statements, asked: dict[str, Any], found: int, statements: list[str]
) -> None:
    listed = list(saver.list(root(), **asked))
    assert len(listed) == found
    assert noted.take() == statements
    numbers = [int(one.checkpoint["id"]) for one in listed]
    assert numbers == sorted(numbers, reverse=True)
    assert all(one.pending_writes == [("task", "number", number)] for one, number in zip(listed, numbers, strict=True))


@pytest.mark.parametrize("config", [root(), conf("t"), None], ids=["namespace", "thread", "tenant"])
def test_a_list_of_ten_reads_ten(saver: CounterfoilSaver, monkeypatch: pytest.MonkeyPatch, config: Any) -> None:
    sizes: list[int] = []

    class Noting(Pages):
        def take(self, page: Sequence[Stored]) -> Iterator[CheckpointTuple]:
            sizes.append(len(page))
            yield from super().take(page)

    monkeypatch.setattr("counterfoil.langgraph.saver.Pages", Noting)
    assert len(list(saver.list(config, limit=10))) == 10
    assert sizes == [10]


# --- plans -----------------------------------------------------------------------------------------------------------

STATEMENTS = catalog.load("sqlite")
KEYED = ["read_checkpoint", "read_newest_checkpoint", "page_namespace_checkpoints", "get_checkpoint_seq"]


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(migrator.plain_sql("sqlite"))
        yield connection


def plan(database: sqlite3.Connection, name: str) -> list[str]:
    statement = STATEMENTS[name]
    rows = database.execute(f"explain query plan {statement.sql}", dict.fromkeys(statement.params))
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", KEYED)
def test_a_thread_of_any_length_is_read_by_key_and_in_the_order_of_its_index(
    database: sqlite3.Connection, name: str
) -> None:
    found = plan(database, name)
    ours = [step for step in found if "counterfoil_" in step or " stored " in step or " pending " in step]
    assert all(step.startswith("SEARCH ") for step in ours)
    assert [step for step in found if "TEMP B-TREE" in step] == []
    channels = [step for step in ours if " stored " in step]
    assert all("channel=? AND version=?" in step for step in channels)
    assert len(channels) == (0 if name == "get_checkpoint_seq" else 2)


@pytest.mark.parametrize("name", ["page_thread_checkpoints", "page_tenant_checkpoints"])
def test_a_page_across_namespaces_sorts_places_in_the_order_and_not_whole_rows(
    database: sqlite3.Connection, name: str
) -> None:
    statement = STATEMENTS[name].sql
    assert "seq in (\n    select seq\n" in statement
    assert [step for step in plan(database, name) if step.startswith("SCAN counterfoil_")] == []


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"step": 4, "kind": "even"}, [4]),
        ({"step": 4.0}, [4]),
        ({"step": 1}, [1]),
        ({"step": True}, [1]),
        ({"step": "4"}, []),
        ({"kind": None}, []),
        ({"missing": None}, []),
        ({"missing": ""}, []),
        ({"run_id": None}, []),
        ({"run_id": "r"}, []),
        ({"nothing": None}, [5]),
        ({"nested": {"a.b": 1}}, [5]),
        ({"a.b": 1}, []),
        ({"do'tted": "it's"}, [5]),
        ({'a"b': 1}, []),
        ({"source": "loop' or '1'='1"}, []),
    ],
)
def test_a_filter_fits_what_the_metadata_holds_and_nothing_else(
    shop: Shop, wanted: dict[str, Any], found: list[int]
) -> None:
    saver = shop.cf.saver()
    config = many(saver, 5)
    made = checkpoint(saver, "x")
    odd: Any = {"source": "loop", "step": 5, "nothing": None, "nested": {"a.b": 1}, "do'tted": "it's"}
    saver.put(config, made, odd, {})
    assert steps(saver.list(root(), filter=wanted)) == found


@pytest.mark.parametrize("wanted", ["source", ["source"], {1: "x"}, {"source": "loop", None: 1}])
def test_what_is_no_filter_is_refused_and_not_taken_for_none(shop: Shop, wanted: Any) -> None:
    with pytest.raises(InvalidArguments):
        list(shop.cf.saver().list(root(), filter=wanted))


# --- children going back ---------------------------------------------------------------------------------------------


def test_a_child_that_keeps_its_state_goes_back_with_its_parent(shop: Shop) -> None:
    """The runtime asks for the child's newest checkpoint before the parent's, naming the parent's."""

    def counted(state: State) -> State:
        return {"numbers": [len(state.get("numbers", []))]}

    child = chain(("count", counted)).compile(checkpointer=True)
    seen: list[list[int]] = []

    def around(state: State) -> State:
        seen.append(child.invoke({"order": "x"})["numbers"])
        return {"log": ["around"]}

    graph, config = shop.cf.compile(chain(("around", around))), shop.cf.config(**WHO)
    for _ in range(3):
        graph.invoke({"order": "1"}, config)
    assert seen == [[0], [0, 1], [0, 1, 2]]
    second = [one.config for one in graph.get_state_history(config) if one.next == ("around",)][1]
    graph.invoke(None, second)
    assert seen[3:] == [[0, 1]]
