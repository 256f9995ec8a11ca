"""A claim whose COMMIT was still on its way when it was looked up: made again, it finds itself and not another."""

from typing import Any

import pytest

from counterfoil import Effect, Provider
from counterfoil.errors import OutcomeUnknown
from counterfoil.model import Origin, Trusted
from counterfoil.performing import Job
from counterfoil.storage.scripts import claims, threads
from counterfoil.storage.scripts.claims import Granted
from counterfoil.storage.scripts.threads import Claimed, ThreadKey, ThreadRequest
from tests.conformance.subject import Subject


def job_of(subject: Subject, ticket: Effect[Any]) -> Job:
    job: Job = subject.cf.desk.job(ticket, {"title": "a"}, Trusted(tenant="team-a", request_id="r-1"), Origin())
    return job


def test_a_claim_that_took_effect_after_its_look_up_is_granted(blocking: Subject) -> None:
    job, store = job_of(blocking, blocking.ticket()), blocking.cf.desk.store
    first = store.write(lambda: claims.claim(job.request), tenant="team-a")
    again = store.write(lambda: claims.claim(job.request), tenant="team-a")
    assert isinstance(first, Granted)
    assert again == first
    assert blocking.operation["attempt"] == 1


def test_the_claim_of_another_attempt_is_granted_too(blocking: Subject) -> None:
    def end() -> None:
        raise OSError

    ticket = blocking.ticket(end, provider=Provider(key_lifetime="1h"))
    with pytest.raises(OutcomeUnknown):
        blocking.perform(ticket, title="a")
    job, store = job_of(blocking, ticket), blocking.cf.desk.store
    version = blocking.operation["version"]
    first = store.write(lambda: claims.claim_resend(job.request, version), tenant="team-a")
    assert store.write(lambda: claims.claim_resend(job.request, version), tenant="team-a") == first
    assert (first.attempt, blocking.operation["attempt"]) == (2, 2)


def test_a_thread_s_claim_is_granted_too(blocking: Subject) -> None:
    request = ThreadRequest(
        key=ThreadKey(tenant="team-a", thread_id="t-1"),
        holder="h-1",
        lease=30_000,
        trusted={"request_id": None, "workflow_id": None, "principal": None},
        goes_on=False,
    )
    store = blocking.cf.desk.store
    first = store.write(lambda: threads.claim(request), tenant=request.key.tenant)
    assert isinstance(first, Claimed)
    assert store.write(lambda: threads.claim(request), tenant=request.key.tenant) == first
