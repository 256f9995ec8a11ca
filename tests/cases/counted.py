"""What the cases share: effects at a counting HTTP provider that runs in a process of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterfoil import Absent, Counterfoil, Effect, Found, NotSent, Provider, Receipt, Refused, effect
from counterfoil.testing.provider_client import CountingProvider, ProviderClient
from counterfoil.testing.provider_desk import Settings

KEYED = ("keyed", "both")


@dataclass
class Counted:
    """An effect that posts a ticket once, by what its provider can do; `skip` lets it die before the post.

    Attributes:
        patience_s: How long it waits for the answer; less where the answer is held and does not come.
    """

    provider: CountingProvider
    url: str = ""
    skip: bool = False
    posted: bool = False
    patience_s: float = 30.0

    def effect(self, kind: str, *, time_limit: str = "30s", after: Callable[[], Any] = lambda: None) -> Effect[Any]:
        def create(call: Any, *, title: str) -> Any:
            self.posted = True
            if self.skip:
                return None
            client = ProviderClient(self.url)
            reply = client.post("tickets", {"title": title}, key=call.provider_key, timeout=self.patience_s)
            after()
            return self.judged(reply)

        def find(call: Any, *, title: str) -> Found | Absent:
            found = ProviderClient(self.provider.url).find("tickets", key=call.provider_key).body["found"]
            return Found(found[0]) if found else Absent()

        self.url = self.url or self.provider.url
        self.provider.configure(Settings(keys=kind in KEYED))
        providers = {
            "opaque": Provider(),
            "keyed": Provider(key_lifetime="12h"),
            "queryable": Provider(lookup=find, lookup_lag="0s"),
            "both": Provider(lookup=find, lookup_lag="0s", key_lifetime="12h"),
        }
        return effect(
            f"cases.counted-{kind}", key="ticket:{request_id}", provider=providers[kind], time_limit=time_limit
        )(create)

    @staticmethod
    def judged(reply: Any) -> Any:
        if reply.status in {429, 503}:
            raise NotSent(f"status {reply.status}")
        if reply.status in {400, 402}:
            raise Refused(f"status {reply.status}")
        if reply.status != 201:
            raise ValueError(reply.status)
        return reply.body

    def perform(self, cf: Counterfoil, kind: str, *, url: str = "") -> Receipt[Any]:
        self.url = url or self.provider.url
        made = self.effect(kind)
        return cf.perform(made, tenant="t", request_id="r-1", title="Printer offline")
