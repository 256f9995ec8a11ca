"""What a thread still needs of its history, from outlines alone."""

from itertools import count

import pytest

from counterfoil.core.history import ROOT, History, Outline, is_behind

TASK = "child:task-1"
KEPT = "child"


class Past:
    """Builds a history: each new checkpoint is committed after the others."""

    def __init__(self) -> None:
        self.numbers = count(1)
        self.outlines: list[Outline] = []

    def add(
        self,
        name: str,
        parent: str | None = None,
        *,
        ns: str = ROOT,
        root: str | None = None,
        run: str | None = None,
        source: str = "loop",
        leaning: str = "",
    ) -> Outline:
        made = Outline(
            seq=10 * next(self.numbers),
            checkpoint_ns=ns,
            checkpoint_id=name,
            parent_id=parent,
            root_id=root,
            run_id=run,
            source=source,
            leaning=frozenset(leaning.split()),
        )
        self.outlines.append(made)
        return made

    @property
    def history(self) -> History:
        return History(reversed(self.outlines))


def names(outlines: object) -> list[str]:
    return sorted(outline.checkpoint_id for outline in outlines)  # type: ignore[attr-defined]


@pytest.fixture
def past() -> Past:
    return Past()


def test_the_newest_is_the_last_committed_of_each_namespace(past: Past) -> None:
    past.add("z")
    past.add("a", "z")
    past.add("k1", ns=KEPT, root="z")
    past.add("k2", "k1", ns=KEPT, root="a")
    past.add("t1", ns=TASK, root="a")
    assert names(past.history.newest()) == ["a", "k2", "t1"]
    assert names([past.history.find(None)]) == ["a"]
    assert names([past.history.find("z")]) == ["z"]
    assert past.history.find("k1") is None
    assert past.history.find("nowhere") is None


def test_a_child_of_a_finished_task_is_not_gone_on_from(past: Past) -> None:
    past.add("r1")
    past.add("t1", ns=TASK, root="r1")
    past.add("u1", ns="child:task-2|inner:task-3", root="r1")
    past.add("k1", ns=KEPT, root="r1")
    past.add("r2", "r1")
    assert names(past.history.newest()) == ["k1", "r2"]


@pytest.mark.parametrize("root", [None, "unknown"])
def test_a_child_of_which_nobody_knows_whose_it_is_stays(past: Past, root: str | None) -> None:
    past.add("r1")
    past.add("t1", ns=TASK, root=root)
    past.add("r2", "r1")
    assert names(past.history.newest()) == ["r2", "t1"]


def test_a_checkpoint_leans_on_its_ancestors_as_far_as_each_channel_needs(past: Past) -> None:
    past.add("1")
    past.add("2", "1", leaning="b")  # a is stored here
    past.add("3", "2", leaning="a b")
    past.add("x", "2", leaning="a b")  # another line
    past.add("4", "3", leaning="a")  # b is stored here
    past.add("5", "4", leaning="a b")
    history = past.history
    assert names(history.leaned_on([past.outlines[5]])) == ["2", "3", "4"]
    assert names(history.leaned_on([past.outlines[4]])) == ["2", "3"]
    assert names(history.leaned_on([past.outlines[3]])) == ["1", "2"]
    assert names(history.leaned_on([past.outlines[0]])) == []


def test_two_channels_whose_snapshots_never_meet_do_not_keep_everything(past: Past) -> None:
    for number in range(20):
        past.add(str(number), str(number - 1), leaning="a" if number % 2 else "b")
    assert names(past.history.leaned_on([past.outlines[19]])) == ["18"]


def test_the_children_before_a_checkpoint_are_those_of_its_own_line(past: Past) -> None:
    past.add("r1")
    past.add("k1", ns=KEPT, root="r1")
    past.add("t1", ns=TASK, root="r1")
    fork = past.add("r2", "r1")
    past.add("k2", "k1", ns=KEPT, root="r2")
    past.add("r3", "r2")
    past.add("k3", "k2", ns=KEPT, root="r3")
    other = past.add("s2", "r1", source="fork")
    past.add("k4", "k3", ns=KEPT, root="s2")
    assert names(past.history.children_before(fork)) == ["k1"]
    assert names(past.history.children_before(past.outlines[5])) == ["k2"]
    assert names(past.history.children_before(other)) == ["k1"]
    assert names(past.history.children_before(past.outlines[0])) == []


@pytest.mark.parametrize(
    ("kept", "gaps"),
    [
        ([], [(0, 51)]),
        ([0, 1, 2, 3, 4], []),
        ([4], [(0, 41)]),
        ([0], [(10, 51)]),
        ([1, 3], [(0, 11), (20, 31), (40, 51)]),
        ([2], [(0, 21), (30, 51)]),
    ],
)
def test_the_gaps_hold_all_that_is_not_kept_and_nothing_that_was_not_read(
    past: Past, kept: list[int], gaps: list[tuple[int, int]]
) -> None:
    for number in range(5):
        past.add(str(number))
    stays = [past.outlines[number] for number in kept]
    assert list(past.history.gaps(stays)) == gaps
    inside = [each.seq for each in past.outlines if any(after < each.seq < before for after, before in gaps)]
    assert inside == [each.seq for each in past.outlines if each not in stays]


def test_a_step_is_behind_when_a_run_finished_one_since(past: Past) -> None:
    past.add("1", source="input")
    past.add("2", "1")
    past.add("3", "2", source="update")
    past.add("4", "3", source="fork")
    past.add("5", "4")
    line = list(past.history.line(past.outlines[4]))
    assert [each.checkpoint_id for each in line] == ["5", "4", "3", "2", "1"]
    assert [is_behind(line, str(number)) for number in range(1, 7)] == [True, True, True, True, False, False]
    assert is_behind(line[1:], "2") is False
