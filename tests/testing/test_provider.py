"""The judge is judged first: a real provider process, every fault it can commit, and its ends."""

import multiprocessing
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import get_args

import pytest

from counterfoil.testing.provider_client import CountingProvider, ProviderClient, Reply
from counterfoil.testing.provider_desk import Settings
from counterfoil.testing.provider_faults import BEHAVIOURS, Fault, FaultName
from tests import children

BODY = {"title": "Printer offline"}
SOURCE = str(Path(__file__).parents[2] / "src")

# What the child processes of these tests run: one POST at the URL and of the kind given.
POSTER = """
import sys
from counterfoil.testing.provider_client import ProviderClient
ProviderClient(sys.argv[1]).post(sys.argv[2], {"title": "from a child"}, key="k-1")
print("answered")
"""


@pytest.fixture(scope="module")
def running() -> Iterator[CountingProvider]:
    with CountingProvider() as provider:
        yield provider


@pytest.fixture
def provider(running: CountingProvider) -> CountingProvider:
    running.reset()
    return running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes by pidfd")


def start(*arguments: str, stdin: int | None = None) -> "subprocess.Popen[str]":
    return children.start(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_end_of(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        ended = selector.select(timeout=10)
    os.close(descriptor)
    assert ended, f"process {pid} outlived its parent"


# -- accepting and counting


def test_an_accepted_ticket_is_numbered_answered_and_counted(provider: CountingProvider) -> None:
    first = provider.post("tickets", BODY, key="k-1", headers={"X-Request-Id": "r-1", "X-Tenant": "A"})
    second = provider.post("tickets", {"title": "Again", "request_id": "r-2", "tenant": "B"})

    assert (first.status, first.body) == (201, {"id": 1, "title": "Printer offline"})
    assert second.body["id"] == 2
    assert [(one.number, one.key, one.request_id, one.tenant) for one in provider.accepted()] == [
        (1, "k-1", "r-1", "A"),
        (2, None, "r-2", "B"),
    ]
    assert provider.count(key="k-1") == provider.count(request_id="r-2") == provider.count(tenant="B") == 1


def test_each_kind_is_numbered_apart_and_counted_together(provider: CountingProvider) -> None:
    provider.post("tickets", BODY)
    charge = provider.post("charges", {"amount": 5})

    assert charge.body == {"id": 1, "amount": 5}
    assert provider.count() == 2
    assert provider.count("charges") == 1
    assert [one.number for one in provider.accepted()] == [1, 2]


def test_the_count_endpoint_totals_by_kind_key_request_and_tenant(provider: CountingProvider) -> None:
    provider.post("mails", {"request_id": "r-1", "tenant": "A"}, key="k-1")
    counts = provider._ask("/count")

    assert counts["total"] == counts["received"] == 1
    assert counts["kinds"] == {"mails": 1}
    assert counts["keys"] == {"k-1": 1}
    assert counts["request_ids"] == {"r-1": 1}
    assert counts["tenants"] == {"A": 1}
    assert counts["accepted"][0]["body"] == {"request_id": "r-1", "tenant": "A"}


def test_a_malformed_body_is_refused_and_not_accepted(provider: CountingProvider) -> None:
    reply = provider._send("POST", "/tickets", ["no object"], {}, 5)

    assert (reply.status, reply.body["accepted"]) == (400, False)
    assert provider.count() == 0


def test_reset_forgets_counts_keys_faults_and_settings(provider: CountingProvider) -> None:
    provider.post("tickets", BODY, key="k-1")
    provider.order("refuse-400")
    provider.configure(Settings(lookup=False))
    provider.reset()

    assert provider.count() == provider.received() == 0
    assert provider.post("tickets", {"title": "Other"}, key="k-1").status == 201
    assert provider.find("tickets", "k-1").status == 200


# -- keys


def test_a_repeated_key_gets_the_same_ticket(provider: CountingProvider) -> None:
    first = provider.post("tickets", BODY, key="k-1")
    again = provider.post("tickets", BODY, key="k-1")

    assert again.body == first.body
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert (provider.count(), provider.received()) == (1, 2)


@pytest.mark.parametrize(("kind", "body"), [("tickets", {"title": "Other"}), ("charges", BODY)])
def test_a_key_with_other_content_is_refused(provider: CountingProvider, kind: str, body: dict[str, str]) -> None:
    provider.post("tickets", BODY, key="k-1")

    assert provider.post(kind, body, key="k-1").status == 422
    assert provider.count() == 1


def test_true_is_not_one_under_a_key(provider: CountingProvider) -> None:
    provider.post("tickets", {"urgent": 1}, key="k-1")

    assert provider.post("tickets", {"urgent": True}, key="k-1").status == 422


def test_a_concurrent_twin_is_refused_until_the_first_is_answered(
    provider: CountingProvider, pool: ThreadPoolExecutor
) -> None:
    provider.order("hold-before-accept")
    first = pool.submit(provider.post, "tickets", BODY, "k-1")
    provider.wait_held()

    assert provider.post("tickets", BODY, key="k-1").status == 409
    provider.release()
    assert first.result().status == 201
    assert provider.post("tickets", BODY, key="k-1").headers["idempotent-replayed"] == "true"
    assert provider.count() == 1


def test_threads_hammering_one_key_leave_one_ticket(provider: CountingProvider, pool: ThreadPoolExecutor) -> None:
    def hammer(_: int) -> Reply:
        return provider.post("tickets", BODY, key="k-1")

    replies = list(pool.map(hammer, range(80)))

    assert {reply.status for reply in replies} <= {201, 409}
    assert {reply.body["id"] for reply in replies if reply.status == 201} == {1}
    assert (provider.count(), provider.received()) == (1, 80)


def test_without_keys_a_repeat_is_accepted_again(provider: CountingProvider) -> None:
    provider.configure(Settings(keys=False))

    assert [provider.post("tickets", BODY, key="k-1").body["id"] for _ in range(2)] == [1, 2]
    assert provider.count(key="k-1") == 2


def test_a_key_is_forgotten_after_its_lifetime(provider: CountingProvider) -> None:
    provider.configure(Settings(key_lifetime=86_400))
    provider.post("tickets", BODY, key="k-1")
    provider.advance(86_000)
    assert provider.post("tickets", BODY, key="k-1").body["id"] == 1

    provider.advance(400)
    assert provider.post("tickets", BODY, key="k-1").body["id"] == 2


# -- look-ups


def test_a_lookup_finds_by_key_and_by_request_id(provider: CountingProvider) -> None:
    provider.post("tickets", {"title": "T", "request_id": "r-1"}, key="k-1")
    ticket = {"id": 1, "title": "T", "request_id": "r-1"}

    assert provider.find("tickets", "k-1").body == {"found": [ticket]}
    assert provider.find("tickets", request_id="r-1").body == {"found": [ticket]}


def test_absence_is_an_answer_of_its_own(provider: CountingProvider) -> None:
    assert provider.find("tickets", "k-1")[::2] == (200, {"found": []})


def test_a_lagging_lookup_sees_a_ticket_only_after_its_lag(provider: CountingProvider) -> None:
    provider.configure(Settings(lag=3_600))
    provider.post("tickets", BODY, key="k-1")
    assert provider.count() == 1
    assert provider.find("tickets", "k-1").body == {"found": []}

    provider.advance(3_600)
    assert len(provider.find("tickets", "k-1").body["found"]) == 1


def test_a_provider_without_lookups_says_so(provider: CountingProvider) -> None:
    provider.configure(Settings(lookup=False))
    reply = provider.find("tickets", "k-1")

    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"


# -- faults


def test_every_fault_has_its_behaviour() -> None:
    assert set(get_args(FaultName)) == set(BEHAVIOURS)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("refuse-400", 400), ("refuse-402", 402), ("busy-429", 429), ("unavailable-503", 503)],
)
def test_a_refusal_promises_that_nothing_was_accepted(
    provider: CountingProvider, fault: FaultName, status: int
) -> None:
    provider.order(fault)
    reply = provider.post("tickets", BODY, key="k-1")

    assert (reply.status, reply.body["status"], reply.body["accepted"]) == (status, status, False)
    assert reply.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in reply.headers) == (status in (429, 503))
    assert provider.count() == 0
    assert provider.post("tickets", BODY, key="k-1").status == 201


@pytest.mark.parametrize(("fault", "accepted"), [("error-500-before-accept", 0), ("error-500-after-accept", 1)])
def test_an_internal_error_promises_nothing(provider: CountingProvider, fault: FaultName, accepted: int) -> None:
    provider.order(fault)
    reply = provider.post("tickets", BODY)

    assert (reply.status, "accepted" in reply.body) == (500, False)
    assert provider.count() == accepted


@pytest.mark.parametrize(
    ("fault", "error", "accepted"),
    [
        ("drop-before-accept", RemoteDisconnected, 0),
        ("drop-reply", RemoteDisconnected, 1),
        ("reset-reply", ConnectionResetError, 1),
        ("cut-reply", IncompleteRead, 1),
    ],
)
def test_a_broken_wire_shows_as_the_error_it_is(
    provider: CountingProvider, fault: FaultName, error: type[Exception], accepted: int
) -> None:
    provider.order(fault)
    with pytest.raises(error) as raised:
        provider.post("tickets", BODY, key="k-1")

    assert raised.type is error
    assert (provider.count(), provider.received()) == (accepted, 1)
    assert provider.post("tickets", BODY, key="k-1").body["id"] == 1
    assert provider.count() == 1


@pytest.mark.parametrize(("fault", "accepted"), [("hold-before-accept", 0), ("hold", 1)])
def test_a_held_answer_waits_for_its_release(
    provider: CountingProvider, pool: ThreadPoolExecutor, fault: FaultName, accepted: int
) -> None:
    provider.order(fault)
    reply = pool.submit(provider.post, "tickets", BODY, "k-1")

    (held,) = provider.wait_held()
    assert (held.kind, held.key, held.accepted) == ("tickets", "k-1", bool(accepted))
    assert provider.count() == accepted
    assert not reply.done()

    assert provider.release() == 1
    assert reply.result().body["id"] == 1
    assert provider.count() == 1


def test_a_caller_may_give_up_while_its_answer_is_held(provider: CountingProvider) -> None:
    provider.order("hold-before-accept")
    with pytest.raises(TimeoutError):
        provider.post("tickets", BODY, timeout=0.05)
    provider.wait_held()
    assert provider.count() == 0

    provider.release()
    assert len(provider.wait_accepted()) == 1


def test_held_answers_are_released_one_key_at_a_time(provider: CountingProvider, pool: ThreadPoolExecutor) -> None:
    provider.order("hold", "hold")
    replies = {key: pool.submit(provider.post, "tickets", BODY, key) for key in ("k-1", "k-2")}
    provider.wait_held(2)

    assert provider.release("k-2") == 1
    replies["k-2"].result()
    assert [held.key for held in provider.wait_held()] == ["k-1"]
    provider.release()
    replies["k-1"].result()


def test_a_reset_lets_go_of_what_is_held_and_accepts_none_of_it(
    provider: CountingProvider, pool: ThreadPoolExecutor
) -> None:
    provider.order("hold-before-accept")
    reply = pool.submit(provider.post, "tickets", BODY)
    provider.wait_held()
    provider.reset()

    assert isinstance(reply.exception(), RemoteDisconnected)
    assert provider.count() == 0


def test_waiting_in_vain_is_a_timeout(provider: CountingProvider) -> None:
    with pytest.raises(TimeoutError, match="expected 1, saw 0"):
        provider.wait_held(timeout=0.01)
    with pytest.raises(TimeoutError, match="expected 2, saw 0"):
        provider.wait_accepted(2, timeout=0.01)


def test_faults_are_spent_in_order_by_the_posts_they_match(provider: CountingProvider) -> None:
    provider.order(Fault(name="refuse-402", kind="charges"), "busy-429", Fault(name="refuse-400", key="k-1"))

    assert provider.post("tickets", BODY).status == 429
    assert provider.post("tickets", BODY).status == 201
    assert provider.post("tickets", BODY, key="k-1").status == 400
    assert provider.post("charges", BODY).status == 402
    assert provider.post("charges", BODY).status == 201


def test_an_unknown_fault_is_refused(provider: CountingProvider) -> None:
    with pytest.raises(ValueError, match="unknown faults"):
        provider.order(Fault(name="catch-fire"))  # type: ignore[arg-type]  # the point of the test


def test_nobody_listening_is_a_refused_connection() -> None:
    with CountingProvider() as gone:
        pass
    with pytest.raises(ConnectionRefusedError):
        gone.post("tickets", BODY)


# -- killed clients


def test_a_client_is_killed_after_its_effect_was_accepted(provider: CountingProvider) -> None:
    provider.order("kill-client")
    with start("-c", POSTER, provider.url, "tickets") as child:
        output, _ = child.communicate(timeout=30)

    assert (child.returncode, output) == (-signal.SIGKILL, "")
    assert provider.count(key="k-1") == 1
    with start("-c", POSTER, provider.url, "tickets") as second:
        assert second.communicate(timeout=30)[0] == "answered\n"
    assert (provider.count(), provider.received()) == (1, 2)


@pytest.mark.parametrize("named", [{"X-Client-Pid": pid} for pid in ("", "0", "-1", "1")] + [{}])
def test_the_provider_kills_neither_groups_nor_its_own_parent(
    provider: CountingProvider, named: dict[str, str]
) -> None:
    provider.order("kill-client")
    reply = provider.post("tickets", BODY, headers=named)

    assert (reply.status, reply.body["code"]) == (400, "no-client-pid")
    assert provider.count() == 0


# -- the provider's own end


@needs_pidfd
def test_a_killed_test_run_leaves_no_orphan() -> None:
    script = """
from counterfoil.testing.provider_client import CountingProvider
provider = CountingProvider()
print(provider.pid, flush=True)
input()
"""
    with start("-c", script, stdin=subprocess.PIPE) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.kill()
    wait_for_end_of(pid)


@needs_pidfd
def test_the_provider_ends_with_its_parent_though_the_pipe_stays_open() -> None:
    script = """
import subprocess, sys
provider = subprocess.Popen([sys.executable, "-m", "counterfoil.testing.provider"], stdout=subprocess.PIPE)
provider.stdout.readline()
print(provider.pid, flush=True)
provider.wait()
"""
    kept_open, inherited = os.pipe()[::-1]
    with start("-c", script, stdin=inherited) as run:
        os.close(inherited)
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.kill()
    wait_for_end_of(pid)
    os.close(kept_open)


def test_the_provider_ends_when_its_pipe_is_closed() -> None:
    with start("-m", "counterfoil.testing.provider", "--no-keys", stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        assert [ProviderClient(url).post("tickets", BODY, key="k").body["id"] for _ in range(2)] == [1, 2]
        process.stdin.close()
        assert process.wait(timeout=10) == 0


def test_a_forked_copy_does_not_close_the_provider(provider: CountingProvider) -> None:
    child = multiprocessing.get_context("fork").Process(target=provider.close)
    child.start()
    child.join()

    assert provider.count() == 0


def test_the_settings_reach_the_process() -> None:
    with CountingProvider(Settings(keys=False, lookup=False, lag=1.5, key_lifetime=60)) as provider:
        assert provider.find("tickets", "k-1").status == 404
        provider.post("tickets", BODY, key="k-1")
        assert provider.post("tickets", BODY, key="k-1").body["id"] == 2
