"""Servers of the test kit in processes of their own: how they start, say where they are, and end with their parent."""

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector


def start(module: str, flags: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Run a module of this package, with pipes for its input, whose end it takes for its own, and its output."""
    # The child must find this very package, however this process came to import it.
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", module, *flags],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    """Return where the server listens, which it prints first.

    Raises:
        RuntimeError: it did not start.
    """
    line = process.stdout.readline().strip() if process.stdout else ""
    if not line:
        process.kill()
        process.communicate()
        raise RuntimeError("the server did not start; see its error output")
    return line


def wait_for_orphanhood(parent: int) -> None:
    """Block until the parent is gone or, where stdin is a pipe from it, that is closed."""
    with DefaultSelector() as selector:
        if _has_piped_stdin():
            selector.register(0, EVENT_READ, "stdin")
        # Forked siblings may keep the pipe open after the parent's death; its pidfd
        # tells at once. Not every system has one.
        with suppress(AttributeError, OSError):
            selector.register(os.pidfd_open(parent), EVENT_READ, "parent")
        if os.getppid() != parent:
            return  # it died before it could be watched
        while not any(_is_gone(key.data) for key, _ in selector.select()):
            pass


def _has_piped_stdin() -> bool:
    if sys.stdin is None:  # closed from the start: descriptor 0 is one of our own by now
        return False
    mode = os.fstat(0).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)  # asyncio gives its children sockets


def _is_gone(source: str) -> bool:
    return source == "parent" or not os.read(0, 4096)
