"""Divides rows by time, and checks the structure that no score can show: the order of time between the parts."""

from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.components.splitting.spec import SplitSpec
from gatehouse.errors import LeakageError

PARTS = ("train", "validation", "test")
Rows = npt.NDArray[np.int64]
Times = npt.NDArray[np.datetime64]


def divide(decision: Times, label: Times, spec: SplitSpec) -> dict[str, Rows]:
    """Row numbers of each part, ascending; a row in a gap is in none.

    Args:
        decision: Decision times, datetime64[us] in UTC, shape (rows,).
        label: When each row's label was known, same type and shape.
        spec: The boundaries.
    """
    gap = np.timedelta64(int(spec.gap.total_seconds() * 1e6), "us")
    bounds = [
        _moment(spec.train_from),
        _moment(spec.train_until),
        _moment(spec.validation_until),
        _moment(spec.test_until),
    ]
    parts: dict[str, Rows] = {}
    for index, name in enumerate(PARTS):
        start, end = bounds[index], bounds[index + 1]
        chosen = np.ones(len(decision), dtype=bool)
        if start is not None:
            chosen &= decision >= start
        if end is not None:
            chosen &= decision < end
            if name != PARTS[-1]:
                chosen &= (decision <= end - gap) & (label <= end)
        parts[name] = np.flatnonzero(chosen).astype(np.int64)
    return parts


def _moment(value: datetime | None) -> np.datetime64 | None:
    return None if value is None else np.datetime64(value.replace(tzinfo=None), "us")


def check_time_order(
    decision: Times, label: Times, labels: npt.NDArray[np.integer[Any]], parts: dict[str, Rows]
) -> None:
    """Check that nobody could have trained on what a later part decides.

    Every part must have rows and both classes, no row may be in two parts, every row must know its times and its label,
    and both the last decision of a part and its last label must come before the first decision of each later part. A
    random split fails this whatever its scores are.

    Args:
        decision: Decision times, datetime64[us], shape (rows,).
        label: When each label was known, same type and shape.
        labels: The labels, 0 or 1, shape (rows,).
        parts: Row numbers by part.

    Raises:
        LeakageError: listing everything that is wrong, with counts and times.
    """
    problems = _misplaced(len(decision), parts)
    if not problems:
        problems += [problem for name in PARTS for problem in _incomplete(name, decision, label, labels, parts[name])]
        for earlier, later in combinations(PARTS, 2):
            problems += _out_of_order(earlier, later, decision, label, parts)
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise LeakageError(f"The split is not in order of time:{listed}\nCorrect the boundaries or the gap in `split`.")


def _misplaced(rows: int, parts: dict[str, Rows]) -> list[str]:
    """Parts without rows, rows that do not exist, rows that are there twice."""
    problems = [f"{name}: has no rows" for name in PARTS if len(parts[name]) == 0]
    for name in PARTS:
        outside = int(((parts[name] < 0) | (parts[name] >= rows)).sum())
        if outside:
            problems.append(f"{name}: {outside} row numbers are not among the {rows} rows of the training set")
    together = np.concatenate([parts[name] for name in PARTS])
    shared = len(together) - len(np.unique(together))
    if shared:
        problems.append(f"{shared} rows are in two parts, or twice in one")
    return problems


def _incomplete(
    name: str, decision: Times, label: Times, labels: npt.NDArray[np.integer[Any]], rows: Rows
) -> Iterator[str]:
    """Times that are missing or the wrong way round, and labels that are not both 0 and 1, of one part."""
    decided, known = decision[rows], label[rows]
    for what, times in (("decision time", decided), ("label time", known)):
        missing = int(np.isnat(times).sum())
        if missing:
            yield f"{name}: {missing} rows have no {what}"
    early = int((known < decided).sum())
    if early:
        yield f"{name}: {early} labels are said to be known before the decision that they judge"
    other = int((~np.isin(labels[rows], (0, 1))).sum())
    if other:
        yield f"{name}: {other} labels are neither 0 nor 1"
    classes = np.unique(labels[rows])
    if len(classes) == 1:
        yield f"{name}: every one of its {len(rows)} labels is {classes[0]}"


def _out_of_order(earlier: str, later: str, decision: Times, label: Times, parts: dict[str, Rows]) -> Iterator[str]:
    decided, first = decision[parts[earlier]], decision[parts[later]].min()
    behind = int((decided >= first).sum())
    if behind:
        yield f"{behind} decisions of {earlier} (last: {decided.max()}) are not before the first of {later} ({first})"
    late = int((label[parts[earlier]] > first).sum())
    if late:
        yield f"{late} labels of {earlier} were known only after the first decision of {later} ({first})"
