"""Processes that collide, die and freeze: what a provider in yet another process counts, and what the ledger says."""

import os
import signal
import subprocess
import threading
from collections import Counter
from typing import Any

import pytest

from counterfoil.drivers.postgres_open import CONNECTIONS
from counterfoil.testing.clock import FakeClock
from tests.processes.scene import KEYED, Connections, Scene, told
from tests.processes.worker import KINDS, opened, perform, tickets
from tests.stores import is_postgres

PROCESSES = 4
DOUBLE, UNKNOWN = "possible_double_effect", "unknown_outcome"

pytestmark = pytest.mark.slow


# --- collide ----------------------------------------------------------------------------------------------------------


def turned(requests: list[str], turn: int) -> list[str]:
    """Return the requests in an order of a worker's own."""
    first = len(requests) * turn // PROCESSES
    return requests[first:] + requests[:first]


@pytest.mark.parametrize("kind", ["opaque", "keyed"])
def test_four_processes_of_two_threads_make_one_effect_each_and_no_error(scene: Scene, kind: str) -> None:
    requests = [f"r-{n % 12}" for n in range(36)]
    orders = [scene.order(kind, requests=turned(requests, turn), threads=2) for turn in range(PROCESSES)]
    workers = [scene.start(each) for each in orders]
    results = [result for worker in workers for result in told(worker)]
    assert [result for result in results if "error" in result] == []
    assert len(results) == 4 * 36
    assert scene.provider.received() == 12
    assert Counter(one.key for one in scene.provider.accepted()).most_common(1)[0][1] == 1
    assert len({(result["request"], result["id"]) for result in results}) == 12
    assert Counter(result["from"] for result in results)["effect"] == 12
    assert {row["state"] for row in scene.rows("operation")} == {"succeeded"}
    assert scene.rows("case") == []


def test_32_threads_of_each_of_four_processes_make_one_effect_each_and_no_error(scene: Scene) -> None:
    """Each of 200 ids is asked for eight times, twice by each process."""
    requests = [f"r-{n}" for n in range(200)] * 2
    with Connections(scene.url) as connections:
        orders = [scene.order("keyed", requests=turned(requests, turn), threads=32) for turn in range(PROCESSES)]
        workers = [scene.start(each) for each in orders]
        results = [result for worker in workers for result in told(worker)]
    assert [result for result in results if "error" in result] == []
    assert Counter(result["request"] for result in results) == Counter(requests * PROCESSES)
    assert scene.provider.received() == scene.provider.count() == 200
    assert Counter(result["from"] for result in results)["effect"] == 200
    assert len({(result["request"], result["id"]) for result in results}) == 200
    assert Counter(row["state"] for row in scene.rows("operation")) == {"succeeded": 200}
    assert scene.rows("case") == []
    assert connections.most <= PROCESSES * CONNECTIONS
    assert (connections.most > PROCESSES) == is_postgres(scene.url)


# --- die --------------------------------------------------------------------------------------------------------------

DEATHS = ("claimed", "before-send", "after-send", "killed-by-the-provider")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_worker_never_leads_to_a_second_effect_without_evidence(scene: Scene, kind: str, death: str) -> None:
    sent = death in {"after-send", "killed-by-the-provider"}
    if death == "killed-by-the-provider":
        orders = scene.order(kind)
        scene.provider.order("kill-client")
    else:
        orders = scene.order(kind, signal="SIGKILL", point=death)
    with scene.start(orders) as worker:
        assert worker.wait(timeout=60) == -signal.SIGKILL
    assert scene.provider.count() == sent

    at_once, afterwards = scene.later(kind, 0), scene.later(kind)

    if kind in KEYED:
        assert at_once["id"] == afterwards["id"] == 1
        assert scene.provider.count() == 1
    elif kind == "opaque":
        assert at_once["error"] == afterwards["error"] == "outcome-unknown"
        assert (scene.provider.count(), scene.state, scene.cases()) == (sent, "unknown", [UNKNOWN])
        return
    elif sent:
        assert (at_once["from"], afterwards["from"]) == ("lookup", "receipt")
    else:
        assert at_once["error"] == "outcome-unknown"  # too early for a no: the effect might still arrive
        assert afterwards["from"] == "effect"
    assert (scene.provider.count(), scene.state, scene.cases()) == (1, "succeeded", [])


# --- freeze -----------------------------------------------------------------------------------------------------------


def frozen(scene: Scene, kind: str, point: str, **orders: Any) -> "subprocess.Popen[str]":
    """Start a worker that stops itself at a point, and wait until it has."""
    worker = scene.start(scene.order(kind, signal="SIGSTOP", point=point, **orders))
    _, status = os.waitpid(worker.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return worker


def thawed(worker: "subprocess.Popen[str]") -> dict[str, Any]:
    os.kill(worker.pid, signal.SIGCONT)
    (result,) = told(worker)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_frozen_after_its_send_and_a_second_one_make_one_record(scene: Scene, kind: str) -> None:
    first = frozen(scene, kind, "after-send")
    second = scene.later(kind)
    late = thawed(first)
    assert scene.provider.count() == 1
    assert (scene.state, scene.cases()) == ("succeeded", [])
    match kind:
        case "opaque":
            assert second["error"] == "outcome-unknown"
            assert late == {"request": "r-1", "id": 1, "from": "effect"}
        case "queryable" | "both":
            assert second == {"request": "r-1", "id": 1, "from": "lookup"}
            assert late == {"request": "r-1", "id": 1, "from": "receipt"}
        case _:
            assert second == {"request": "r-1", "id": 1, "from": "effect"}
            assert late == {"request": "r-1", "error": "fence-lost", "winner": 1}
    assert scene.later(kind)["id"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_frozen_before_its_send_is_told_and_a_case_is_opened_where_there_may_be_two(
    scene: Scene, kind: str
) -> None:
    """A pause between the last check and the send can be closed by the provider's key alone; the rest is told."""
    first = frozen(scene, kind, "before-send")
    second = scene.later(kind)
    late = thawed(first)
    match kind:
        case "opaque":
            assert second["error"] == "outcome-unknown"
            assert late["id"] == 1
            assert (scene.provider.count(), scene.cases()) == (1, [])
        case "queryable":
            assert second["id"] == 1
            assert late == {"request": "r-1", "error": "fence-lost", "winner": 1}
            assert (scene.provider.count(), scene.cases()) == (2, [DOUBLE])
            assert [row["kind"] for row in scene.rows("evidence")][-1] == "late_reply"
        case _:
            assert second["id"] == 1
            assert late == {"request": "r-1", "error": "fence-lost", "winner": 1}
            assert (scene.provider.count(), scene.cases()) == (1, [])
    assert scene.state == "succeeded"
    assert scene.later(kind)["id"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_frozen_between_its_claim_and_its_effect_sends_nothing(scene: Scene, kind: str) -> None:
    first = frozen(scene, kind, "claimed", lease="10ms")
    second = scene.later(kind)
    threading.Event().wait(0.03)  # longer than the lease: the pause itself is what is tested
    late = thawed(first)
    if kind == "opaque":
        assert second["error"] == "outcome-unknown"
        assert late["error"] == "effect-not-sent"
        assert (scene.provider.count(), scene.state, scene.cases()) == (0, "pending", [])
        assert scene.later(kind)["id"] == 1
        return
    assert second["id"] == 1
    assert late == {"request": "r-1", "error": "fence-lost", "winner": 1}
    assert (scene.provider.count(), scene.state, scene.cases()) == (1, "succeeded", [])


# --- a living worker is left alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hold", "hold-before-accept"])
def test_the_live_send_of_another_process_is_left_alone(scene: Scene, fault: Any) -> None:
    """A second instance that starts while the first one is in the middle of a send marks nothing as lost."""
    orders = scene.order("opaque")
    scene.provider.order(fault)
    worker = scene.start(orders)
    scene.provider.wait_held()
    assert scene.later("opaque", 0) == {"request": "r-1", "error": "operation-in-progress", "winner": None}
    assert (scene.state, scene.cases()) == ("in_flight", [])
    scene.provider.release()
    assert told(worker) == [{"request": "r-1", "id": 1, "from": "effect"}]
    assert scene.provider.received() == 1


@pytest.mark.parametrize("heartbeat", [True, False])
def test_a_long_send_is_kept_by_its_heartbeat_and_reconciled_without_one(scene: Scene, heartbeat: bool) -> None:  # noqa: FBT001 - a parameter of the test
    orders = scene.order("queryable", lease="2s" if heartbeat else None)
    scene.provider.order("hold")
    worker = scene.start(orders)
    scene.provider.wait_held()
    if heartbeat:  # asked at the time at which the claim would be over without it
        first = scene.lease_until
        while scene.lease_until == first:
            assert worker.poll() is None
        with opened(scene.url, scene.provider.url, clock=FakeClock(first), wait="0s") as cf:
            assert perform(cf, tickets("queryable"), "r-1")["error"] == "operation-in-progress"
    else:
        assert scene.later("queryable") == {"request": "r-1", "id": 1, "from": "lookup"}
    scene.provider.release()
    (late,) = told(worker)
    assert (late["id"], scene.provider.received(), scene.cases()) == (1, 1, [])
