"""Read from an exception's traceback through which of its client's functions it came.

Some clients raise one class for the first send and for a hidden later one. The traceback tells them apart without a
word of text: a client's sending function stands in it with its own record of what it sent before. That is a client's
inside, so tests with the real clients hold it to the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def frames(error: BaseException | None, function: str, *modules: str) -> list[FrameType]:
    """Return the frames of one function of a client that an exception came through, the outermost first."""
    return [each for each in _all(error) if each.f_code.co_name == function and _module(each) in modules]


def modules(error: BaseException | None) -> set[str]:
    """Return the modules that an exception came through."""
    return {_module(each) for each in _all(error)}


def local(frame: FrameType, name: str, default: Any = None) -> Any:
    """Return a frame's local variable."""
    return frame.f_locals.get(name, default)


def _all(error: BaseException | None) -> Iterator[FrameType]:
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
