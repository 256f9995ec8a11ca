"""Where the effects of the soak runs go: two counting providers, and whose they are."""

import os
from dataclasses import dataclass

from counterfoil.testing.provider_client import ProviderClient

TENANT = "team-a"
HONOURED, IGNORED = "COUNTERFOIL_SOAK_HONOURED", "COUNTERFOIL_SOAK_IGNORED"


@dataclass(frozen=True, slots=True)
class Providers:
    """Two counting providers: one honours keys, one ignores them."""

    honouring: ProviderClient
    ignoring: ProviderClient

    def of(self, kind: str) -> ProviderClient:
        return self.honouring if kind in {"keyed", "both"} else self.ignoring


def providers() -> Providers:
    """Return the providers that the environment names; any process of the run can."""
    return Providers(ProviderClient(os.environ[HONOURED]), ProviderClient(os.environ[IGNORED]))
