"""LangGraph's own server with our saver by path: the real one, where it is installed.

It is not among the development dependencies: its licence is not an open one. To run these tests, install it beside:
`python -m venv server && server/bin/pip install 'langgraph-cli[inmem]' 'psycopg[binary]' -e '.[langgraph]'`, and name
the program:
`COUNTERFOIL_TEST_LANGGRAPH=server/bin/langgraph`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from counterfoil.testing.tally import TallyFile
from tests import stores
from tests.postgres.servers import Server

ROOT = Path(__file__).parents[2]
AGENT = Path(__file__).with_name("served_agent.py")
VARIABLE = "COUNTERFOIL_TEST_LANGGRAPH"
PROGRAM = os.environ.get(VARIABLE) or shutil.which("langgraph", path=str(Path(sys.executable).parent))
LIMIT_S = 120
YEAR_2100 = 4_102_444_800_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None,
        reason=f"LangGraph's server: pip install 'langgraph-cli[inmem]' beside, and let {VARIABLE} name the program",
    ),
]


class Served:
    """A running server, its folder, the database of its checkpointer, and a client."""

    def __init__(
        self, folder: Path, database: str, process: "subprocess.Popen[str]", url: str, lines: list[str]
    ) -> None:
        self.folder = folder
        self.database = database
        self.lines = lines
        self.process = process
        self.client = httpx.Client(base_url=url, timeout=LIMIT_S)

    def post(self, path: str, **body: Any) -> Any:
        reply = self.client.post(path, json=body)
        assert reply.status_code < 300, reply.text + "".join(self.lines)[-5000:]
        return reply.json()

    def thread(self) -> str:
        return str(self.post("/threads")["thread_id"])

    def run(self, graph: str, thread: str, *, request_id: str | None = "r-1", **body: Any) -> Any:
        config = {"configurable": {} if request_id is None else {"request_id": request_id}}
        return self.post(f"/threads/{thread}/runs/wait", assistant_id=graph, config=config, **body)

    def state(self, thread: str) -> Any:
        return self.client.get(f"/threads/{thread}/state").json()

    def history(self, thread: str) -> Any:
        return self.post(f"/threads/{thread}/history", limit=100)

    def execute(self, sql: str, *values: object) -> Any:
        return stores.execute(self.database, sql, *values)

    @property
    def charged(self) -> list[str]:
        return [str(one.key) for one in TallyFile(self.folder / "tally").accepted()]

    def pass_gate(self) -> None:
        """Meet the run that waits at the gate, and let it through."""
        (self.folder / "gate").write_bytes(b"")


@contextmanager
def serving(folder: Path, database: str) -> Iterator[Served]:
    """Start a server over a folder and a database, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "SERVED_FOLDER": str(folder),
        "SERVED_URL": database,
        "PYTHONPATH": str(ROOT / "src"),
        "LANGSMITH_TRACING": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = [str(PROGRAM), "dev", "--host", "127.0.0.1", "--port", str(port), "--no-browser", "--no-reload"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: list[str] = []
    up = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Application started up" in line:
                up.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert up.wait(LIMIT_S), "".join(lines)[-3000:]
        running = Served(folder, database, process, f"http://127.0.0.1:{port}", lines)
        with running.client:
            yield running
    finally:
        process.kill()
        process.communicate()
        reader.join()


def prepared(folder: Path) -> Path:
    """Lay out what the server reads."""
    shutil.copy(AGENT, folder / "agent.py")
    (folder / "pyproject.toml").write_text('[project]\nname = "served"\nversion = "0"\n')
    config = {
        "dependencies": ["."],
        "graphs": {"managed": "./agent.py:managed", "plain": "./agent.py:plain"},
        "checkpointer": {"path": "./agent.py:checkpointer"},
    }
    (folder / "langgraph.json").write_text(json.dumps(config))
    os.mkfifo(folder / "gate")
    return folder


@pytest.fixture(scope="module", params=stores.SHARED)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server over each store for all tests that do not kill it."""
    folder = prepared(tmp_path_factory.mktemp("served"))
    if request.param != stores.POSTGRES:
        with serving(folder, f"sqlite:///{folder}/served.db") as running:
            yield running
        return
    server: Server = request.getfixturevalue("postgres_server")
    name = next(request.getfixturevalue("postgres_names"))
    with serving(folder, server.create_database(name)) as running:
        yield running
    server.drop_database(name)


@pytest.mark.parametrize("graph", ["managed", "plain"])
def test_a_thread_is_run_read_changed_copied_and_deleted(served: Served, graph: str) -> None:
    thread, request = served.thread(), f"r-{graph}"
    waiting = served.run(graph, thread, request_id=request, input={"order": "1"})
    assert waiting["log"] == [f"team-A {request}/charge/1"]
    assert waiting["__interrupt__"][0]["value"] == "well?"
    assert served.state(thread)["next"] == ["ask"]
    assert served.run(graph, thread, request_id=request, command={"resume": "yes"})["answer"] == "yes"
    changed = served.post(f"/threads/{thread}/state", values={"log": ["by hand"]}, as_node="pay")
    assert set(changed["configurable"]) == {"thread_id", "checkpoint_ns", "checkpoint_id"}
    assert served.run(graph, thread, request_id=request, input=None)["log"][-1] == "by hand"
    copied = served.post(f"/threads/{thread}/copy")["thread_id"]
    assert served.state(copied)["values"] == served.state(thread)["values"]
    assert [one["values"] for one in served.history(copied)] == [one["values"] for one in served.history(thread)]
    earlier = next(one["checkpoint"] for one in served.history(thread) if one["next"] == ["pay"])
    served.run(graph, thread, request_id=request, input=None, checkpoint=earlier)
    assert served.client.delete(f"/threads/{thread}").status_code == 204
    assert served.execute("select count(*) from counterfoil_checkpoint where thread_id = ?", thread) == [(0,)]
    assert served.charged.count(f"{request}/charge/1") == 1


def test_a_run_that_is_rolled_back_leaves_its_receipt_and_no_checkpoint(served: Served) -> None:
    thread = served.thread()
    config = {"configurable": {"request_id": "r-rolled"}}
    first = served.post(f"/threads/{thread}/runs", assistant_id="managed", config=config, input={"order": "slow"})
    done: list[Any] = []
    second = threading.Thread(
        target=lambda: done.append(
            served.run("managed", thread, request_id="r-next", input={"order": "quick"}, multitask_strategy="rollback")
        )
    )
    with (served.folder / "gate").open("wb"):  # the first run is in its node
        assert served.execute("select state, run_id from counterfoil_thread where holder is not null") == [
            ("running", first["run_id"])
        ]
        second.start()
        second.join(LIMIT_S)
    assert done[0]["log"] == ["team-A r-next/charge/quick"]
    assert first["run_id"] not in {one["metadata"].get("run_id") for one in served.history(thread)}
    assert {"r-rolled/charge/slow", "r-next/charge/quick"} <= set(served.charged)
    served.run("managed", thread, request_id="r-rolled", input={"order": "slow-again"}, multitask_strategy="enqueue")
    assert served.charged.count("r-rolled/charge/slow") == 1


def test_a_run_is_refused_on_a_thread_that_somebody_else_runs(served: Served) -> None:
    thread = served.thread()
    served.run("managed", thread, request_id="r-busy", input={"order": "1"})
    served.execute(
        "update counterfoil_thread set state = 'running', holder = 'someone@elsewhere', lease_until = ?"
        " where thread_id = ?",
        YEAR_2100,
        thread,
    )
    told = served.run("managed", thread, request_id="r-busy", command={"resume": "yes"})
    assert told["__error__"]["error"] == "ThreadBusy"
    assert served.state(thread)["next"] == ["ask"]


def test_a_stateless_run_has_no_ledger_and_says_so(served: Served) -> None:
    told = served.post("/runs/wait", assistant_id="managed", input={"order": "1"})
    assert told["__error__"]["error"] == "NoActiveCounterfoil"


def test_after_the_server_was_killed_the_thread_goes_on_at_once_and_charges_nothing(url: str, tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with serving(folder, url) as dying:
        thread = dying.thread()
        config = {"configurable": {"request_id": "r-1"}}
        dying.post(f"/threads/{thread}/runs", assistant_id="managed", config=config, input={"order": "slow"})
        with (folder / "gate").open("wb"):
            os.kill(dying.process.pid, signal.SIGKILL)
            dying.process.wait(LIMIT_S)
    with serving(folder, url) as alive:
        alive.post("/threads", thread_id=thread, if_exists="do_nothing")
        letting = threading.Thread(target=alive.pass_gate, daemon=True)
        letting.start()
        done = alive.run("managed", thread, request_id=None, input=None, multitask_strategy="enqueue")
        letting.join(LIMIT_S)
        assert done["__interrupt__"][0]["value"] == "well?"
        assert alive.charged == ["r-1/charge/slow"]
        assert alive.run("managed", thread, request_id=None, command={"resume": "yes"})["answer"] == "yes"
