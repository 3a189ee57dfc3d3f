"""Numbers and text as people read them, the same in every report."""

import html
import math
from typing import Any


def escape(text: Any) -> str:
    """Text that is safe anywhere in HTML or SVG."""
    return html.escape(str(text), quote=True)


def number(value: Any) -> str:
    """A number with as many digits as help: thousands separated, four decimals for fractions, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) >= 1000:
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 0.0005:
        return f"{value:.1e}"
    return f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"


def percent(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f} %"
