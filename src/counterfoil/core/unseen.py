"""Characters that nobody sees, as data: names that differ in them alone look the same, and are one principal's."""

from __future__ import annotations

import unicodedata
from typing import Final

DEFAULT_IGNORABLE: Final = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""First and last of each range of Default_Ignorable_Code_Point, 4174 in all: DerivedCoreProperties.txt of Unicode 16.0.

Written out, as Python knows no such property, and what is stored must not depend on the Unicode of a Python version.
"""
_IGNORABLE: Final = frozenset(chr(point) for first, last in DEFAULT_IGNORABLE for point in range(first, last + 1))


def is_unseen(char: str) -> bool:
    """Say whether nothing is drawn for a character; NUL is left to be refused."""
    return char != "\0" and (char in _IGNORABLE or unicodedata.category(char) in {"Cc", "Cf"})
