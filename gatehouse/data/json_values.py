"""Values of JSON as values of a type: exactly, or not at all."""

import math
from typing import Any

_EXACT = 2**53
"""Up to here every whole number is a double of its own."""


class Unfit(ValueError):
    """A value is not what was expected, which its text says in the words that tables of rejected rows hold."""


def whole(value: Any, bits: int = 64, signed: bool = True) -> int:
    """A whole number of `bits` bits, also one that JSON writes as 1.0 or 1e3. Raises Unfit."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise Unfit(f"a whole number of {bits} bits")
    return value


def double(value: Any) -> float:
    """A number that a double holds without rounding a whole one. Raises Unfit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("a number")
    try:
        number = float(value)
        if not math.isfinite(number) or (isinstance(value, int) and int(number) != value):
            raise ValueError
    except (ValueError, OverflowError):
        raise Unfit("a number that a double holds") from None
    return number


def text(value: Any) -> str:
    """Text without half of a pair of surrogates. Raises Unfit."""
    if not isinstance(value, str):
        raise Unfit("text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("text in UTF-8") from None
    return value


def boolean(value: Any) -> bool:
    """True or false. Raises Unfit."""
    if not isinstance(value, bool):
        raise Unfit("true or false")
    return value
