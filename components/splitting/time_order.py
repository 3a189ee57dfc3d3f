"""Divides rows by time, and checks the structure that no score can show: the order of time between the parts."""

from datetime import datetime
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
    bounds = [_moment(spec.train_from), _moment(spec.train_until), _moment(spec.validation_until), _moment(spec.test_until)]
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

    Every part must have rows and both classes, no row may be in two parts, and the last label of a part must have been
    known before the first decision of the next. A random split fails this whatever its scores are.

    Args:
        decision: Decision times, datetime64[us], shape (rows,).
        label: When each label was known, same type and shape.
        labels: The labels, 0 or 1, shape (rows,).
        parts: Row numbers by part.

    Raises:
        LeakageError: listing everything that is wrong, with counts and times.
    """
    problems = [f"{name}: has no rows" for name in PARTS if len(parts[name]) == 0]
    for name in PARTS:
        classes = np.unique(labels[parts[name]])
        if len(parts[name]) and len(classes) < 2:
            problems.append(f"{name}: every one of its {len(parts[name])} labels is {classes[0]}")
    together = np.concatenate([parts[name] for name in PARTS])
    shared = len(together) - len(np.unique(together))
    if shared:
        problems.append(f"{shared} rows are in two parts")
    for earlier, later in zip(PARTS, PARTS[1:], strict=False):
        if len(parts[earlier]) and len(parts[later]):
            first = decision[parts[later]].min()
            late = int((label[parts[earlier]] > first).sum())
            if late:
                problems.append(f"{late} labels of {earlier} were known only after the first decision of {later} ({first})")
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise LeakageError(f"The split is not in order of time:{listed}\nCorrect the boundaries or the gap in `split`.")
