"""In which unit numbers of a column are times since 1970: told by the name of the column, and by its numbers."""

import re

_USUAL = (1e8, 4e9)
"""The years 1973 to 2096, in seconds since 1970: a column whose name says a time too is taken for one."""
_PLAUSIBLE = (631_152_000, 4_102_444_800)
"""The years 1990 to 2100, in seconds since 1970."""
_PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_TIME_WORDS = frozenset(
    ("time", "times", "date", "dates", "datetime", "timestamp", "when", "epoch", "created", "updated", "at", "ts")
)
_GLUED = re.compile(r"[a-z]{2,}(?:date|datetime|timestamp|epoch)")
"""A word of a time behind another one, as in orderdate: it counts only for numbers of the years 1990 to 2100.

One that ends in time alone may be a duration, as cputime, whose nanoseconds are numbers of such years too.
"""
_NOT_GLUED = frozenset(("candidate", "consolidate", "invalidate", "liquidate", "mandate", "update", "validate"))
_NO_TIMES = frozenset(("id", "ids", "by"))
"""Words that behind one of a time make it something else, as in created_by."""


def unit_by_name(name: str, low: float, high: float) -> str:
    """The unit since 1970 of a column of numbers, where its name and all its values say so; empty for none.

    Args:
        name: Of the column.
        low: Its smallest number.
        high: Its largest number.
    """
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    glued = {word for word in words if _GLUED.fullmatch(word)} - _NOT_GLUED
    last = max((place for place, word in enumerate(words) if word in _TIME_WORDS | glued), default=len(words))
    if last == len(words) or _NO_TIMES.intersection(words[last:]):
        return ""
    return _unit(low, high, _PLAUSIBLE if words[last] in glued else _USUAL)


def unit_of_our_years(low: float, high: float) -> str:
    """The unit since 1970 in which all numbers from `low` to `high` are in the years 1990 to 2100; empty for none."""
    return _unit(low, high, _PLAUSIBLE)


def _unit(low: float, high: float, years: tuple[float, float]) -> str:
    first, last = years
    if low > high:  # no number was seen
        return ""
    return next((unit for unit, each in _PER_SECOND.items() if first * each <= low and high <= last * each), "")
