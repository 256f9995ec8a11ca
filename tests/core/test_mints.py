"""Whether a step may mint an id is decided from a part of its line, as it would be from all of it."""

from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.history import Ancestor
from counterfoil.core.workflows import Minted, decide_mint, oldest_needed

Place = tuple[int, int | None, str]
"""A checkpoint: its place in the order of commits, its parent's, and its source."""


@st.composite
def threads(draw: st.DrawFn) -> list[Place]:
    """A thread whose checkpoints each follow an earlier one, or none."""
    size = draw(st.integers(1, 12))
    parents = [draw(st.none() | st.integers(1, seq - 1)) if seq > 1 else None for seq in range(1, size + 1)]
    return [(seq, parent, draw(st.sampled_from(["loop", "input", "update"]))) for seq, parent in enumerate(parents, 1)]


def line(thread: list[Place], seq: int | None, oldest: int) -> list[Ancestor]:
    """Return what the database gives: the checkpoint itself, and ancestors that are not older than asked."""
    found: list[Ancestor] = []
    while seq is not None and (not found or seq >= oldest):
        _, parent, source = thread[seq - 1]
        found.append(Ancestor(checkpoint_id=str(seq), source=source))
        seq = parent
    return found


@given(threads(), st.lists(st.tuples(st.integers(1, 15), st.sampled_from("ab")), max_size=5), st.data())
def test_a_part_of_the_line_is_enough(thread: list[Place], places: list[tuple[int, str]], data: st.DataObject) -> None:
    minted = [  # some on checkpoints that are gone
        Minted(str(seq), task, f"mint-{seq}", seq if seq <= len(thread) else None) for seq, task in places
    ]
    here = data.draw(st.integers(1, len(thread)))
    back = oldest_needed(minted, checkpoint_id=str(here))
    told = [
        decide_mint(minted, line(thread, here, oldest), checkpoint_id=str(here), task_id="a")
        for oldest in (0, here if back is None else back)
    ]
    assert told[0] == told[1]
