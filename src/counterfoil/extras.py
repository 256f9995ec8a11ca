"""The line that installs what is missing into the very environment that runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def install_line(*packages: str) -> str:
    """Return a command that works as it is typed here, whichever `pip` comes first on the PATH.

    A virtual environment that was made without pip is served by uv.
    """
    python = shown(sys.executable or "python")
    pip = [python, "-m", "pip", "install"] if find_spec("pip") else ["uv", "pip", "install", "--python", python]
    words = [*pip, *packages]
    return subprocess.list2cmdline(words) if os.name == "nt" else " ".join(map(_quoted, words))


def shown(program: str) -> str:
    """Return a path as it is typed in the working folder, if it lies below that; what it links to is not followed."""
    here = Path.cwd()
    return str(Path(program).relative_to(here)) if Path(program).is_relative_to(here) else program


def _quoted(word: str) -> str:
    return f"'{word}'" if word.endswith("]") else shlex.quote(word)
