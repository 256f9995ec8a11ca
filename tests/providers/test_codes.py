"""Clients whose answers carry codes: gRPC, AWS, and databases by SQLSTATE."""

import json
import smtplib
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import psycopg
import psycopg.errors
import psycopg_pool
import pytest
import sqlalchemy
import stripe

from counterfoil import AttemptOutcome, Counterfoil, Provider, Refused, effect
from counterfoil.errors import EffectNotSent, EffectRefused, OutcomeUnknown
from counterfoil.providers import classify
from counterfoil.providers.grpc import NO_RETRIES
from counterfoil.providers.tables import never_left
from counterfoil.testing.wire import Wire
from tests.postgres.databases import Database
from tests.providers import faulty
from tests.providers.clients import by_botocore
from tests.providers.faulty import Faulty

NOT_SENT, REFUSED, UNKNOWN = AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED, AttemptOutcome.UNKNOWN


def raised(send: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever this client raises is what is judged
        send(*args, **kwargs)
    return caught.value


def meant(error: BaseException) -> AttemptOutcome | str:
    told = classify(error)
    if isinstance(told, Refused):
        assert told.covers_earlier is False
        return "refused at the door"
    return told or UNKNOWN


# --- gRPC -------------------------------------------------------------------------------------------------------------


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]  # it has no types
    """Counts its calls, and ends each with the code that is asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def service(self, handler_call_details: Any) -> Any:  # noqa: ARG002 - there is one method
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        if request != b"OK":
            context.abort(getattr(grpc.StatusCode, request.decode()), "said")
        return b"done"


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Service, str]]:
    handler = Service()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, f"127.0.0.1:{port}"
    server.stop(None).wait()


def by_grpc(target: str, code: str, **more: Any) -> Any:
    with grpc.insecure_channel(target, NO_RETRIES) as channel:
        return channel.unary_unary("/things.Things/Create")(code.encode(), timeout=more.get("timeout", 5))


CODES: dict[str, AttemptOutcome | str] = {
    **dict.fromkeys(("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"), REFUSED),
    **dict.fromkeys(("NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"), "refused at the door"),
    **dict.fromkeys(("UNAUTHENTICATED", "UNIMPLEMENTED"), "refused at the door"),
    **dict.fromkeys(("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "DATA_LOSS"), UNKNOWN),
    **dict.fromkeys(("ABORTED", "CANCELLED", "RESOURCE_EXHAUSTED"), UNKNOWN),
}


@pytest.mark.parametrize("code", CODES)
def test_a_code_of_grpc_is_judged_where_that_is_asked_for(service: tuple[Service, str], code: str) -> None:
    handler, target = service
    before = handler.calls
    error = raised(by_grpc, target, code)
    assert (meant(error), never_left(error), handler.calls - before) == (CODES[code], False, 1)


def test_every_code_of_grpc_is_sorted() -> None:
    assert CODES.keys() == {each.name for each in grpc.StatusCode} - {"OK"}


async def test_an_async_call_of_grpc_is_judged_alike(service: tuple[Service, str]) -> None:
    async with grpc.aio.insecure_channel(service[1]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/things.Things/Create")(b"INVALID_ARGUMENT", timeout=5)
    assert meant(caught.value) is REFUSED


def test_grpc_does_not_tell_a_refused_connection_from_a_lost_reply() -> None:
    """Both are UNAVAILABLE; only the text differs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert meant(raised(by_grpc, f"127.0.0.1:{taken.getsockname()[1]}", "OK", timeout=1)) is UNKNOWN
    with Faulty(faulty.close, on_open=faulty.reset_at_first_byte) as server:
        assert meant(raised(by_grpc, f"127.0.0.1:{server.port}", "OK", timeout=1)) is UNKNOWN


# --- AWS --------------------------------------------------------------------------------------------------------------


def said(status: int, code: str) -> Any:
    body = json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": "said"}).encode()
    return faulty.status(status, "Content-Type: application/x-amz-json-1.0", body=body)


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (400, "ThrottlingException", NOT_SENT),
        (400, "RequestThrottled", NOT_SENT),
        (403, "SlowDown", NOT_SENT),
        (503, "ServiceUnavailable", NOT_SENT),
        (400, "InvalidMessageContents", REFUSED),
        (403, "AccessDenied", "refused at the door"),
        (404, "QueueDoesNotExist", "refused at the door"),
        (400, "RequestTimeout", UNKNOWN),
        (400, "TransactionInProgressException", UNKNOWN),
        (409, "OperationAborted", UNKNOWN),
        (500, "InternalError", UNKNOWN),
    ],
)
def test_an_error_code_of_aws_is_judged_where_that_is_asked_for(
    status: int, code: str, outcome: AttemptOutcome | str
) -> None:
    with Faulty(said(status, code)) as server:
        error = raised(by_botocore, server.url)
        assert (meant(error), never_left(error), server.requests) == (outcome, False, 1)


def test_an_error_of_aws_that_comes_after_a_retry_is_unknown() -> None:
    with Faulty(faulty.in_turn(said(500, "InternalError"), said(400, "InvalidMessageContents"))) as server:
        assert meant(raised(by_botocore, server.url, attempts=3)) is UNKNOWN
        assert server.requests == 2


# --- databases --------------------------------------------------------------------------------------------------------

STATES: dict[str, AttemptOutcome] = {
    **dict.fromkeys(
        ("23505", "23503", "22001", "22P02", "42601", "42501", "42P01", "0A000", "28P01", "44000"), REFUSED
    ),
    **dict.fromkeys(("40001", "40P01", "55P03", "25006"), NOT_SENT),
    **dict.fromkeys(("57014", "57P01", "57P02", "40003", "08006", "58030", "53100", "XX000", "P0001"), UNKNOWN),
}


@pytest.mark.parametrize("state", STATES)
def test_an_sqlstate_is_judged_where_that_is_asked_for(state: str) -> None:
    driver = psycopg.errors.lookup(state)("said")
    wrapped = sqlalchemy.exc.DBAPIError("insert", {}, driver)
    assert meant(driver) is meant(wrapped) is STATES[state]
    assert not never_left(driver)
    assert not never_left(wrapped)


def test_a_driver_of_sqlalchemy_without_a_table_is_judged_by_the_code_that_it_has() -> None:
    class Driver(Exception):
        pgcode = "23505"

    assert meant(sqlalchemy.exc.DBAPIError("insert", {}, Driver())) is REFUSED
    assert meant(sqlalchemy.exc.DBAPIError("insert", {}, Exception())) is UNKNOWN
    assert meant(sqlalchemy.exc.InvalidRequestError()) is UNKNOWN


def by_psycopg(port: int, **more: Any) -> None:
    psycopg.connect(host="127.0.0.1", port=port, sslmode="disable", connect_timeout=2, **more).close()


def by_sqlalchemy(port: int) -> None:
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://u@127.0.0.1:{port}/d?sslmode=disable&connect_timeout=2")
    with engine.begin() as tx:
        tx.execute(sqlalchemy.text("insert into t values (1)"))


@pytest.mark.parametrize("connect", [by_psycopg, by_sqlalchemy])
def test_a_database_that_could_not_be_reached_was_sent_nothing(connect: Callable[[int], None]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert never_left(raised(connect, taken.getsockname()[1]))
    with Faulty(faulty.answer, on_open=faulty.reset_at_first_byte) as server:
        assert never_left(raised(connect, server.port))


async def test_an_async_connection_that_could_not_be_made_was_sent_nothing() -> None:
    with Faulty(faulty.answer, on_open=faulty.reset_at_first_byte) as server:
        with pytest.raises(psycopg.OperationalError) as caught:
            await psycopg.AsyncConnection.connect(host="127.0.0.1", port=server.port, sslmode="disable")
        assert never_left(caught.value)


def test_a_pool_without_a_connection_was_sent_nothing() -> None:
    with Faulty(faulty.stall, on_open=faulty.stall) as server:
        info = f"host=127.0.0.1 port={server.port} sslmode=disable connect_timeout=2"
        with psycopg_pool.ConnectionPool(info, min_size=1, open=True, timeout=0.1) as pool:
            error = raised(pool.getconn)
    assert (type(error), never_left(error)) == (psycopg_pool.PoolTimeout, True)


class Idle:
    """A connection of no database."""

    def rollback(self) -> None: ...

    def close(self) -> None: ...


def test_a_pool_of_sqlalchemy_that_is_used_up_was_sent_nothing() -> None:
    make: Any = Idle
    pool = sqlalchemy.pool.QueuePool(make, pool_size=1, max_overflow=0, timeout=0.1)
    held = pool.connect()
    error = raised(pool.connect)
    held.close()
    pool.dispose()
    assert (type(error), never_left(error)) == (sqlalchemy.exc.TimeoutError, True)


def commit_lost(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create temporary table t (n int)")
        connection.execute("insert into t values (1)")


def commit_lost_by_sqlalchemy(url: str) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as tx:
        tx.execute(sqlalchemy.text("create temporary table t (n int)"))


@pytest.mark.parametrize("commit", [commit_lost, commit_lost_by_sqlalchemy])
def test_a_commit_whose_reply_was_lost_is_unknown(postgres_database: Database, commit: Callable[[str], None]) -> None:
    server = postgres_database.server
    with Wire(server.host, server.port) as wire:
        url = wire.through(postgres_database.url)
        wire.cut_before_reply(b"COMMIT")
        error = raised(commit, f"{url}{'&' if '?' in url else '?'}sslmode=disable")
    assert (meant(error), never_left(error), wire.counts.cuts) == (UNKNOWN, False, 1)


def test_mail_and_stripe_are_judged_by_the_files_of_their_own() -> None:
    assert meant(smtplib.SMTPSenderRefused(550, b"no", "a@b.example")) is REFUSED
    assert meant(smtplib.SMTPServerDisconnected()) is UNKNOWN
    assert meant(stripe.CardError("declined", None, "card_declined")) is REFUSED  # type: ignore[no-untyped-call]


# --- through the ledger -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "error"), [("23505", EffectRefused), ("40001", EffectNotSent), ("57P01", OutcomeUnknown)]
)
def test_the_tables_are_a_classifier(state: str, error: type[Exception]) -> None:
    @effect("codes.row", key="{n}", provider=Provider(classify=classify))
    def insert(call: Any, *, n: str) -> None:
        raise psycopg.errors.lookup(state)

    with Counterfoil.open("sqlite:///:memory:") as cf, pytest.raises(error):
        cf.perform(insert, tenant="t", n=state)


def test_without_that_an_answer_is_nobodys_to_judge() -> None:
    @effect("codes.plain", key="{n}")
    def insert(call: Any, *, n: str) -> None:
        raise psycopg.errors.UniqueViolation

    with Counterfoil.open("sqlite:///:memory:") as cf, pytest.raises(OutcomeUnknown):
        cf.perform(insert, tenant="t", n="1")


def test_a_refusal_at_the_door_leaves_an_earlier_lost_reply_unknown() -> None:
    with Faulty(faulty.in_turn(faulty.close, faulty.status(401))) as server:
        import httpx

        @effect("codes.door", key="{n}", provider=Provider(key_lifetime="24h", classify=classify))
        def post(call: Any, *, n: str) -> None:
            httpx.post(server.url, headers={"Idempotency-Key": call.provider_key}).raise_for_status()

        with Counterfoil.open("sqlite:///:memory:") as cf:
            for _ in range(2):
                with pytest.raises(OutcomeUnknown):
                    cf.perform(post, tenant="t", n="1")
            assert [each.outcome for each in cf.operations.get("1", tenant="t").attempts] == ["unknown", "refused"]
