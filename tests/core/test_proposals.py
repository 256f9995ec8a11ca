"""The shapes of LangChain and Agent Inbox: a question in both at once, and answers that are proposals of decisions."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from counterfoil.core.approvals import Ruling
from counterfoil.core.proposals import (
    NO_REASON,
    Asked,
    Proposal,
    Unanswerable,
    difference,
    read_answer,
    request_shape,
)


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


# --- what was shown --------------------------------------------------------------------------------------------------

STORED: dict[str, Any] = {"amount": 5000, "to": "bob", "lines": [{"n": 1.0, "ok": True}]}
LANGCHAIN, INBOX = ("action_requests", "review_configs"), ("action_request", "config")


def question(arguments: Any = STORED, name: str = "refund", **marks: Any) -> dict[str, Any]:
    known = {"operation_id": "r-1/refund", "effect": "tool.refund", "fingerprint": "sha256:1", **marks}
    return {"approval_id": "approval-1", **request_shape(name, arguments, "why"), **known}


def unlike(shown: dict[str, Any], arguments: Any = STORED) -> str | None:
    actions = frozenset({"refund"})
    marks = {"operation_id": "r-1/refund", "effect": "tool.refund", "fingerprint": "sha256:1"}
    return difference(shown, Asked(**marks, actions=actions, arguments=arguments))


def without(shown: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name not in names}


@pytest.mark.parametrize("left_out", [(), LANGCHAIN, INBOX, ("fingerprint",), (*LANGCHAIN, *INBOX), ("effect",)])
def test_a_question_as_it_was_asked_differs_in_nothing(left_out: tuple[str, ...]) -> None:
    assert unlike(without(question(), *left_out)) is None


def test_what_a_user_interface_writes_otherwise_is_the_same() -> None:
    assert unlike(question({"lines": [{"ok": True, "n": 1}], "to": "bob", "amount": 5000.0})) is None
    assert unlike(question({"day": "2026-01-02"}), {"day": date(2026, 1, 2)}) is None


@pytest.mark.parametrize("shape", [LANGCHAIN, INBOX])
@pytest.mark.parametrize(
    "altered",
    [
        {"amount": 1},
        {"to": "eve"},
        {"more": 1},
        {"lines": []},
        {"lines": [{"n": True, "ok": True}]},
        {"lines": [{"n": 1, "ok": 1}]},
        {"amount": "5000"},
        {"amount": None},
    ],
)
def test_a_question_of_which_either_shape_shows_other_arguments_differs(
    shape: tuple[str, ...], altered: dict[str, Any]
) -> None:
    other = question(STORED | altered)
    assert unlike(question() | {name: other[name] for name in shape}) == "arguments"
    assert unlike(without(other, *(LANGCHAIN if shape == INBOX else INBOX), "fingerprint")) == "arguments"
    assert unlike(without(other, "amount") | {"action_request": {"action": "refund", "args": {}}}) == "arguments"


@pytest.mark.parametrize(
    ("altered", "what"),
    [
        ({"operation_id": "r-2/refund"}, "operation_id"),
        ({"effect": "tool.mail"}, "effect"),
        ({"fingerprint": "sha256:2"}, "fingerprint"),
        ({"fingerprint": None}, "fingerprint"),
        ({"action_request": {"action": "look", "args": STORED}}, "action"),
        ({"action_requests": [{"name": "look", "args": STORED}]}, "action"),
        ({"review_configs": [{"action_name": "look"}]}, "action"),
    ],
)
def test_a_question_about_something_else_differs(altered: dict[str, Any], what: str) -> None:
    assert unlike(question() | altered) == what


def test_a_question_that_shows_nothing_of_what_is_asked_differs() -> None:
    shown = without(question(), *LANGCHAIN, *INBOX, "fingerprint")
    assert unlike(shown) == "arguments, of which it shows none"


def test_of_what_is_not_stored_any_more_the_rest_is_compared() -> None:
    assert unlike(question({"amount": 1}), None) is None
    assert unlike(question(fingerprint="sha256:2"), None) == "fingerprint"


@pytest.mark.parametrize(
    "altered",
    [
        {"action_requests": []},
        {"action_requests": [{"name": "refund", "args": STORED}] * 2},
        {"action_requests": "refund"},
        {"action_requests": [{"name": "refund"}]},
        {"action_request": {"action": "refund"}},
        {"action_request": "refund"},
    ],
)
def test_a_question_of_another_form_than_ours_is_refused(altered: dict[str, Any]) -> None:
    with pytest.raises(Unanswerable, match="as it was asked"):
        unlike(question() | altered)


@pytest.mark.parametrize("shape", [LANGCHAIN, INBOX])
def test_an_edit_is_read_from_whichever_shape_came_back(shape: tuple[str, ...]) -> None:
    (proposal,) = read_answer(edit({"amount": 80}), without(asked(), *shape))
    assert proposal.changes == {"amount": 80}
