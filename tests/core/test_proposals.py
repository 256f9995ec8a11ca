"""The shapes of LangChain and Agent Inbox: a question in both at once, and answers that are proposals of decisions."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from counterfoil.core.approvals import Ruling
from counterfoil.core.proposals import NO_REASON, Proposal, Unanswerable, read_answer, request_shape


@dataclass
class Shown:
    """An interrupt, as LangGraph has it."""

    id: str
    value: Any


def asked(number: int = 1, **arguments: Any) -> dict[str, Any]:
    return {"approval_id": f"approval-{number}", **request_shape("refund", arguments or {"amount": 500}, "why")}


APPROVED = Proposal(approval_id="approval-1", ruling=Ruling.APPROVE)


def rejected(reason: str = NO_REASON) -> Proposal:
    return Proposal(approval_id="approval-1", ruling=Ruling.REJECT, reason=reason)


EDITED = Proposal(approval_id="approval-1", ruling=Ruling.EDIT, changes={"amount": 80})


def edit(args: Any, name: str = "refund") -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": args}}


def test_a_question_never_offers_to_answer_in_the_place_of_a_side_effect() -> None:
    question = asked()
    assert question["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject"]
    assert question["config"]["allow_respond"] is False


def test_a_question_shows_json_and_text_in_place_of_what_json_lacks() -> None:
    shown = asked(amount=Decimal("1.50"), day=date(2026, 1, 2), lines=[(1, 2)], table={(1, 2): 3})["action_request"]
    assert shown["args"] == {"amount": "1.50", "day": "2026-01-02", "lines": [[1, 2]], "table": "{(1, 2): 3}"}


@pytest.mark.parametrize(
    ("answer", "proposal"),
    [
        ({"decisions": [{"type": "approve"}]}, APPROVED),
        ({"decisions": [{"type": "reject", "message": "no"}]}, rejected("no")),
        ({"decisions": [{"type": "reject"}]}, rejected()),
        ({"decisions": [edit({"amount": 80})]}, EDITED),
        ([{"type": "approve"}], APPROVED),
        ({"type": "approve"}, APPROVED),
        ({"type": "accept", "args": None}, APPROVED),
        ([{"type": "ignore", "args": None}], rejected()),
        ([{"type": "edit", "args": {"action": "refund", "args": {"amount": 80}}}], EDITED),
        # what Agent Inbox makes of LangChain's question
        ({"decisions": [{"type": "approve", "args": {"action": "refund", "args": {"amount": 500}}}]}, APPROVED),
        ({"decisions": [{"type": "reject", "args": "no"}]}, rejected("no")),
        ({"decisions": [{"type": "edit", "args": {"action": "refund", "args": {"amount": 80}}}]}, EDITED),
        ({"decisions": [{"type": "ignore", "args": None}]}, rejected()),
        ({"i-1": {"type": "approve"}}, APPROVED),
        ({"i-1": {"decisions": [{"type": "approve"}]}}, APPROVED),
        ({"i-1": [{"type": "accept"}]}, APPROVED),
    ],
)
def test_an_answer_is_read_in_each_shape(answer: Any, proposal: Proposal) -> None:
    assert read_answer(answer, (Shown("i-1", asked()),)) == [proposal]


@pytest.mark.parametrize("to", [asked(), [asked()], Shown("i-1", asked())])
def test_what_was_asked_is_an_interrupt_or_its_value_or_several(to: Any) -> None:
    assert read_answer({"type": "approve"}, to) == [APPROVED]


def test_an_edit_changes_what_differs_from_what_was_shown() -> None:
    question = asked(amount=500, day=date(2026, 1, 2), note="x")
    (proposal,) = read_answer(edit({"amount": 80, "day": "2026-01-02", "reason": "new"}), question)
    assert proposal.changes == {"amount": 80, "reason": "new"}


def test_some_of_several_may_be_answered_by_their_interrupts_ids() -> None:
    both = [Shown("i-1", asked(1)), Shown("i-2", asked(2))]
    (proposal,) = read_answer({"i-2": {"type": "approve"}}, both)
    assert proposal.approval_id == "approval-2"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"decisions": [{"type": "respond", "message": "done"}]}, "in the place of a side effect"),
        ([{"type": "response", "args": "done"}], "in the place of a side effect"),
        ({"decisions": []}, "0 decisions for 1 questions"),
        ({"decisions": [{"type": "approve"}] * 2}, "2 decisions for 1 questions"),
        ({"i-1": [{"type": "approve"}] * 2}, "2 decisions for one question"),
        ({"i-2": {"type": "approve"}}, "of the type None"),
        (edit({"amount": 80}, "mail"), "another action"),
        (edit(None), "no arguments"),
        ({"type": "edit"}, "no arguments"),
        ("approve", "of the type None"),
        (True, "of the type None"),
        (None, "of the type None"),
        ({"type": ["approve"]}, "approve, edit and reject"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(answer: Any, words: str) -> None:
    with pytest.raises(Unanswerable, match=words):
        read_answer(answer, [Shown("i-1", asked())])


@pytest.mark.parametrize("to", [{"action_requests": []}, Shown("i-1", "well?"), [None], "approval-1", {}])
def test_a_question_that_is_not_ours_is_refused(to: Any) -> None:
    with pytest.raises(Unanswerable, match="none about an approval"):
        read_answer({"type": "approve"}, to)
