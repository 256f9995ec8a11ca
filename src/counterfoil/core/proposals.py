"""What people are asked and answer in the shapes of LangChain and of Agent Inbox: requests, and proposed decisions.

LangChain's human-in-the-loop middleware asks with `action_requests` and `review_configs`, and is answered with
`decisions`; Agent Inbox asks with `action_request` and `config`, and is answered with responses of a `type`. An answer
is text from outside: it decides nothing before it has become a decision of an authenticated principal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from counterfoil.core.approvals import Ruling

APPROVAL_ID: Final = "approval_id"
NO_REASON: Final = "rejected in a review, where no reason was given"
DECISIONS: Final = {"approve": Ruling.APPROVE, "edit": Ruling.EDIT, "reject": Ruling.REJECT}
"""LangChain's words. `respond`, which answers in the place of a tool, is none: it would record an effect that never
happened."""
RESPONSES: Final = {"accept": Ruling.APPROVE, "edit": Ruling.EDIT, "ignore": Ruling.REJECT}
"""Agent Inbox's words; its `response` is what LangChain calls `respond`."""


class Unanswerable(ValueError):
    """An answer does not fit what was asked; the message says why and holds nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a person's answer would decide about one approval."""

    approval_id: str
    ruling: Ruling
    reason: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)


def request_shape(name: str, arguments: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Return a question about one call, in both shapes at once."""
    plain = {key: _plain(value) for key, value in arguments.items()}
    return {
        "action_requests": [{"name": name, "args": plain, "description": description}],
        "review_configs": [{"action_name": name, "allowed_decisions": list(DECISIONS)}],
        "action_request": {"action": name, "args": plain},
        "config": {"allow_accept": True, "allow_edit": True, "allow_ignore": True, "allow_respond": False},
        "description": description,
    }


def _plain(value: Any) -> Any:
    """Return a value as user interfaces get it: JSON, and text in place of what JSON lacks."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError):
        return str(value)


# --- reading an answer -----------------------------------------------------------------------------------------------


def read_answer(answer: Any, asked: Any) -> list[Proposal]:
    """Return what an answer proposes about each question, in the order of the questions.

    Args:
        answer: `{"decisions": [...]}`, a list of decisions or responses in the order of the questions, a single one, or
            a mapping of interrupt ids to any of these.
        asked: The interrupts that were shown, or their values; one or several.

    Raises:
        Unanswerable: it does not fit what was asked.
    """
    questions = [_question(one) for one in (asked if _is_list(asked) else [asked])]
    by_id = {interrupt_id: question for interrupt_id, question in questions if interrupt_id is not None}
    if isinstance(answer, Mapping) and answer and by_id.keys() >= answer.keys():
        return [_proposal(_only(answer[each]), by_id[each]) for each in by_id if each in answer]
    given = _listed(answer)
    if len(given) != len(questions):
        raise Unanswerable(
            f"there are {len(given)} decisions for {len(questions)} questions; answer each, in their order, or name"
            " them by their interrupt's id"
        )
    return [_proposal(one, question) for one, (_, question) in zip(given, questions, strict=True)]


def _question(one: Any) -> tuple[str | None, Mapping[str, Any]]:
    value = getattr(one, "value", one)
    if not isinstance(value, Mapping) or not isinstance(value.get(APPROVAL_ID), str):
        raise Unanswerable("one of the questions is none about an approval of ours; hand in those that are")
    return getattr(one, "id", None), value


def _listed(answer: Any) -> list[Any]:
    if isinstance(answer, Mapping) and _is_list(answer.get("decisions")):
        return list(answer["decisions"])
    return list(answer) if _is_list(answer) else [answer]


def _only(answer: Any) -> Any:
    given = _listed(answer)
    if len(given) != 1:
        raise Unanswerable(f"there are {len(given)} decisions for one question")
    return given[0]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _proposal(decision: Any, question: Mapping[str, Any]) -> Proposal:
    kind = decision.get("type") if isinstance(decision, Mapping) else None
    ruling = DECISIONS.get(kind) or RESPONSES.get(kind) if isinstance(kind, str) else None
    if ruling is None:
        raise Unanswerable(
            f"a decision is of the type {kind!r}; there are approve, edit and reject, or accept, edit and ignore."
            " Nobody answers in the place of a side effect"
        )
    approval_id: str = question[APPROVAL_ID]
    match ruling:
        case Ruling.EDIT:
            changes = _changes(decision, question)
            return Proposal(approval_id=approval_id, ruling=ruling, changes=changes)
        case Ruling.REJECT:
            return Proposal(approval_id=approval_id, ruling=ruling, reason=_text(decision) or NO_REASON)
        case _:
            return Proposal(approval_id=approval_id, ruling=ruling, reason=_text(decision))


def _text(decision: Mapping[str, Any]) -> str:
    """Return the words of whoever decided: LangChain's `message`, Agent Inbox's `args`."""
    given = decision.get("message") or decision.get("args")
    return given if isinstance(given, str) else ""


def _changes(decision: Mapping[str, Any], question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from those that were shown.

    Raises:
        Unanswerable: it is another action's, or has no arguments.
    """
    action = decision.get("edited_action", decision.get("args"))
    if not isinstance(action, Mapping) or not isinstance(action.get("args"), Mapping):
        raise Unanswerable("an edit has no arguments: write edited_action={'name': ..., 'args': {...}}")
    shown: Mapping[str, Any] = question.get("action_request") or {}
    if action.get("name", action.get("action")) != shown.get("action"):
        raise Unanswerable("an edit names another action than the one that was asked about: reject this one instead")
    before: Mapping[str, Any] = shown.get("args") or {}
    return {name: value for name, value in action["args"].items() if name not in before or before[name] != value}
