"""A wire between a client and a server that a test can cut, hold, swallow and count: a TCP proxy on the loopback.

Traffic must be readable for the cuts that wait for certain bytes: switch TLS off (`sslmode=disable`).
"""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from counterfoil.testing.wire_links import Board, Direction, Moment, Trap

_One = TypeVar("_One")

Match: TypeAlias = bytes | re.Pattern[bytes]
Kind: TypeAlias = Literal[
    "connections", "closed", "round_trips", "sends", "sent_bytes", "reply_bytes", "held", "swallowed", "cuts"
]

_LOOPBACK: Final = "127.0.0.1"
# The loopback answers within milliseconds; this only bounds a test that has gone wrong.
_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What has happened on a wire; subtract an earlier count to see what happened since."""

    connections: int = 0
    """opened by clients"""
    closed: int = 0
    """of these, gone at both ends"""
    round_trips: int = 0
    """times that a client sent something when it was not sending already: exact, however the bytes were cut up"""
    sends: int = 0
    """pieces from clients that were passed on; sends in quick succession may arrive as one"""
    sent_bytes: int = 0
    reply_bytes: int = 0
    held: int = 0
    """pieces of either direction that had to wait"""
    swallowed: int = 0
    """pieces of either direction that were lost"""
    cuts: int = 0
    """connections that the wire cut"""

    def __sub__(self, earlier: "Counts") -> "Counts":
        return self.plus({each.name: -getattr(earlier, each.name) for each in fields(self)})

    def plus(self, more: dict[str, int]) -> "Counts":
        """Add to the counts named."""
        return Counts(**{each.name: getattr(self, each.name) + more.get(each.name, 0) for each in fields(self)})


_TURNS = 50
"""Of the loop, at the end of a wire: several may have been accepted at once, and each is on the board after some."""


class Wire:
    """Listen on a free port and pass everything on to the target, until told otherwise.

    All methods may be called from any thread and have taken effect when they return. A child that is forked while
    a wire is open shares its sockets and keeps them from breaking off.
    """

    def __init__(self, host: str, port: int) -> None:
        self._counts = Counts()
        self._changed: Final = threading.Condition()
        self._board: Final = Board(target=(host, port), note=self._note)
        self._socket = socket.create_server((_LOOPBACK, 0))
        self._server: asyncio.Server | None = None
        self.host: Final = _LOOPBACK
        self.port: Final[int] = self._socket.getsockname()[1]
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="counterfoil-wire", daemon=True)
        self._thread.start()
        self._do(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cut what is open and stop listening."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def through(self, url: str) -> str:
        """Return the URL with this wire in place of its host and port."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{self.host}:{self.port}").geturl()

    # -- faults

    def cut(self) -> None:
        """Break off every open connection: both ends see a RST. New ones are served."""
        self._do(self._board.cut())

    def cut_before_request(self, match: Match) -> None:
        """Break off the connection of the next request with these bytes, instead of passing it on."""
        self._set(match, "requests", "before")

    def cut_after_request(self, match: Match) -> None:
        """Pass on the next request with these bytes, and cut its client off before any reply.

        The target reads to the end and works on, so it may still be at it when the client already looks what became
        of its request.
        """
        self._set(match, "requests", "after")

    def cut_before_reply(self, match: Match) -> None:
        """Break off the connection of the next reply with these bytes: the target has done it, the client cannot know.

        PostgreSQL answers a COMMIT, however it was written, with the bytes `COMMIT`.
        """
        self._set(match, "replies", "before")

    def hold(self, direction: Direction | None = None) -> None:
        """Let all bytes wait, or those of one direction, until `release`; connections stay open and can be made."""
        directions: set[Direction] = {"requests", "replies"} if direction is None else {direction}
        self._do(_done(self._board.holding.update, directions))

    def release(self) -> None:
        """Pass on what waits, in its order, and what comes."""
        self._do(_done(self._board.release))

    def black_hole(self) -> None:
        """Swallow everything, the ends of connections too; new ones are accepted and hear nothing."""
        self._do(_done(self._board.swallow))

    def refuse(self) -> None:
        """Refuse new connections; open ones go on."""
        self._do(self._refuse())

    def restore(self) -> None:
        """Undo all of the above; a connection that has lost bytes breaks off, since it could only go on garbled."""
        self._do(self._restore())

    # -- counts

    @property
    def counts(self) -> Counts:
        """Return what has happened since the wire was opened."""
        with self._changed:
            return self._counts

    def wait_for(self, kind: Kind, *, more_than: int = 0, timeout: float = _TIMEOUT) -> None:
        """Return as soon as the count is above `more_than`, or raise TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: getattr(self._counts, kind) > more_than, timeout):
                seen = getattr(self._counts, kind)
                raise TimeoutError(f"The wire has seen {seen} {kind}, not more than {more_than}, in {timeout} s.")

    # -- inside

    def _note(self, **more: int) -> None:
        with self._changed:
            self._counts = self._counts.plus(more)
            self._changed.notify_all()

    def _set(self, match: Match, direction: Direction, moment: Moment) -> None:
        pattern = re.compile(re.escape(match)) if isinstance(match, bytes) else match
        trap = Trap(direction=direction, moment=moment, pattern=pattern)
        self._do(_done(self._board.traps.append, trap))

    def _do(self, work: Coroutine[Any, Any, _One]) -> _One:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT)

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(self._board.accept, sock=self._socket)

    async def _refuse(self) -> None:
        """Keep the port and stop listening on it."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._socket = socket.socket()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((self.host, self.port))

    async def _restore(self) -> None:
        self._board.restore()
        if self._server is None:
            await self._listen()

    async def _close(self) -> None:
        if self._server is None:
            self._socket.close()
        else:
            self._server.close()
        for _ in range(_TURNS):  # one that was accepted just now is on the board a few turns of the loop later
            await self._board.cut()
            await asyncio.sleep(0)


async def _done(work: Callable[..., None], *arguments: object) -> None:
    work(*arguments)
