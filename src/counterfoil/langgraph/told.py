"""What a model, and the person who is asked, are told of a protected tool's call; no part of it decides anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command

from counterfoil.core.durations import utc_text
from counterfoil.core.proposals import request_shape
from counterfoil.errors import (
    ApprovalExpired,
    ApprovalRejected,
    EffectRefused,
    FingerprintMismatch,
    InvalidId,
    NotGranted,
    OperationClosed,
    OperationExpired,
    TrustedFieldMismatch,
    UnsupportedValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.errors import CounterfoilError
    from counterfoil.shown import ApprovalDetail

TO_A_MODEL = (
    EffectRefused,
    FingerprintMismatch,
    InvalidId,
    NotGranted,
    OperationClosed,  # rejected, expired and withdrawn ones
    OperationExpired,
    TrustedFieldMismatch,
    UnsupportedValue,
)
"""What a model's call ends in with nothing done, where calling again would change nothing."""
_NOTHING = "Nothing was done, and this call will not be made."


def refusal(tool: str, error: CounterfoilError) -> str:
    """Return what a model is told of a call that is not made."""
    match error:
        case ApprovalRejected():
            return (
                f"A person rejected this call of {tool}: {error.reason}. {_NOTHING} Do not call it again for the same"
                " purpose unless the user asks for something else."
            )
        case ApprovalExpired():
            return f"Nobody decided in time whether {tool} may be called. {_NOTHING}"
        case NotGranted():
            return f"Nobody permitted this call of {tool}. {_NOTHING}"
        case EffectRefused():
            return f"{tool} was refused for good: {error.facts['reason']}. {_NOTHING}"
        case OperationClosed():
            return f"This call of {tool} was withdrawn. {_NOTHING}"
        case FingerprintMismatch():
            return (
                f"{tool} was called for this before, with other arguments: {', '.join(error.fields)} differ. {_NOTHING}"
                " The first call stands as it is."
            )
        case OperationExpired():
            return (
                f"This call of {tool} {error.outcome} at {utc_text(error.settled_at)}; what it returned is kept no"
                " longer. Nothing was done now."
            )
        case _:
            return f"{tool} cannot be called like this: {error.message}"


def unknown_arguments(tool: str, unknown: list[str], known: list[str]) -> str:
    """Return what a model is told that made arguments up."""
    return f"{tool} has no argument {', '.join(unknown)}; it takes {', '.join(known)}. Nothing was done."


def unreadable(value: object, *, pair: bool) -> str | None:
    """Say why what a tool returned cannot be kept in a receipt, if it is no data but an instruction to the graph."""
    for one in value if pair and isinstance(value, tuple) else [value]:
        for each in one if isinstance(one, list) else [one]:
            if isinstance(each, Command | BaseMessage):
                return f"the tool returned a {type(each).__name__}, which is no data"
    return None


def happened(tool: str, why: str | None) -> str:
    """Return what a model is told in place of a result that could not be kept."""
    return f"{tool} was called, and this is recorded; what it returned could not be kept ({why})."


# --- what a person wrote in place of a call --------------------------------------------------------------------------


def instead(tool: str, edited: Mapping[str, Any] | None) -> str:
    """Return what a model is told of a call that a person edited, before its result."""
    how = "" if edited is None else f", with {json.dumps(edited, default=str, ensure_ascii=False)}"
    return (
        f"A person changed this call before it was made: {tool} was called instead{how}. What you asked for was not"
        " done; do not ask for it again unless the user does."
    )


def noted(note: str, content: Any) -> Any:
    """Return a tool's content with a note before it."""
    if isinstance(content, str):
        return f"{note}\n\n{content}" if content else note
    if isinstance(content, list) and content and all(isinstance(each, str | dict) for each in content):
        block: Any = note if all(isinstance(each, str) for each in content) else {"type": "text", "text": note}
        return [block, *content]
    return f"{note}\n\n{json.dumps(content, default=str, ensure_ascii=False)}"


# --- the question ----------------------------------------------------------------------------------------------------


def question(tool: str, detail: ApprovalDetail) -> dict[str, Any]:
    """Return a question about a call, as user interfaces for people in the loop read it."""
    arguments = detail.arguments or {}
    lines = [f"{tool} is called only if a person approves.", "", f"Tool: {tool}", f"Args: {arguments}"]
    if detail.approval.follows is not None:
        lines += ["", f"{detail.approval.edited_by} wrote this in place of {detail.approval.follows}."]
    if detail.others:
        lines += ["", "Asked for under the same request:"]
        lines += [f"- {other.operation_id}: {other.state}" for other in detail.others]
    return request_shape(tool, arguments, "\n".join(lines))
