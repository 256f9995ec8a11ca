"""Read JSON that a person typed: strictly, and saying where it is wrong without repeating it."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class InvalidJson(ValueError):
    """A text is not JSON; the message says where, and holds nothing of it."""


def read_json(text: str) -> Any:
    """Return the value of a JSON text; NaN and infinities are no JSON, also those that a large number overflows to.

    Raises:
        InvalidJson: it is not JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as wrong:
        raise InvalidJson(f"{wrong.msg} at line {wrong.lineno}, column {wrong.colno}") from None
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None
    except InvalidJson:
        raise
    except ValueError:  # an integer of more digits than Python reads
        raise InvalidJson("it holds a number that is too long") from None


def _refuse(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise InvalidJson("it holds a number that is too large")
    return number
