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
    shown: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The question as this person was shown it; a decision about another content than that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked about, as it is stored; `actions` are the names that a question may call it by, if that is known.

    Of what ended long ago, the arguments are not stored any more.
    """

    operation_id: str
    effect: str
    fingerprint: str
    actions: frozenset[str] | None
    arguments: Mapping[str, Any] | None


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
            return Proposal(approval_id=approval_id, ruling=ruling, changes=changes, shown=question)
        case Ruling.REJECT:
            reason = _text(decision) or NO_REASON
            return Proposal(approval_id=approval_id, ruling=ruling, reason=reason, shown=question)
        case _:
            return Proposal(approval_id=approval_id, ruling=ruling, reason=_text(decision), shown=question)


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
    named, before = next(iter(_requests(question)), (None, {}))
    if action.get("name", action.get("action")) != named:
        raise Unanswerable("an edit names another action than the one that was asked about: reject this one instead")
    return {name: value for name, value in action["args"].items() if name not in before or before[name] != value}


# --- what was shown --------------------------------------------------------------------------------------------------


def difference(shown: Mapping[str, Any], asked: Asked) -> str | None:
    """Say in what a question, as it was shown, differs from what is asked about; None if it is that.

    Each shape that it has must be that; where it has neither, its fingerprint must. It has been through a user
    interface, so that numbers may have another form, as 5 has for 5.0.

    Raises:
        Unanswerable: it has another form than ours have.
    """
    for name in ("operation_id", "effect", "fingerprint"):
        if shown.get(name, getattr(asked, name)) != getattr(asked, name):
            return name
    requests = _requests(shown)
    if asked.actions is not None and any(named not in asked.actions for named in _named(shown, requests)):
        return "action"
    if not requests and "fingerprint" not in shown:
        return "arguments, of which it shows none"
    if asked.arguments is None:
        return None
    plain = {name: _plain(value) for name, value in asked.arguments.items()}
    return None if all(_same(given, plain) for _, given in requests) else "arguments"


def _named(shown: Mapping[str, Any], requests: Sequence[tuple[Any, Any]]) -> list[Any]:
    reviewed = [one.get("action_name") for one in shown.get("review_configs") or () if isinstance(one, Mapping)]
    return [*(name for name, _ in requests), *reviewed]


def _requests(question: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    """Return the action and the arguments that a question shows, once for each shape that it has.

    Raises:
        Unanswerable: it shows several actions, or none where there should be one.
    """
    found = []
    if (inbox := question.get("action_request")) is not None:
        found.append((inbox, "action"))
    if (several := question.get("action_requests")) is not None:
        if not _is_list(several) or len(several) != 1:
            raise Unanswerable("a question is about one action; hand it in as it was asked")
        found.append((several[0], "name"))
    if not all(isinstance(one, Mapping) and isinstance(one.get("args"), Mapping) for one, _ in found):
        raise Unanswerable("a question shows no arguments; hand it in as it was asked")
    return [(one.get(called), one["args"]) for one, called in found]


def _same(shown: Any, stored: Any) -> bool:
    """Say whether two values of JSON are equal; true and 1 are not."""
    match shown, stored:
        case Mapping(), Mapping():
            return shown.keys() == stored.keys() and all(_same(value, stored[key]) for key, value in shown.items())
        case list() | tuple(), list():
            return len(shown) == len(stored) and all(map(_same, shown, stored))
        case _:
            return isinstance(shown, bool) == isinstance(stored, bool) and bool(shown == stored)
