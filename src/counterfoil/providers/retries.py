"""Find clients that send a request again by themselves: without a provider's key, that is a second effect."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from counterfoil.core.outcomes import root
from counterfoil.errors import HiddenRetries
from counterfoil.providers.tables import HOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def hidden_retries(client: object) -> str | None:
    """Say in a few words what makes a client send a request again by itself, or None if nothing is known to.

    What is looked at: the `Retry` of requests and urllib3, transports of httpx that are not its own, and the attempts
    of botocore. Repeated connecting is harmless: nothing had been sent.
    """
    found = (inspect(client) for inspect in _known(client, "hidden_retries"))
    return next((str(each) for each in found if each is not None), None)


def _known(client: object, name: str) -> Iterator[Callable[[Any], Any]]:
    """Return the functions of one name in the files that know a client's class."""
    for home in dict.fromkeys(HOMES[root(each)] for each in type(client).__mro__ if root(each) in HOMES):
        if (function := getattr(import_module(f"{__package__}.{home}"), name, None)) is not None:
            yield function


def let_send_once(client: object) -> None:
    """Make sure that a client sends once what an effect asks of it, or refuse to hand it out.

    Raises:
        HiddenRetries: it sends again by itself.
    """
    if (found := hidden_retries(client)) is not None:
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        raise HiddenRetries(
            f"The {kind} of this effect would send again by itself ({found}), and its provider declares no key, so that"
            " each send is an effect of its own. Nothing was sent. Switch the retries off, or, if the provider honours"
            " keys, declare Provider(key_lifetime=...) and send call.provider_key.",
            sent=0,
        )
    for guard in _known(client, "guard"):
        guard(client)
