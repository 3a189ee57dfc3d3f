"""Divides rows by time, and finds what is out of order: rows, decisions and labels that a later part's past holds."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from gatehouse.data.splitting.partition import PARTS, Parts, Rows
from gatehouse.data.splitting.spec import TimeSplit
from gatehouse.data.splitting.stable_hash import Flags
from gatehouse.metrics.tasks.task import Task
from gatehouse.runtime.counting import counted

Times = npt.NDArray[np.datetime64]


def divide(decision: Times, label: Times, spec: TimeSplit) -> Parts:
    """Row numbers of each part, ascending; a row in a gap is in none.

    Args:
        decision: Decision times, datetime64[us] in UTC, shape (rows,).
        label: When each row's label was known, same type and shape.
        spec: The boundaries.
    """
    bounds = boundaries(decision, spec)
    parts: dict[str, Rows] = {}
    for index, name in enumerate(PARTS):
        start, end = bounds[index], bounds[index + 1]
        chosen = np.ones(len(decision), dtype=bool)
        if start is not None:
            chosen &= decision >= start
        if end is not None:
            chosen &= decision < end
            if name != PARTS[-1]:
                chosen &= in_time(decision, label, end, spec.gap)
        parts[name] = np.flatnonzero(chosen).astype(np.int64)
    return parts


def in_time(decision: Times, label: Times, end: np.datetime64, gap: timedelta) -> Flags:
    """Which rows were decided at least `gap` before `end`, with a label that was known by then; shape (rows,)."""
    found: Flags = (decision <= end - ticks(gap)) & (label <= end)
    return found


def boundaries(decision: Times, spec: TimeSplit) -> list[np.datetime64 | None]:
    """Where train begins, validation begins, test begins and test ends; None for no boundary.

    Args:
        decision: Decision times in UTC, shape (rows,).
        spec: The boundaries as times, or as durations before the newest decision.
    """
    given = (spec.train_from, spec.train_until, spec.validation_until, spec.test_until)
    timed = decision[~np.isnat(decision)]
    newest = timed.max() if len(timed) else np.datetime64("NaT", "us")
    return [
        None if bound is None else newest - ticks(bound) if isinstance(bound, timedelta) else moment(bound)
        for bound in given
    ]


def moment(value: datetime) -> np.datetime64:
    """A moment in UTC as datetime64[us]."""
    return np.datetime64(value.replace(tzinfo=None), "us")


def ticks(value: timedelta) -> np.timedelta64:
    """A duration in whole microseconds; its seconds as a float would lose some."""
    return np.timedelta64(value // timedelta(microseconds=1), "us")


def unusable(
    rows: int, labels: npt.NDArray[np.float64], task: Task, parts: Parts, empty: Mapping[str, str] | None = None
) -> list[str]:
    """Why the parts are none: without rows or labels that differ, rows that do not exist, or are there twice.

    Args:
        rows: Rows of the training set.
        labels: NaN where there is none, shape (rows,).
        task: What labels must be.
        parts: Row numbers by part.
        empty: Why a part has no rows, where that is known.
    """
    why = empty or {}
    problems = [f"{name}: {why.get(name, 'has no rows')}" for name, part in parts.items() if len(part) == 0]
    outside = {name: int(((part < 0) | (part >= rows)).sum()) for name, part in parts.items()}
    for name, count in outside.items():
        if count:
            problems.append(f"{name}: {counted(count, 'row number')} outside of the {rows:,} rows of the training set")
    together = np.sort(np.concatenate(list(parts.values())))
    shared = int((together[1:] == together[:-1]).sum())
    if shared:
        problems.append(f"{counted(shared, 'row')} in two parts, or twice in one")
    if not any(outside.values()):
        problems += [problem for name, part in parts.items() for problem in _unusable_labels(name, labels[part], task)]
        problems += _untrained_classes(labels, parts) if task.output == "probabilities" else []
    return problems


def _unusable_labels(name: str, labels: npt.NDArray[np.float64], task: Task) -> Iterator[str]:
    other = int(np.isnan(labels).sum())
    if other:
        yield f"{name}: {counted(other, 'label')} other than {task.label}"
    elif len(labels) and (lacking := task.lacks(labels)):
        yield f"{name}: has {lacking}"


def _untrained_classes(labels: npt.NDArray[np.float64], parts: Parts) -> Iterator[str]:
    """Classes of the part `validation` that training cannot know; one of the part `test` is judged as it is."""
    train, validation = (np.unique(labels[parts[name]]) for name in ("train", "validation"))
    unknown = np.setdiff1d(validation[~np.isnan(validation)], train)
    if len(unknown):
        shown = ", ".join(f"{value:g}" for value in unknown[:5])
        yield f"validation: has rows of classes that train lacks, {len(unknown):,} in all: {shown}"


def senseless_times(decision: Times | None, label: Times | None, name: str, rows: Rows) -> Iterator[str]:
    """Times of a part that are missing, and labels known before the decision that they judge.

    Args:
        decision: Decision times in UTC, shape (rows,); None where they are not told.
        label: When each label was known, same shape; None where it is not told.
        name: The part.
        rows: Its row numbers, shape (rows of the part,).
    """
    for what, times in (("decision time", decision), ("label time", label)):
        missing = 0 if times is None else int(np.isnat(times[rows]).sum())
        if missing:
            yield f"{name}: {counted(missing, 'row')} without {what}"
    early = 0 if decision is None or label is None else int((label[rows] < decision[rows]).sum())
    if early:
        yield f"{name}: {counted(early, 'label')} with a time before the decision that the label judges"


def decisions_out_of_order(decision: Times, earlier: str, later: str, parts: Parts) -> Iterator[str]:
    """Decisions of the earlier part that are not before every decision of the later one.

    Args:
        decision: Decision times in UTC, shape (rows,).
        earlier: Name of a part.
        later: Name of a part that comes after it.
        parts: Row numbers by part.
    """
    decided, others = _known(decision, parts[earlier]), _known(decision, parts[later])
    if len(decided) and len(others):
        behind = int((decided >= others.min()).sum())
        if behind:
            last = f"{counted(behind, 'decision')} of {earlier} (last: {_text(decided.max())})"
            yield f"{last} not before the first of {later} ({_text(others.min())})"


def labels_out_of_order(decision: Times, label: Times, earlier: str, later: str, parts: Parts) -> Iterator[str]:
    """Labels of the earlier part that were not known before the later part's first decision.

    Args:
        decision: Decision times in UTC, shape (rows,).
        label: When each label was known, same shape.
        earlier: Name of a part.
        later: Name of a part that comes after it.
        parts: Row numbers by part.
    """
    others = _known(decision, parts[later])
    if len(others):
        first = others.min()
        late = int((label[parts[earlier]] > first).sum())
        if late:
            labels = f"{counted(late, 'label')} of {earlier}"
            yield f"{labels} known only after the first decision of {later} ({_text(first)})"


def _text(time: np.datetime64) -> str:
    return str(time).removesuffix(".000000")


def _known(times: Times, rows: Rows) -> Times:
    chosen = times[rows]
    return chosen[~np.isnat(chosen)]
