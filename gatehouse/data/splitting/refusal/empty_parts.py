"""Says of each part of a split by time that has no rows which times it spans, which the rows have, and what to set."""

from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from gatehouse.configuration.duration import iso
from gatehouse.data.splitting.partition import PARTS
from gatehouse.data.splitting.spec import RollingOriginSplit, TimeSplit
from gatehouse.data.splitting.time_order import Times, boundaries, divide

_KEYS = ("train_from", "train_until", "validation_until", "test_until")
_SHARES = (0.3, 0.15)
"""Shares of the rows' span that validation and test together, and test alone, get where boundaries are proposed."""
_MINUTE = np.timedelta64(1, "m")


def empty_parts(decision: Times, label: Times, spec: TimeSplit | RollingOriginSplit) -> dict[str, str]:
    """Why parts have no rows, by part; nothing for a part that has some, and where no row has a decision time.

    Args:
        decision: Decision times, datetime64[us] in UTC, shape (rows,).
        label: When each row's label was known, same type and shape.
        spec: The boundaries; of several origins, the last one counts.
    """
    timed = decision[~np.isnat(decision)]
    if not len(timed):
        return {}
    last = spec if isinstance(spec, TimeSplit) else spec.at(spec.origins - 1)
    bounds = boundaries(decision, last)
    spans, cures = {}, {}
    for index, (name, rows) in enumerate(divide(decision, label, last).items()):
        start, end = bounds[index], bounds[index + 1]
        inside = np.ones(len(timed), bool) if start is None else timed >= start
        inside &= True if end is None else timed < end
        if not len(rows):
            spans[name] = (
                f"has no rows. It spans decisions {' '.join(_span(index, bounds, last))}; the decisions are from "
                f"{_text(timed.min())} to {_text(timed.max())}"
            )
            cures[_cure(int(inside.sum()), name, timed, spec)] = name
    return {
        name: ". ".join([span, *(cure for cure, at in cures.items() if at == name)]) for name, span in spans.items()
    }


def _span(index: int, bounds: list[np.datetime64 | None], spec: TimeSplit) -> Iterator[str]:
    for word, at in (("from", index), ("before", index + 1)):
        bound = bounds[at]
        if bound is None:
            continue
        given = getattr(spec, _KEYS[at])
        ahead = f", {iso(given)} before the newest" if isinstance(given, timedelta) else ""
        yield f"{word} {_text(bound)}{f' ({_KEYS[at]}{ahead})' * bool(ahead)}"
    if bounds[index] is None and bounds[index + 1] is None:
        yield "of any time"


def _cure(inside: int, name: str, timed: Times, spec: TimeSplit | RollingOriginSplit) -> str:
    """What to set instead."""
    if inside and name != PARTS[-1]:
        return (
            f"Of the {inside:,} in this span, none is {iso(spec.gap)} (gap) before its end and has a label that was "
            "known by then: set a shorter gap, or another end"
        )
    if isinstance(spec, RollingOriginSplit):
        return "Set test_from, horizon, step and origins so that each part lies between these times"
    whole = timed.max() - timed.min()
    ahead = [whole * share // _MINUTE * _MINUTE for share in _SHARES]
    if not ahead[-1]:
        return "Bring rows of more times, or divide by another strategy than time"
    relative = isinstance(spec.train_until, timedelta)
    until = [iso(_rounded(each.item())) if relative else _text(timed.max() - each) for each in ahead]
    return f"Set boundaries between these times, such as train_until: {until[0]} and validation_until: {until[1]}"


def _rounded(span: timedelta) -> timedelta:
    """Whole days where there are some."""
    return timedelta(days=span.days) if span.days > 1 else span


def _text(time: np.datetime64) -> str:
    return str(time.astype("datetime64[s]"))
