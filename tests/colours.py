"""One Counterfoil of either colour behind one blocking interface, for tests of the facades."""

import asyncio
import inspect
from operator import attrgetter
from typing import Any

from counterfoil import AsyncCounterfoil, Counterfoil
from counterfoil.desk import Desk
from counterfoil.model import Origin, Trusted
from counterfoil.storage.scripts import claims
from counterfoil.testing.clock import FakeClock

COLOURS = ("sync", "async")


class Coloured:
    """`call("review.resolve", ...)` runs the method of this name, awaiting it where the colour wants that."""

    def __init__(self, colour: str, url: str, **options: Any) -> None:
        self.clock = FakeClock()
        self.runner = asyncio.Runner()
        kind: Any = {"sync": Counterfoil, "async": AsyncCounterfoil}[colour]
        self.cf = kind.open(url, wait="0s", clock=self.clock, **options)

    @property
    def desk(self) -> Desk:
        desk: Desk = self.cf.desk
        return desk

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        result = attrgetter(name)(self.cf)(*args, **kwargs)
        return self.runner.run(result) if inspect.iscoroutine(result) else result

    def abandon(self, effect: Any, *, tenant: str, request_id: str, **arguments: Any) -> str:
        """Claim an operation and let nothing come of it, as a process does that dies in the middle."""
        trusted = Trusted(tenant=tenant, request_id=request_id)
        job = self.desk.job(effect, arguments, trusted, Origin())
        self.desk.store.write(lambda: claims.claim(job.request))
        return job.key.operation_id

    def close(self) -> None:
        self.call("close")
        self.runner.close()
