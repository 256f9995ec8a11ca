"""A server that counts the requests it read, and misbehaves in one way: the judge of what a client really sent."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

REPLY = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{'id':1}".replace(
    b"'", b'"'
)
MOVED = b"HTTP/1.1 303 See Other\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


class Faulty:
    """Serve each connection in a thread; `on_open` may end a connection, `on_request` says what follows a request.

    Both get the connection; `on_request` returns whether the connection is read on.
    """

    def __init__(
        self,
        on_request: Callable[["Faulty", socket.socket], bool],
        on_open: Callable[["Faulty", socket.socket], bool] = lambda _, __: True,
        location: str = "",
    ) -> None:
        self.on_request: Final = on_request
        self.on_open: Final = on_open
        self.location: Final = location
        self.lines: list[bytes] = []
        self.keys: list[bytes] = []
        self.ended: Final = threading.Event()
        self._socket: Final = socket.create_server(("127.0.0.1", 0))
        self.port: Final[int] = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/things"

    @property
    def requests(self) -> int:
        return len(self.lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.stop_listening()
        for each in self._open:
            each.close()

    def stop_listening(self) -> None:
        """Refuse new connections from here on."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ssl.SSLError):
            if not self.on_open(self, connection):
                return
            while self._read(connection):
                if not self.on_request(self, connection):
                    return
            connection.close()

    def _read(self, connection: socket.socket) -> bool:
        """Read one request to its end and count it; False where there is none."""
        head, found, body = b"", b"", b""
        while not found:
            piece = connection.recv(65536)
            if not piece:
                return False
            head, found, body = (head + piece).partition(b"\r\n\r\n")
            head = head if found else head + body
        fields = {
            k.strip().lower(): v.strip() for k, _, v in (each.partition(b":") for each in head.split(b"\r\n")[1:])
        }
        if b"100-continue" in fields.get(b"expect", b""):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(body) < int(fields.get(b"content-length", b"0")):
            body += connection.recv(65536)
        self.lines.append(head.split(b"\r\n")[0])
        self.keys.append(fields.get(b"idempotency-key", b""))
        return True


# --- what follows a request -------------------------------------------------------------------------------------------


def answer(_: Faulty, connection: socket.socket) -> bool:
    connection.sendall(REPLY)
    return True


def close(_: Faulty, connection: socket.socket) -> bool:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()
    return False


def reset(_: Faulty, connection: socket.socket) -> bool:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return False


def reset_at_first_byte(server: Faulty, connection: socket.socket) -> bool:
    connection.recv(1)
    return reset(server, connection)


def stall(server: Faulty, _: socket.socket) -> bool:
    server.ended.wait(10)
    return False


def garbage(server: Faulty, connection: socket.socket) -> bool:
    connection.sendall(b"\x00\x01 this is not HTTP\r\n\r\n")
    return close(server, connection)


def cut_body(server: Faulty, connection: socket.socket) -> bool:
    connection.sendall(REPLY[:-4])
    return close(server, connection)


def answer_then_close(server: Faulty, connection: socket.socket) -> bool:
    """Answer the first request of a connection, and close it on the second, having read it."""
    if server.requests == 1:
        return answer(server, connection)
    return close(server, connection)


def close_and_stop(server: Faulty, connection: socket.socket) -> bool:
    """The same, and refuse every new connection."""
    if server.requests == 1:
        return answer(server, connection)
    server.stop_listening()
    time.sleep(0.05)
    return close(server, connection)


def moved(server: Faulty, connection: socket.socket) -> bool:
    connection.sendall(MOVED % server.location.encode())
    return True


def forbid(_: Faulty, connection: socket.socket) -> bool:
    connection.sendall(FORBIDDEN)
    return True


def status(code: int, *headers: str, body: bytes = b"") -> Callable[[Faulty, socket.socket], bool]:
    """Return what answers with a status."""
    lines = [f"HTTP/1.1 {code} Said", *headers, f"Content-Length: {len(body)}"]
    reply = "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def say(_: Faulty, connection: socket.socket) -> bool:
        connection.sendall(reply)
        return True

    return say


def refuse_after_lost_reply(server: Faulty, connection: socket.socket) -> bool:
    """Read the request, close without an answer, and refuse new connections."""
    server.stop_listening()
    time.sleep(0.05)
    return close(server, connection)


def speaks_no_tls(_: Faulty, connection: socket.socket) -> bool:
    connection.recv(1)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.close()
    return False


def in_turn(*steps: Callable[[Faulty, socket.socket], bool]) -> Callable[[Faulty, socket.socket], bool]:
    """Return what follows the first request, the second and so on; the last goes for all that come later."""

    def say(server: Faulty, connection: socket.socket) -> bool:
        return steps[min(server.requests, len(steps)) - 1](server, connection)

    return say


def cut(step: Callable[[Faulty, socket.socket], bool]) -> Callable[[Faulty, socket.socket], bool]:
    """Return what sends an answer but for its last bytes."""

    class Short:
        def __init__(self, connection: socket.socket) -> None:
            self.connection = connection

        def sendall(self, data: bytes) -> None:
            self.connection.sendall(data[:-4])

    def say(server: Faulty, connection: socket.socket) -> bool:
        step(server, Short(connection))  # type: ignore[arg-type]  # all that it uses
        return close(server, connection)

    return say
