"""B20: the code looked whether the request was pending, refunded, and only then marked it: two clicks, two refunds.

Sources: https://github.com/nitin27may/e-commerce-agents/issues/28, https://github.com/heymrun/heym/issues/563
"""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.errors import ApprovalRejected, DecisionConflict
from tests import children
from tests.cases import deciding
from tests.cases.counted import Counted
from tests.cases.deciding import TENANT, opened, refund

SOAK = pytest.mark.soak


def at_once(*works: Callable[[], Any]) -> list[Any]:
    start, results = threading.Barrier(len(works)), list[Any]()

    def one(work: Callable[[], Any]) -> None:
        start.wait()
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    threads = [threading.Thread(target=one, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_twenty_who_approve_at_once_make_one_decision_and_one_refund(counted: Counted, url: str) -> None:
    with opened(url, counted.provider) as cf:
        question = cf.approvals.request(refund, tenant=TENANT, request_id="r-1", amount=10)

        def click(name: str) -> Any:
            done = cf.approvals.approve(question.approval_id, tenant=TENANT, by=name)
            cf.perform(refund, tenant=TENANT, request_id="r-1", amount=10)
            return done.decided_by

        winners = at_once(*[lambda name=f"p{number}": click(name) for number in range(20)])
        assert [one for one in winners if isinstance(one, Exception)] == []
        assert len(set(winners)) == 1  # whoever came later is told who was first
        assert cf.perform(refund, tenant=TENANT, request_id="r-1", amount=10).answered_from == "receipt"
        approved = [one for one in cf.audit.list(tenant=TENANT).items if one.act == "approval.approve"]
        assert [one.who for one in approved] == winners[:1]
    assert counted.provider.count() == 1


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=SOAK)])
def test_approve_against_reject_in_threads(counted: Counted, url: str, rounds: int) -> None:
    with opened(url, counted.provider) as cf:
        won = 0
        for number in range(rounds):
            given: dict[str, Any] = {"tenant": TENANT, "request_id": f"r-{number}", "amount": 10}
            approval_id = cf.approvals.request(refund, **given).approval_id

            def yes() -> str:
                cf.approvals.approve(approval_id, tenant=TENANT, by="ann")  # noqa: B023 - joined in its round
                return "approved"

            def no() -> str:
                cf.approvals.reject(approval_id, tenant=TENANT, by="bob", reason="no")  # noqa: B023 - as above
                return "rejected"

            results = at_once(yes, no)
            (lost,) = [one for one in results if isinstance(one, DecisionConflict)]
            (winner,) = [one for one in results if isinstance(one, str)]
            assert lost.decided_by == {"approved": "ann", "rejected": "bob"}[winner]
            if winner == "approved":
                cf.perform(refund, **given)
            else:
                with pytest.raises(ApprovalRejected):
                    cf.perform(refund, **given)
            won += winner == "approved"
            assert counted.provider.count() == won


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=SOAK)])
def test_approve_against_reject_in_processes(counted: Counted, url: str, rounds: int) -> None:
    with opened(url, counted.provider) as cf:
        asked: list[dict[str, Any]] = [
            {"tenant": TENANT, "request_id": f"r-{number}", "amount": 10} for number in range(rounds)
        ]
        ids = [cf.approvals.request(refund, **given).approval_id for given in asked]
        people = [decider(url, "approve", "ann", ids), decider(url, "reject", "bob", ids[::-1])]
        for person in people:
            assert person.stdout is not None
            assert person.stdout.readline() == "ready\n"
        told = []
        for person in people:
            assert person.stdin is not None
            person.stdin.close()
        for person in people:
            assert person.stdout is not None
            told.append(person.stdout.read().split("\n")[:-1])
            assert person.wait() == 0
        answers = dict(zip(ids, told[0], strict=True)), dict(zip(ids[::-1], told[1], strict=True))
        won = Counter[str]()
        for approval_id, given in zip(ids, asked, strict=True):
            yes, no = answers[0][approval_id], answers[1][approval_id]
            assert (yes, no) in {("approved ann", "lost ann"), ("lost bob", "rejected bob")}
            won[yes] += 1
            if yes == "approved ann":
                cf.perform(refund, **given)
            else:
                with pytest.raises(ApprovalRejected):
                    cf.perform(refund, **given)
    assert counted.provider.count() == won["approved ann"]


def decider(url: str, ruling: str, by: str, ids: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, deciding.__file__, url, ruling, by, *ids]
    return children.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
