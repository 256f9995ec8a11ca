"""The text that a value has inside an operation id."""

from datetime import date
from decimal import Decimal
from enum import Enum
from uuid import UUID

from counterfoil.errors import InvalidId

_MOST_DIGITS = 400  # a double has up to 309; more cannot fit into an id, and 1e999999999 must not be written out


def id_text(name: str, value: object) -> str:
    """Return the text that stands for a value in an id, before escaping; equal numbers have one text.

    Raises:
        InvalidId: None, empty, not finite, or of a type that is no id.
    """
    match value:
        case Enum():
            text = id_text(name, value.value)
        case str():
            text = str.__str__(value)
        case bool():
            text = "true" if value else "false"
        case int() | float() | Decimal():
            text = _number_text(name, value)
        case date() | UUID():  # a datetime is a date; its isoformat keeps the offset
            text = value.isoformat() if isinstance(value, date) else str(value)
        case _:
            raise InvalidId(
                f"{name} is of type {type(value).__name__}, which cannot be part of an operation id; use its id"
            )
    if not text:
        raise InvalidId(f"{name} is empty, so the operation could not be told from others; give it a value")
    return text


def _number_text(name: str, value: float | Decimal) -> str:
    """Write a number without exponent or trailing zeros; a Decimal that is exactly a double is written as one."""
    number = _as_decimal(value)
    if not number.is_finite():
        raise InvalidId(f"{name} is not a finite number; give it a value")
    _, digits, exponent = number.as_tuple()
    if number.adjusted() > _MOST_DIGITS or int(exponent) < -_MOST_DIGITS:
        raise InvalidId(f"{name} is a number with too many digits for an operation id; use a shorter id")
    if not any(digits):
        return "0"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _as_decimal(value: float | Decimal) -> Decimal:
    if isinstance(value, int):
        return Decimal(int.__int__(value))
    if isinstance(value, Decimal):
        return _as_decimal(float(value)) if value.is_finite() and float(value) == value else value
    return Decimal(int(value)) if value.is_integer() else Decimal(float.__repr__(value))
