"""Numbers and text as people read them, the same in every report."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from numbers import Integral, Real
from typing import Any

from gatehouse.runtime.plural import counted

_NOTHING = "–"
_MINUS = "−"
_CODE, _SIGNS = re.compile("(`[^`]+`)"), re.compile(r"[\\`*_\[\]<>|]")
LARGE = 1e10
"""Numbers from here on are written with a power of ten."""


def is_number(value: Any) -> bool:
    """Whether `value` is shown as a number: also numpy's, but no truth values."""
    return isinstance(value, Real) and not isinstance(value, bool)


def number(value: Any) -> str:
    """A number as a person would round it: four figures, no zeros at the end, thousands separated, a dash for nothing.

    Example:
        >>> number(336776), number(0.73512), number(12.5), number(-0.00004), number(None)
        ('336,776', '0.7351', '12.5', '−4.0e-05', '–')
    """
    if value is None:
        return _NOTHING
    if not is_number(value):
        return str(value)
    if isinstance(value, Integral):
        return _signed_right(f"{int(value):,}")
    text = _rounded(float(value), _decimals(abs(value)))
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def column_format(values: Iterable[Any]) -> Callable[[Any], str]:
    """How the numbers of one column are written: with the decimals that suit the largest, so that they align.

    One that would not be seen so is written as `number` does, as are whole numbers.
    """
    sizes = [abs(float(value)) for value in values if is_number(value) and not isinstance(value, Integral)]
    plain = [size for size in sizes if size < LARGE]
    decimals = 0 if all(size == int(size) for size in plain) else _decimals(max(plain))
    least = 0.5 * 10.0**-decimals

    def write(value: Any) -> str:
        if value is None or isinstance(value, Integral) or not math.isfinite(value) or 0 < abs(value) < least:
            return number(value)
        return _rounded(float(value), decimals)

    return write


def _decimals(size: float) -> int:
    """How many decimals help: four below 1, and one less for every figure before the point."""
    return next((4 - figures for figures in range(4) if size < 10**figures), 0)


def _rounded(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    if abs(value) >= LARGE:
        return _signed_right(f"{value:.3e}")
    if 0 < abs(value) < 0.0005:
        return _signed_right(f"{value:.1e}")
    return _signed_right(f"{value:,.{decimals}f}")


def percent(value: Any) -> str:
    """A share as a percentage with one decimal; a dash for nothing."""
    if value is None or not math.isfinite(value):
        return number(value)
    return _signed_right(f"{100 * value:.1f} %")


def moment(text: str) -> str:
    """A time in ISO 8601 as people write it: to the minute, or the second where it has any, with its zone."""
    time = datetime.fromisoformat(text)
    zone = " UTC" if time.tzinfo and not time.utcoffset() else f"{time:%z}"
    return f"{time:%Y-%m-%d %H:%M}{f':{time:%S}' if time.second else ''}{zone}"


def duration(seconds: float) -> str:
    """A span of time in the two largest of its units."""
    left = round(abs(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count:,} {unit}")
    return (_MINUS if round(seconds) < 0 else "") + " ".join(parts[:2])


def ticks(values: list[float], step: float) -> list[str]:
    """Labels of an axis: its `step` decides the decimals of all; thousands and more are in k, M and G."""
    largest = max((abs(value) for value in values), default=0.0)
    unit, suffix = next((pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if largest >= 10 * pair[0]), (1.0, ""))
    if largest >= 1e13 or 0 < largest < 1e-4:
        return [number(value) for value in values]
    scaled = (step / unit * 10**count for count in range(9))
    decimals = next((count for count, at in enumerate(scaled) if abs(at - round(at)) < 1e-6 * max(1.0, abs(at))), 9)
    labels = [f"{value / unit + 0.0:.{decimals}f}" for value in values]
    return [_signed_right(label) + (suffix if float(label) else "") for label in labels]


def _signed_right(text: str) -> str:
    return text.replace("-", _MINUS, 1) if text.startswith("-") else text


def shortened(text: str, longest: int) -> str:
    """Text of at most `longest` characters; an ellipsis stands for what is cut off."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def cut(text: Any, longest: int = 300) -> str:
    """Text of at most `longest` characters, followed by its length if some are cut off."""
    text = str(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def in_markdown(text: str) -> str:
    """Text on one line, with the signs of Markdown and HTML escaped, so that a name keeps its underscores.

    What stands between backticks stays code.
    """
    parts = _CODE.split(" ".join(text.split()))
    shown = (
        part.replace("|", r"\|") if place % 2 else _SIGNS.sub(r"\\\g<0>", part) for place, part in enumerate(parts)
    )
    return "".join(shown)


def share(value: float) -> str:
    """A percentage in which little is never nothing, and almost all never all."""
    if 0 < value < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= value < 1:
        return "> 99.9 %"
    return "0 %" if value == 0 else percent(value)


def work_in_words(body: Mapping[str, Any]) -> str:
    """What the pieces in the record of an attempt took, for people; empty where no worker ran any."""
    done: list[dict[str, Any]] = body.get("pieces", [])
    if not done:
        return ""
    slowest, memory = (max(call[fact] for call in done) for fact in ("slowest", "memory"))
    count = counted(sum(call["pieces"] for call in done), "piece")
    return f"{count}, the slowest {slowest:.1f} s, workers of up to {memory / 1e9:.1f} GB"
