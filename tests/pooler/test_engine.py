"""Behind a pooler no notification arrives and no statement stays prepared: jobs are asked for, and all goes on."""

from pathlib import Path

import pytest

from counterfoil import Counterfoil
from counterfoil.engine.choosing import made_for
from tests.engine.fleet import until
from tests.engine.program import TENANT, Place, opened_at
from tests.postgres.databases import Database
from tests.postgres.pooler import Pooler

pytestmark = pytest.mark.slow


def test_procrastinate_wakes_workflows_behind_a_pooler(
    postgres_pooler: Pooler, fresh_database: Database, tmp_path: Path
) -> None:
    url = postgres_pooler.url(fresh_database.name)
    with Counterfoil.open(url) as cf:
        assert made_for(cf.desk.store)
    names = [f"w-{number}" for number in range(20)]
    with opened_at(Place(database=url, folder=str(tmp_path), engine="procrastinate")) as cf, cf.working():
        for name in names:
            cf.workflows.start("changing", {"order": name}, tenant=TENANT, workflow_id=name)
        for event in "12":  # the second one meets a job that waits already, or a workflow that is done
            for name in names:
                cf.workflows.deliver("word", tenant=TENANT, workflow_id=name, event_id=event)
        for name in names:
            until(lambda name=name: True if cf.workflows.get(name, tenant=TENANT).status == "done" else None)  # type: ignore[misc]
