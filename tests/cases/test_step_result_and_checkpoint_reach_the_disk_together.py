"""B08: the result of a step and its checkpoint are written by separate jobs.

Which one reached the disk before a crash decides whether the step is repeated.

Sources: https://github.com/langchain-ai/langgraph/issues/8039, https://github.com/langchain-ai/langgraph/issues/8234

The managed graph, with both colours, is killed in tests/langgraph/test_kills.py; here are the weaker ways to run it.
"""

from pathlib import Path

import pytest

from tests.langgraph import test_enqueue_kills as enqueuing
from tests.langgraph.test_kills import assert_same, kills
from tests.strides import NEAR


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["durability-async", "plain", "plain-awaiting"])
def test_a_kill_between_the_two_repeats_no_effect_and_tears_nothing(url: str, tmp_path: Path, variant: str) -> None:
    first, killed = kills(url, tmp_path, variant, "after", str(NEAR))
    assert_same(first, killed)
    between = [run["point"] for run in killed if "_write" in run["point"] or "insert_checkpoint" in run["point"]]
    assert len(between) >= 5 // NEAR  # of eight or nine; where two jobs meet in the writer they share a COMMIT


@pytest.mark.soak
@pytest.mark.parametrize(("colour", "durability"), [("blocking", "sync"), ("awaiting", "async")])
def test_a_kill_at_either_side_of_any_commit_tears_no_outbox_row_from_the_result_of_its_step(
    url: str, tmp_path: Path, colour: str, durability: str
) -> None:
    told = enqueuing.kills(url, tmp_path, colour, durability, "each", "0")
    assert told["violations"] == []
    assert told["kills"] >= 24  # at two sides of twelve commits at the least: the writer groups some of them
    assert told["accepted"] == 7 * (told["threads"] + 1)
