"""Charge and refund through Stripe's own client, under one idempotency key for all attempts.

Stripe keeps a key for at least 24 hours and answers a repeat with what it answered first, a 500 included; what was
turned away before it began, by a 429 or as invalid, it does not keep (docs.stripe.com/api/idempotent_requests). The key
and the operation's id stand in each object's metadata, by which a look-up finds it when the answer was lost.

Needs the extra `stripe`: pip install 'counterfoil[stripe]'.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.arguments import DECLARED
from counterfoil.errors import ContradictoryDeclaration, MissingExtra
from counterfoil.model import Absent, CannotTell, Found, LookupAnswer
from counterfoil.providers.stripe_errors import classify
from counterfoil.providing import Provider

try:
    import stripe
except ModuleNotFoundError:
    raise MissingExtra(
        "counterfoil.providers.stripe needs stripe, which is not installed: pip install 'counterfoil[stripe]'"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from counterfoil.core.durations import Duration
    from counterfoil.effects import EffectCall

__all__ = ["KEY_LIFETIME", "SEARCH_LAG", "SECRETS", "Objects", "classify", "client", "metadata", "options"]

KEY_LIFETIME: Final = "24h"
SEARCH_LAG: Final = "1h"
"""How far Stripe's search may be behind: under a minute as a rule, an hour in an outage (docs.stripe.com/search)."""
SECRETS: Final = ("client_secret",)
"""For `effect(redact=...)`: what lets whoever holds it act on a payment or setup intent."""
KEY_FIELD: Final = "counterfoil_key"
OPERATION_FIELD: Final = "counterfoil_operation"

_SEARCHABLE: Final = frozenset(
    {"charges", "customers", "invoices", "payment_intents", "prices", "products", "subscriptions"}
)
_LISTED: Final = 1000
"""Objects looked through at the most where there is no search; beyond that nothing is proved."""
_LONGEST_VALUE: Final = 500
"""Characters that a value in the metadata may have."""


def client(api_key: str, *, timeout: float = 20.0, **options: Any) -> stripe.StripeClient:
    """Return Stripe's client without its hidden retries, which are attempts that nobody would count.

    Args:
        timeout: Seconds for each request; Stripe's own default of 80 is longer than an effect's usual time limit.
        options: What `stripe.StripeClient` takes.
    """
    awaiting = stripe.HTTPXClient(timeout=timeout) if find_spec("httpx") else None
    http = stripe.RequestsClient(timeout=timeout, async_fallback_client=awaiting)
    return stripe.StripeClient(api_key, **{"http_client": http, **options, "max_network_retries": 0})


def options(call: EffectCall) -> stripe.RequestOptions:
    """Return the options of one request: the operation's key, and no hidden retries whatever the client says."""
    return {"idempotency_key": call.provider_key, "max_network_retries": 0}


def metadata(call: EffectCall) -> dict[str, str]:
    """Return what to add to an object's metadata, so that a look-up and a person find it."""
    return {KEY_FIELD: call.provider_key, OPERATION_FIELD: call.operation_id[:_LONGEST_VALUE]}


# --- one kind of object ----------------------------------------------------------------------------------------------


class Objects:
    """One kind of Stripe's objects: creates one for each operation, and finds it again.

    `Objects("payment_intents")`; the client is taken from `call.resource(stripe.StripeClient)`.

    Args:
        kind: Its name below `client.v1`, such as `"payment_intents"`, `"refunds"` or `"checkout.sessions"`.
        narrow: From the effect's arguments, the filters for a kind that can only be listed, such as
            `lambda *, intent, **_: {"payment_intent": intent}` for refunds.

    Raises:
        ContradictoryDeclaration: Stripe's client has no such kind, or it cannot be created.
    """

    def __init__(self, kind: str, *, narrow: Callable[..., Mapping[str, Any]] = lambda **_: {}) -> None:
        self.kind = DECLARED.text("stripe.Objects(kind=...)", kind)
        self._narrow = narrow
        if not hasattr(self._service(stripe.StripeClient("sk_never_used"), safely=True), "create"):
            raise ContradictoryDeclaration(
                f"stripe.Objects({kind!r}): Stripe's client has no v1.{kind}.create; write its name in the plural, such"
                " as 'payment_intents'."
            )

    def provider(self, *, lookup_lag: Duration | None = None) -> Provider:
        """Return what Stripe can do for them: keys, and a look-up by the metadata."""
        lag = SEARCH_LAG if self.kind in _SEARCHABLE else "0s"
        return Provider(key_lifetime=KEY_LIFETIME, lookup=self.find, lookup_lag=lookup_lag or lag, classify=classify)

    def create(self, call: EffectCall, params: Mapping[str, Any]) -> dict[str, Any]:
        """Create one under the operation's key, and return it as plain data.

        Raises:
            stripe.StripeError: what `classify` knows.
        """
        service = self._service(call.resource(stripe.StripeClient))
        return _plain(service.create(params=_marked(call, params), options=options(call)))

    async def create_async(self, call: EffectCall, params: Mapping[str, Any]) -> dict[str, Any]:
        """Create one; see `create`. Needs httpx."""
        service = self._service(call.resource(stripe.StripeClient))
        return _plain(await service.create_async(params=_marked(call, params), options=options(call)))

    def find(self, call: EffectCall, **arguments: Any) -> LookupAnswer:
        """Find the operation's object by its key: searched for, or among all that are listed where there is no search.

        One that is there and failed proves neither: under its key Stripe repeats what it said then.
        """
        service = self._service(call.resource(stripe.StripeClient))
        if self.kind in _SEARCHABLE:
            query = f"metadata['{KEY_FIELD}']:'{call.provider_key}'"
            return _told(service.search(params={"query": query}).data)
        params = {"limit": 100, **self._narrow(**arguments)}
        seen = list(islice(service.list(params=params).auto_paging_iter(), _LISTED + 1))
        mine = [each for each in seen if _plain(each).get("metadata", {}).get(KEY_FIELD) == call.provider_key]
        if not mine and len(seen) > _LISTED:
            return CannotTell(f"it is not among the {_LISTED} newest {self.kind}; declare narrow= to list fewer")
        return _told(mine)

    def _service(self, api: stripe.StripeClient, *, safely: bool = False) -> Any:
        service: Any = api.v1
        for name in self.kind.split("."):
            service = getattr(service, name, None) if safely else getattr(service, name)
        return service


def _marked(call: EffectCall, params: Mapping[str, Any]) -> dict[str, Any]:
    return {**params, "metadata": {**params.get("metadata", {}), **metadata(call)}}


def _plain(made: Any) -> dict[str, Any]:
    return dict(made.to_dict())


def _told(found: list[Any]) -> LookupAnswer:
    objects = sorted((_plain(each) for each in found), key=lambda each: each.get("created", 0))
    stand = [each for each in objects if not _has_failed(each)]
    ids = [each["id"] for each in objects]
    if stand:
        return Found(stand[0], {"ids": ids, "status": stand[0].get("status")})
    return CannotTell(f"{', '.join(ids)} was created and failed") if objects else Absent()


def _has_failed(made: Mapping[str, Any]) -> bool:
    status = made.get("status")
    return status == "failed" or (status == "requires_payment_method" and made.get("last_payment_error") is not None)
