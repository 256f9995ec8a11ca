"""Tell for certain that a holder of a claim is dead, where that can be told; otherwise its lease decides.

A holder's name carries the boot of its host, its process-id namespace, its process id and that process's start time.
If all but the last two are ours, the system can say whether that very process still exists: a reused process id has
another start time, a stopped process still exists, and a process of another container or host is never judged.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import cache
from pathlib import Path

_STARTED = 19  # start time among the fields of /proc/<pid>/stat after the name in brackets: field 22, proc(5)
_NAME = re.compile(r"[^@/]*@(?P<place>[0-9a-f]+-[0-9]+):(?P<pid>[0-9]+):(?P<started>[0-9]+)[:/]")


@cache
def place() -> str | None:
    """Name this boot and process-id namespace, or return None where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return None


def started(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot, or None if there is no such process (or no telling)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(rest[_STARTED - 1])


def is_dead(holder: str) -> bool:
    """Say whether a holder's process is certainly gone."""
    found = _NAME.match(holder)
    if found is None or place() is None or found["place"] != place():
        return False
    return started(int(found["pid"])) != int(found["started"])


def holder_name() -> str:
    """Name this process as a holder of claims: host, place, process, start time, and a random part.

    The random part tells two Counterfoils of one process apart.
    """
    pid = os.getpid()
    where = place() or "0-0"
    return f"{socket.gethostname().replace('/', '_')}@{where}:{pid}:{started(pid) or 0}:{secrets.token_hex(4)}"
