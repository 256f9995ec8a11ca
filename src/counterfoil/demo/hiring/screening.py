"""Screen CVs: read the file that a reference names, and score what it says.

A reference is a name and a digest. What a CV says is personal, and is in no checkpoint.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

Scorer = Callable[[str], int]
"""From what a CV says, how well it fits. A model fits in here: it is asked again only if its step was not stored."""

WEIGHTS: Final = {"python": 3, "postgresql": 3, "sql": 2, "queues": 2, "testing": 2, "team": 1}
CVS: Final = Path(__file__).with_name("cvs")


class Cv(TypedDict):
    """A CV as the workflow knows it: whose it is, which file, and the digest that the file must have."""

    candidate: str
    address: str
    file: str
    digest: str


class CvChanged(RuntimeError):
    """A CV is not the one that was handed in."""


def score(text: str) -> int:
    """Score by the words that occur: the same CV always gets the same score."""
    return sum(WEIGHTS.get(word, 0) for word in set(re.findall(r"\w+", text.lower())))


def handed_in(candidate: str, address: str, file: Path) -> Cv:
    """Return the reference to a CV."""
    return Cv(candidate=candidate, address=address, file=file.name, digest=_digest(file.read_bytes()))


@dataclass(frozen=True, slots=True)
class Screening:
    """Where CVs are, and how they are scored."""

    folder: Path = CVS
    scorer: Scorer = score

    def score(self, cv: Cv) -> int:
        """Score a CV.

        Raises:
            CvChanged: the file has another digest than when it was handed in.
        """
        content = (self.folder / cv["file"]).read_bytes()
        if _digest(content) != cv["digest"]:
            raise CvChanged(f"the CV of {cv['candidate']} is not the one that was handed in: {cv['file']}")
        return self.scorer(content.decode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
