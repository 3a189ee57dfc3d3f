"""Quantities in Kubernetes' notation: `4`, `500m`, `64Gi`."""

import re
from fractions import Fraction
from math import ceil
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGT", 1)},
}
_FORM = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]*)")


def amount_of(quantity: str) -> int:
    """A quantity in thousandths, rounded up as in Kubernetes, so that sums are exact.

    Raises:
        ValueError: if it is no quantity.
    """
    found = _FORM.fullmatch(quantity)
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"expected an amount such as 4, 500m or 64Gi, found {quantity!r}")
    return ceil(Fraction(found[1]) * _UNITS[found[2]] * 1000)


def _checked(value: Any) -> str:
    written = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(written, str):
        raise ValueError(f"expected an amount such as 4, 500m or 64Gi, found {value!r}")
    amount_of(written)
    return written


Quantity = Annotated[str, BeforeValidator(_checked)]
"""A quantity in a configuration; a number is read as its text."""
