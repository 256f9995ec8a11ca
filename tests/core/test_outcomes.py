"""What an effect's exception says about the world, with the real clients' own exceptions on a real broken wire."""

import asyncio
import socket
import ssl
from http.client import HTTPException
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from counterfoil import NotSent, Refused
from counterfoil.core.outcomes import classify
from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.tables import ambiguous

NOT_SENT, REFUSED, UNKNOWN = AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED, AttemptOutcome.UNKNOWN


def judged(error: BaseException, **declared: Any) -> AttemptOutcome:
    return classify(error, not_sent=declared.get("not_sent", ()), refused=declared.get("refused", ()))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotSent(), NOT_SENT),
        (Refused(), REFUSED),
        (ConnectionRefusedError(), UNKNOWN),  # the tables of clients know more
        (TimeoutError(), UNKNOWN),
        (ConnectionResetError(), UNKNOWN),
        (ConnectionAbortedError(), UNKNOWN),
        (BrokenPipeError(), UNKNOWN),
        (OSError(), UNKNOWN),
        (ssl.SSLError(), UNKNOWN),
        (HTTPException(), UNKNOWN),
        (KeyboardInterrupt(), UNKNOWN),
        (asyncio.CancelledError(), UNKNOWN),
        (ExceptionGroup("one inside", [ConnectionRefusedError()]), UNKNOWN),
        (Exception(), UNKNOWN),
    ],
)
def test_only_what_provably_means_less_is_less_than_unknown(error: BaseException, outcome: AttemptOutcome) -> None:
    assert judged(error) is outcome


def test_a_refused_connection_that_is_only_the_context_of_another_error_proves_nothing() -> None:
    def second_server() -> None:
        try:
            raise ConnectionRefusedError  # noqa: TRY301 - a first server refused ...
        except ConnectionRefusedError as error:
            raise TimeoutError from error  # ... and the second one took it and was silent

    with pytest.raises(TimeoutError) as caught:
        second_server()
    assert judged(caught.value) is UNKNOWN


# --- declarations that would lie --------------------------------------------------------------------------------------


class Narrow(Exception):
    """Somebody's own error."""


@pytest.mark.parametrize(
    "declared",
    [
        Exception,
        BaseException,
        OSError,
        ConnectionError,
        TimeoutError,
        ConnectionResetError,
        BrokenPipeError,
        httpx.HTTPError,
        httpx.TransportError,
        httpx.TimeoutException,
        httpx.ReadTimeout,
        requests.RequestException,
        requests.Timeout,
        requests.ReadTimeout,
        requests.ConnectionError,
        aiohttp.ClientError,
        aiohttp.ServerTimeoutError,
        aiohttp.ServerDisconnectedError,
        asyncio.TimeoutError,
        asyncio.CancelledError,
    ],
)
def test_a_class_that_also_catches_a_lost_reply_cannot_be_declared(declared: type[BaseException]) -> None:
    assert ambiguous([declared]) == (declared.__name__,)


@pytest.mark.parametrize(
    "declared",
    [Narrow, ConnectionRefusedError, socket.gaierror, httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout],
)
def test_a_class_that_catches_no_lost_reply_can_be_declared(declared: type[BaseException]) -> None:
    assert ambiguous([declared]) == ()
    assert judged(declared("x"), not_sent=(declared,)) is NOT_SENT
    assert judged(declared("x"), refused=(declared,)) in {REFUSED, NOT_SENT}
