"""The connections of a wire: what passes, waits, is lost or is cut. All of it runs on the wire's own event loop."""

import asyncio
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

Direction: TypeAlias = Literal["requests", "replies"]
Moment: TypeAlias = Literal["before", "after"]
Note: TypeAlias = Callable[..., None]

_BOTH: Final[tuple[Direction, Direction]] = ("requests", "replies")
_OTHER: Final[dict[Direction, Direction]] = {"requests": "replies", "replies": "requests"}

# What came over a connection: bytes, its end (b"") or its breaking off.
_Piece: TypeAlias = bytes | None
_END: Final = b""
_BROKEN: Final = None

# Bytes of earlier pieces that a match may begin in: more than any word that a test looks for.
_MEMORY: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A cut that waits for its bytes."""

    direction: Direction
    moment: Moment
    pattern: re.Pattern[bytes]

    def is_sprung(self, before: bytes, piece: bytes) -> bool:
        """Tell whether a match ends in this piece; one that ended before has been seen already."""
        return any(found.end() > len(before) for found in self.pattern.finditer(before + piece))


@dataclass(slots=True, kw_only=True)
class Board:
    """What is switched on the wire, and the connections that are open."""

    target: tuple[str, int]
    note: Note
    holding: set[Direction] = field(default_factory=set)
    swallowing: bool = False
    traps: list[Trap] = field(default_factory=list)
    links: "set[Link]" = field(default_factory=set)

    def accept(self) -> asyncio.Protocol:
        """Make the client's end of a new connection."""
        return Link(self).ends["requests"]

    def spring(self, direction: Direction, before: bytes, piece: bytes) -> Trap | None:
        """Take the trap that these bytes set off, if any: each works once."""
        for trap in self.traps:
            if trap.direction == direction and trap.is_sprung(before, piece):
                self.traps.remove(trap)
                return trap
        return None

    def release(self) -> None:
        """Pass on what waits."""
        self.holding.clear()
        for link in list(self.links):
            link.flush()

    def restore(self) -> None:
        """Pass everything on again; a connection that lost bytes cannot go on and breaks off."""
        self.traps.clear()
        self.swallowing = False
        for link in [link for link in self.links if link.has_lost]:
            link.break_off()
        self.release()

    def swallow(self) -> None:
        """Lose everything from here on."""
        self.swallowing = True

    async def cut(self) -> None:
        """Break off all that is open, and wait until the sockets are closed."""
        broken = list(self.links)
        for link in broken:
            link.break_off()
        for link in broken:
            await link.gone.wait()


class End(asyncio.Protocol):
    """One end of a connection; `direction` is that of the bytes that come in here."""

    def __init__(self, link: "Link", direction: Direction) -> None:
        self.link: Final = link
        self.direction: Final = direction
        self.transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether this end is connected."""
        return self.transport is not None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up the connection."""
        self.transport = cast("asyncio.Transport", transport)
        self.link.made(self.direction)

    def data_received(self, data: bytes) -> None:
        """Hand on what came in."""
        self.link.arrived(self.direction, data)

    def eof_received(self) -> bool:
        """Hand on that nothing more will come in."""
        self.link.arrived(self.direction, _END)
        return True  # the other direction may go on

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that the connection broke off, unless it was closed from here."""
        self.transport = None
        if exc is not None:
            self.link.arrived(self.direction, _BROKEN)
        self.link.lost()

    def pause_writing(self) -> None:
        """Stop reading at the other end: this one takes no more."""
        other = self.link.ends[_OTHER[self.direction]].transport
        if other is not None:
            other.pause_reading()

    def resume_writing(self) -> None:
        """Read on at the other end."""
        other = self.link.ends[_OTHER[self.direction]].transport
        if other is not None:
            other.resume_reading()

    def write(self, data: bytes) -> None:
        """Send, if there is anybody to send to."""
        if self.transport is not None and self.is_open:
            self.transport.write(data)

    def write_eof(self) -> None:
        """Say that nothing more will be sent."""
        if self.transport is not None and self.is_open:
            with suppress(OSError):  # it has broken off, which is not noted yet
                self.transport.write_eof()

    def close(self) -> None:
        """Close after what is written has left."""
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Close at once, with a RST: a zero linger makes it one."""
        if self.transport is not None:
            raw: socket.socket = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


class Link:
    """One client's connection and the one to the target that belongs to it."""

    def __init__(self, board: Board) -> None:
        self._board: Final = board
        self.ends: Final[dict[Direction, End]] = {direction: End(self, direction) for direction in _BOTH}
        self._waiting: Final[dict[Direction, list[_Piece]]] = {direction: [] for direction in _BOTH}
        self._memory: Final[dict[Direction, bytes]] = dict.fromkeys(_BOTH, b"")
        self._ended: Final[set[Direction]] = set()
        self._turned_to: Direction = "replies"
        self._connecting: asyncio.Task[None] | None = None
        self._is_deaf = False  # to the target: its client is gone
        self.gone: Final = asyncio.Event()
        self.has_lost = False

    # -- what happens at the ends

    def made(self, direction: Direction) -> None:
        """Connect to the target as soon as a client has connected."""
        if direction == "replies":
            return
        self._board.links.add(self)
        self._board.note(connections=1)
        if self._board.swallowing:
            self.has_lost = True
        else:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.ends["replies"], *self._board.target)
        except OSError:
            self._waiting["requests"].append(_BROKEN)
        self._connecting = None
        self.flush()

    def arrived(self, direction: Direction, piece: _Piece) -> None:
        """Pass on, keep or lose what has come in."""
        if self._is_deaf:
            self._ignore(piece)
        elif self._board.swallowing:
            self.has_lost = True
            self._board.note(swallowed=1)
        elif self._must_wait(direction):
            self._waiting[direction].append(piece)
            self._board.note(held=int(direction in self._board.holding))
        else:
            self._pass_on(direction, piece)

    def _ignore(self, piece: _Piece) -> None:
        if not piece:
            self.ends["replies"].close()

    def _must_wait(self, direction: Direction) -> bool:
        held = direction in self._board.holding
        return held or self._connecting is not None or bool(self._waiting[direction])

    def lost(self) -> None:
        """Take note that an end has closed."""
        if self._connecting is None and not any(end.transport for end in self.ends.values()):
            self._board.links.discard(self)
            self._board.note(closed=int(not self.gone.is_set()))
            self.gone.set()

    # -- what is done about it

    def flush(self) -> None:
        """Pass on what waits and need not wait any longer."""
        for direction in _BOTH:
            while self._waiting[direction] and self._connecting is None and direction not in self._board.holding:
                self._pass_on(direction, self._waiting[direction].pop(0))

    def _pass_on(self, direction: Direction, piece: _Piece) -> None:
        if piece is _BROKEN:
            self._break()
        elif piece == _END:
            self._end(direction)
        else:
            self._send(direction, piece)

    def _end(self, direction: Direction) -> None:
        self._ended.add(direction)
        self.ends[_OTHER[direction]].write_eof()
        if len(self._ended) == len(_BOTH):
            for end in self.ends.values():
                end.close()

    def _send(self, direction: Direction, piece: bytes) -> None:
        before = self._memory[direction]
        self._memory[direction] = (before + piece)[-_MEMORY:]
        trap = self._board.spring(direction, before, piece)
        if trap is not None and trap.moment == "before":
            self.break_off()
            return
        self._count(direction, piece)  # first: who has read a reply finds it counted
        self.ends[_OTHER[direction]].write(piece)
        if trap is not None:
            self._leave_the_target_alone()

    def _count(self, direction: Direction, piece: bytes) -> None:
        turned = direction != self._turned_to
        self._turned_to = direction
        if direction == "requests":
            self._board.note(round_trips=int(turned), sends=1, sent_bytes=len(piece))
        else:
            self._board.note(reply_bytes=len(piece))

    def break_off(self) -> None:
        """Cut: both ends see a RST."""
        if any(end.is_open for end in self.ends.values()):
            self._board.note(cuts=1)
        self._break()

    def _leave_the_target_alone(self) -> None:
        """Cut the client off and let the target read to the end, which a RST could prevent."""
        self._is_deaf = True
        self._board.note(cuts=1)
        self.ends["requests"].reset()
        self.ends["replies"].write_eof()

    def _break(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        for waiting in self._waiting.values():
            waiting.clear()
        for end in self.ends.values():
            end.reset()
        self.lost()
