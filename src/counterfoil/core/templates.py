"""Operation ids: templates over business arguments and trusted context, and what an id may look like.

The text of an id is made so that no two sets of values spell the same id. Equal-looking values of different types
(`"10"` and `10`) do spell the same one: a business id is one id whatever its type, and if the type matters, the
identity digest differs and the second use is a conflict rather than a second effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Final

from counterfoil.codec import id_text
from counterfoil.errors import (
    ContradictoryDeclaration,
    InvalidId,
    TemplateFieldMissing,
    TrustedFieldMismatch,
    UnknownTemplateField,
    UnstableId,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

TRUSTED_FIELDS: Final = ("tenant", "request_id", "workflow_id", "thread_id", "principal")
"""Fields that resolve from the run's trusted context alone."""
_TRUSTED = frozenset(TRUSTED_FIELDS)

MAX_CHARS: Final = 512
MAX_BYTES: Final = 1024
"""Two ids share an index entry, which PostgreSQL limits to 2704 bytes."""

_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")
_is_plain = re.compile(r"[A-Za-z0-9._-]+").fullmatch  # nothing but unreserved characters
_DERIVING = "~"  # begins what Counterfoil itself puts behind an id, such as `~branch-what-if`
_LINE_ENDS = frozenset("\u2028\u2029")  # named, as `isprintable` changes with the Python version
_SCOPE_ONLY = frozenset({"tenant", "principal"})  # say whose operation it is, not which

_PER_TRY = "changes from one try to the next"
_PER_CALL = "is minted anew each time the model or the graph runs"
_UNSTABLE: Final = {
    **dict.fromkeys(
        ("run_id", "attempt", "attempts", "attempt_number", "node_attempt", "retry", "retry_count", "retries"), _PER_TRY
    ),
    **dict.fromkeys(("trace_id", "span_id", "traceparent", "pid", "hostname", "worker_id"), _PER_TRY),
    **dict.fromkeys(("task_id", "tool_call_id", "call_id"), _PER_CALL),
    **dict.fromkeys(("checkpoint", "checkpoint_id", "checkpoint_ns", "checkpoint_map"), _PER_CALL),
    **dict.fromkeys(
        ("langgraph_step", "langgraph_node", "langgraph_path", "langgraph_triggers", "langgraph_checkpoint_ns"),
        _PER_CALL,
    ),
    **dict.fromkeys(("timestamp", "now", "utcnow", "time", "current_time"), "is a clock reading"),
    **dict.fromkeys(("uuid", "uuid1", "uuid4", "uuid7", "guid", "random", "nonce"), "is random"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed operation-id template: literal texts around named fields, and what else to escape in values."""

    text: str
    literals: tuple[str, ...]
    fields: tuple[str, ...]
    escaped: frozenset[str]

    @classmethod
    def parse(
        cls, text: str, *, arguments: Collection[str] | None = None, stable: Collection[str] = frozenset()
    ) -> Template:
        """Parse a template and refuse one that cannot give a stable, unambiguous id.

        Args:
            text: Such as `invite:{workflow_id}:{candidate_id}:round-{round}`; `{{` and `}}` are literal braces.
            arguments: The effect's argument names, if known; other fields must then be trusted ones.
            stable: Fields with a suspicious name that the author declares stable.

        Raises:
            ContradictoryDeclaration: the syntax is wrong, no field is named, or two values could run together.
            UnstableId: a field changes from one try to the next.
            UnknownTemplateField: a field is neither an argument nor trusted.
        """
        literals, fields = _split(text)
        if _DERIVING in "".join(literals):
            raise ContradictoryDeclaration(
                f"key {text!r} has a {_DERIVING!r}, which marks the ids that Counterfoil derives, such as those of a"
                " branch; write another character"
            )
        _refuse_unstable(text, fields, stable)
        if arguments is not None:
            _refuse_unknown(text, fields, arguments)
        separators = literals[1:-1]
        escaped = frozenset[str]().union(*(_escaped_for(text, separator) for separator in separators))
        return cls(text=text, literals=literals, fields=fields, escaped=escaped)

    def render(self, arguments: Mapping[str, object], trusted: Mapping[str, object]) -> str:
        """Return the operation id for these arguments in this trusted context.

        Raises:
            TemplateFieldMissing: a trusted field is not set.
            TrustedFieldMismatch: an argument named like a trusted field differs from it.
            UnknownTemplateField: an argument is missing.
            InvalidId: a value cannot be part of an id, or the id is too long.
        """
        check_trusted(arguments, trusted)
        text = self.literals[0]
        for name, literal in zip(self.fields, self.literals[1:], strict=True):
            text += self._escape(name, self._lookup(name, arguments, trusted)) + literal
        return validate_id("operation id", text)

    def _lookup(self, name: str, arguments: Mapping[str, object], trusted: Mapping[str, object]) -> object:
        if name in _TRUSTED:
            if (value := trusted.get(name)) is None:
                raise TemplateFieldMissing(
                    f"key {self.text!r} needs {name}, which this run does not have; pass {name}=... where the run is"
                    " entered"
                )
            return value
        if name not in arguments:
            raise _unknown_field(self.text, name, arguments)
        return arguments[name]

    def _escape(self, name: str, value: object) -> str:
        text = value if type(value) is str and value else id_text(name, value)
        if not self.escaped and _is_plain(text):
            return text
        try:
            return "".join(char if self._stays(char) else _percent(char) for char in text)
        except UnicodeEncodeError:
            raise InvalidId(f"{name} contains a lone surrogate and cannot be part of an operation id") from None

    def _stays(self, char: str) -> bool:
        if char in self.escaped or char in _LINE_ENDS:
            return False
        return char in _UNRESERVED if char.isascii() else char > "\x9f"


def check_trusted(arguments: Mapping[str, object], trusted: Mapping[str, object]) -> None:
    """Refuse arguments that claim another value for a trusted field than the context has, or one where it has none.

    Raises:
        TrustedFieldMismatch: one does.
    """
    if _TRUSTED.isdisjoint(arguments):
        return
    for name in TRUSTED_FIELDS:
        if name not in arguments or arguments[name] == trusted.get(name):
            continue
        if trusted.get(name) is not None:
            raise TrustedFieldMismatch(
                f"argument {name} differs from the run's {name}, which alone counts; leave the argument out",
                field=name,
            )
        if name != "thread_id":  # outside of graphs there is none, and whoever calls is trusted code
            raise TrustedFieldMismatch(
                f"argument {name} names a {name}, and the run has none; say it where the run starts, or leave the"
                " argument out",
                field=name,
            )


def validate_id(kind: str, value: object) -> str:
    """Return a tenant, thread id or operation id as a plain string if it can be stored and told apart.

    Args:
        kind: What it is, named in the error.
        value: The id.

    Raises:
        InvalidId: not a string, empty, too long, or with NUL or a lone surrogate in it.
    """
    if not isinstance(value, str):
        raise InvalidId(f"{kind} is of type {type(value).__name__}; use a string")
    if not value:
        raise InvalidId(f"{kind} is empty; give the business's own id")
    if "\x00" in value:
        raise InvalidId(f"{kind} contains a NUL character, which PostgreSQL cannot store; remove it")
    if len(value) > MAX_CHARS or not value.isascii():
        _refuse_long(kind, value)
    return str.__str__(value)


# --- reading a template ----------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the literal texts (one more than fields) and the field names."""
    literals, fields = [""], []
    for literal, name in _pieces(text):
        literals[-1] += literal
        if name is not None:
            fields.append(name)
            literals.append("")
    if not fields:
        raise ContradictoryDeclaration(
            f"key {text!r} names no field, so every call would be one operation; name the argument that tells them"
            " apart, as in 'invite:{candidate_id}'"
        )
    return tuple(literals), tuple(fields)


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    validate_id("key", text)
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise ContradictoryDeclaration(f"key {text!r} cannot be read ({error}); write braces as {{{{ }}}}") from None
    for literal, name, spec, conversion in pieces:
        if name is not None and (spec or conversion or not name.isidentifier()):
            raise ContradictoryDeclaration(
                f"key {text!r} has {{{name}}} with more than a name; write a plain {{argument}} and pass the part or"
                " format you mean as an argument"
            )
        yield literal, name


def _refuse_unstable(text: str, fields: tuple[str, ...], stable: Collection[str]) -> None:
    for name in fields:
        if name in _UNSTABLE and name not in stable:
            raise UnstableId(
                f"key {text!r} uses {name}, which {_UNSTABLE[name]}: a retry would be a second operation; use a"
                f" business id, or mint one in an earlier step; if {name} is a business id here, declare"
                f" stable=({name!r},)",
                field=name,
            )
    if set(fields) - _SCOPE_ONLY == {"thread_id"} and "thread_id" not in stable:
        raise UnstableId(
            f"key {text!r} tells operations apart by thread_id alone: a second visit is swallowed and another thread"
            " is a second operation; add a business id",
            field="thread_id",
        )


def _refuse_unknown(text: str, fields: tuple[str, ...], arguments: Collection[str]) -> None:
    for name in fields:
        if name not in arguments and name not in TRUSTED_FIELDS:
            raise _unknown_field(text, name, arguments)


def _unknown_field(text: str, name: str, arguments: Collection[str]) -> UnknownTemplateField:
    known = ", ".join(sorted({*arguments, *TRUSTED_FIELDS}))
    return UnknownTemplateField(f"key {text!r} names {name}, which is no argument and not trusted; known: {known}")


def _escaped_for(text: str, separator: str) -> frozenset[str]:
    """Return the characters to escape in values so that `separator` is told from them.

    One character that no escaped value contains is enough. `%` cannot be it: escapes begin with it.
    """
    marks = {char for char in separator if char != "%" and not (char.isascii() and char.isalnum())}
    if any(char.isascii() and char not in _UNRESERVED for char in marks):
        return frozenset()
    if not marks:
        raise ContradictoryDeclaration(
            f"key {text!r} lets two values run together, so that two operations could share an id; put ':' between them"
        )
    return frozenset(marks)


# --- the text of an id ----------------------------------------------------------------------------------------------


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def _refuse_long(kind: str, value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidId(f"{kind} contains a lone surrogate, which has no UTF-8 form; decode its source again") from None
    if len(value) > MAX_CHARS or size > MAX_BYTES:
        raise InvalidId(
            f"{kind} has {len(value)} characters ({size} bytes), more than {MAX_CHARS} ({MAX_BYTES}); use a shorter"
            " business id, or a digest of the long one"
        )
