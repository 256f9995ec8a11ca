"""A wire passes everything on, and does to it what a test orders; at an echo server and at a real PostgreSQL."""

import re
import select
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import Queue
from typing import Any

import psycopg
import pytest

from counterfoil.testing.wire import Counts, Wire
from tests.postgres.databases import Database

TIMEOUT = 10.0


class Echo(socketserver.ThreadingTCPServer):
    """Send back what comes, and keep what came and how each connection ended."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.heard: Queue[bytes] = Queue()
        self.endings: Queue[str] = Queue()
        self.accepted = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted += 1
        super().process_request(request, client_address)


class EchoHandler(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        try:
            while data := self.request.recv(65536):
                self.server.heard.put(data)
                self.request.sendall(data)
            self.server.endings.put("end")
        except ConnectionError as error:
            self.server.endings.put(type(error).__name__)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def wire(echo: Echo) -> Iterator[Wire]:
    with Wire("127.0.0.1", echo.port) as made:
        yield made


@pytest.fixture
def client(wire: Wire) -> Iterator[socket.socket]:
    with connected(wire) as made:
        assert said(made, b"hello") == b"hello"
        yield made


def connected(wire: Wire) -> socket.socket:
    return socket.create_connection((wire.host, wire.port), timeout=TIMEOUT)


def said(client: socket.socket, data: bytes) -> bytes:
    """Send, and return as many bytes as came back."""
    client.sendall(data)
    return received(client, len(data))


def received(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += client.recv(65536) or pytest.fail(f"the connection ended after {found!r}")
    return found


def heard(echo: Echo) -> bytes:
    return echo.heard.get(timeout=TIMEOUT)


def ending(echo: Echo) -> str:
    return echo.endings.get(timeout=TIMEOUT)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.settimeout(TIMEOUT)
    return False


# -- passing on


def test_it_passes_everything_on_and_counts_it(wire: Wire) -> None:
    with connected(wire) as one, connected(wire) as other:
        for _ in range(3):
            assert said(one, b"12345") == b"12345"
        assert said(other, b"123") == b"123"
    wire.wait_for("closed", more_than=1)
    assert wire.counts == Counts(connections=2, closed=2, round_trips=4, sends=4, sent_bytes=18, reply_bytes=18)


def test_a_difference_of_counts_is_what_happened_in_between(wire: Wire, client: socket.socket) -> None:
    before = wire.counts
    assert said(client, b"abc") == b"abc"
    assert wire.counts - before == Counts(round_trips=1, sends=1, sent_bytes=3, reply_bytes=3)


def test_many_sends_before_an_answer_are_one_round_trip(wire: Wire, client: socket.socket) -> None:
    before = wire.counts
    wire.hold("replies")
    for _ in range(5):
        sent = wire.counts.sends
        client.sendall(b"x")
        wire.wait_for("sends", more_than=sent)
    wire.release()
    assert received(client, 5) == b"xxxxx"
    after = wire.counts - before
    assert (after.round_trips, after.sends) == (1, 5)


def test_much_data_arrives_whole_though_neither_end_reads_at_once(wire: Wire) -> None:
    data = bytes(range(256)) * 20_000
    with connected(wire) as client, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(client.sendall, data)
        assert received(client, len(data)) == data
        sending.result(TIMEOUT)


def test_it_takes_no_more_than_the_target_reads() -> None:
    piece = bytes(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as idle, Wire("127.0.0.1", idle.getsockname()[1]) as wire:
        with connected(wire) as client:
            client.settimeout(0)
            taken = 0
            while taken < 64 * len(piece) and select.select([], [client], [], 0.5)[1]:
                taken += client.send(piece)
        assert taken < 64 * len(piece)


def test_each_direction_ends_by_itself(wire: Wire, echo: Echo, client: socket.socket) -> None:
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert received(client, 10) == b"last words"
    assert client.recv(1) == b""
    assert ending(echo) == "end"
    wire.wait_for("closed")
    assert wire.counts.cuts == 0


def test_a_client_that_breaks_off_breaks_off_at_the_target(wire: Wire, echo: Echo, client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert ending(echo) == "ConnectionResetError"


def test_a_target_that_is_not_there_breaks_the_connection_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Wire("127.0.0.1", port) as wire, pytest.raises(ConnectionError), connected(wire) as client:
        said(client, b"anybody?")


def test_a_url_leads_through_it(wire: Wire) -> None:
    url = "postgresql://anna:se%40cret@db.example:5433/tickets?sslmode=disable"
    through = f"postgresql://anna:se%40cret@127.0.0.1:{wire.port}/tickets?sslmode=disable"
    assert wire.through(url) == through
    assert wire.through("http://db.example/a") == f"http://127.0.0.1:{wire.port}/a"


# -- cutting


def test_a_cut_breaks_off_both_ends_of_all_and_serves_new_ones(wire: Wire, echo: Echo, client: socket.socket) -> None:
    with connected(wire) as second:
        said(second, b"two")
        wire.cut()
        assert (wire.counts.cuts, wire.counts.closed) == (2, 2)
        for each in (client, second):
            with pytest.raises(ConnectionResetError):
                each.recv(1)
    assert {ending(echo), ending(echo)} == {"ConnectionResetError"}
    with connected(wire) as third:
        assert said(third, b"three") == b"three"


def test_a_request_can_be_lost_on_its_way(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.cut_before_request(b"COMMIT")
    assert said(client, b"insert") == b"insert"
    assert heard(echo) == b"insert"
    with pytest.raises(ConnectionResetError):
        said(client, b"now COMMIT")
    assert ending(echo) == "ConnectionResetError"
    assert echo.heard.empty()


def test_a_client_can_be_cut_off_with_its_request_on_its_way(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.cut_after_request(b"COMMIT")
    with pytest.raises(ConnectionResetError):
        said(client, b"now COMMIT")
    assert heard(echo) == b"now COMMIT"
    assert ending(echo) == "end"  # the target could answer, and read to the end
    wire.wait_for("closed")


def test_a_reply_can_be_lost_on_its_way(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.cut_before_reply(b"COMMIT")
    with pytest.raises(ConnectionResetError):
        said(client, b"now COMMIT")
    assert heard(echo) == b"now COMMIT"


def test_a_cut_that_waits_works_once_and_on_one_connection(wire: Wire, client: socket.socket) -> None:
    wire.cut_before_request(b"COMMIT")
    with connected(wire) as other:
        with pytest.raises(ConnectionResetError):
            said(other, b"COMMIT")
        assert said(client, b"COMMIT") == b"COMMIT"
    assert wire.counts.cuts == 1


def test_a_match_may_be_any_pattern_and_come_in_pieces(wire: Wire, client: socket.socket) -> None:
    wire.cut_before_request(re.compile(rb"(?i)commit"))
    assert said(client, b"...Com") == b"...Com"
    assert said(client, b"mi") == b"mi"
    with pytest.raises(ConnectionResetError):
        said(client, b"t")


def test_what_passed_before_the_order_does_not_count(wire: Wire, client: socket.socket) -> None:
    assert said(client, b"COMMIT") == b"COMMIT"
    wire.cut_before_request(b"COMMIT")
    assert said(client, b";") == b";"
    with pytest.raises(ConnectionResetError):
        said(client, b"COMMIT")


# -- holding, swallowing, refusing


def test_held_bytes_arrive_in_their_order_when_released(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.hold()
    client.sendall(b"one")
    wire.wait_for("held")
    client.sendall(b"two")
    wire.wait_for("held", more_than=1)
    assert echo.heard.empty()
    wire.release()
    assert received(client, 6) == b"onetwo"


def test_a_held_reply_is_of_something_done(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.hold("replies")
    client.sendall(b"do it")
    assert heard(echo) == b"do it"
    wire.wait_for("held")
    assert is_silent(client)
    wire.release()
    assert received(client, 5) == b"do it"


def test_the_end_of_a_held_connection_waits_its_turn(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.hold("requests")
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    wire.wait_for("held", more_than=1)
    assert echo.endings.empty()
    wire.release()
    assert received(client, 10) == b"last words"
    assert ending(echo) == "end"


def test_a_connection_made_while_bytes_wait_is_served_later(wire: Wire) -> None:
    wire.hold()
    with connected(wire) as client:
        client.sendall(b"hello")
        wire.wait_for("held")
        wire.release()
        assert received(client, 5) == b"hello"


def test_a_black_hole_answers_nobody_and_ends_nothing(wire: Wire, echo: Echo, client: socket.socket) -> None:
    assert heard(echo) == b"hello"
    wire.black_hole()
    with connected(wire) as new:
        for each, seen in ((client, 0), (new, 1)):
            each.sendall(b"anybody?")
            wire.wait_for("swallowed", more_than=seen)
            assert is_silent(each)
    wire.wait_for("swallowed", more_than=2)  # the end of the new one
    assert echo.heard.empty()
    assert echo.endings.empty()
    wire.restore()
    with connected(wire) as later:
        assert said(later, b"hello") == b"hello"
    assert echo.accepted == 2


def test_after_a_black_hole_only_what_lost_nothing_goes_on(wire: Wire, client: socket.socket) -> None:
    with connected(wire) as quiet:
        assert said(quiet, b"hello") == b"hello"
        wire.black_hole()
        client.sendall(b"lost")
        wire.wait_for("swallowed")
        wire.restore()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert said(quiet, b"still here") == b"still here"
    with connected(wire) as new:
        assert said(new, b"and I") == b"and I"


def test_refusing_concerns_new_connections_until_it_is_over(wire: Wire, client: socket.socket) -> None:
    wire.refuse()
    wire.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(wire)
    assert said(client, b"still here") == b"still here"
    wire.restore()
    with connected(wire) as new:
        assert said(new, b"welcome") == b"welcome"


def test_restoring_forgets_what_was_ordered(wire: Wire, client: socket.socket) -> None:
    wire.cut_before_request(b"COMMIT")
    wire.hold()
    client.sendall(b"COMMIT")
    wire.wait_for("held")
    wire.restore()
    assert received(client, 6) == b"COMMIT"


def test_waiting_in_vain_says_what_was_seen(wire: Wire, client: socket.socket) -> None:
    with pytest.raises(TimeoutError, match=r"seen 1 connections, not more than 1"):
        wire.wait_for("connections", more_than=1, timeout=0)


@pytest.mark.parametrize("refusing", ["refusing", "serving"])
def test_closing_ends_everything(refusing: str, echo: Echo) -> None:
    wire = Wire("127.0.0.1", echo.port)
    with connected(wire) as client:
        said(client, b"hello")
        if refusing == "refusing":
            wire.refuse()
        wire.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(wire)
    assert ending(echo) == "ConnectionResetError"
    assert "counterfoil-wire" not in [thread.name for thread in threading.enumerate()]


# -- a real PostgreSQL


@pytest.fixture
def to_postgres(postgres_database: Database) -> Iterator[Wire]:
    postgres_database.execute("create table booking (n int)")
    server = postgres_database.server
    with Wire(server.host, server.port) as made:
        yield made


def in_a_transaction(wire: Wire, database: Database) -> "psycopg.Connection[tuple[object, ...]]":
    """Insert a row; the session keeps a lock as long as its server process lives."""
    session = psycopg.connect(wire.through(database.url))
    session.execute("select pg_advisory_lock(1)")
    session.execute("insert into booking values (1)")
    return session


def rows_when_its_session_is_over(database: Database) -> int:
    with psycopg.connect(database.url, autocommit=True) as observer:
        observer.execute("select pg_advisory_lock(1)")
        found = observer.execute("select count(*) from booking").fetchone()
        assert found is not None
        return int(found[0])


def test_a_commit_that_never_arrives_is_rolled_back(to_postgres: Wire, postgres_database: Database) -> None:
    with closing(in_a_transaction(to_postgres, postgres_database)) as session:
        to_postgres.cut_before_request(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            session.commit()
    assert rows_when_its_session_is_over(postgres_database) == 0


def test_a_commit_whose_client_is_cut_off_stands(to_postgres: Wire, postgres_database: Database) -> None:
    with closing(in_a_transaction(to_postgres, postgres_database)) as session:
        to_postgres.cut_after_request(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            session.commit()
    assert rows_when_its_session_is_over(postgres_database) == 1


def test_a_commit_whose_answer_is_lost_stands_at_once(to_postgres: Wire, postgres_database: Database) -> None:
    with closing(in_a_transaction(to_postgres, postgres_database)) as session:
        to_postgres.cut_before_reply(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            session.execute("commit")  # however it is written
        assert postgres_database.execute("select count(*) from booking") == [(1,)]


async def test_an_awaiting_client_is_cut_off_like_any_other(to_postgres: Wire, postgres_database: Database) -> None:
    session = await psycopg.AsyncConnection.connect(to_postgres.through(postgres_database.url))
    await session.execute("insert into booking values (1)")
    to_postgres.cut_before_reply(b"COMMIT")
    with pytest.raises(psycopg.OperationalError):
        await session.commit()
    await session.close()
    assert postgres_database.execute("select count(*) from booking") == [(1,)]


def test_round_trips_are_counted_as_the_client_waits(to_postgres: Wire, postgres_database: Database) -> None:
    with psycopg.connect(to_postgres.through(postgres_database.url), autocommit=True) as session:
        before = to_postgres.counts
        session.execute("select 1")
        alone = to_postgres.counts
        with session.transaction():
            session.execute("insert into booking values (1)")
        apart = to_postgres.counts
        with session.pipeline():
            for n in (1, 2, 3):
                session.execute("insert into booking values (%s)", [n])
        together = to_postgres.counts
    assert [(b - a).round_trips for a, b in ((before, alone), (alone, apart), (apart, together))] == [1, 3, 1]
    assert to_postgres.counts.connections == 1


def test_a_statement_whose_reply_is_held_has_been_carried_out(to_postgres: Wire, postgres_database: Database) -> None:
    with psycopg.connect(to_postgres.through(postgres_database.url), autocommit=True) as session:
        to_postgres.hold("replies")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(session.execute, "insert into booking values (1)")
            to_postgres.wait_for("held")
            assert postgres_database.execute("select count(*) from booking") == [(1,)]
            assert not running.done()
            to_postgres.release()
            assert running.result(TIMEOUT).rowcount == 1
