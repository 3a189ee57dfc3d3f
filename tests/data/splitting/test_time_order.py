"""Division by time agrees with a row-by-row reference, and what is not in order of time is found."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gatehouse.data.splitting.checks import decisions_out_of_order, labels_out_of_order, senseless_times, unusable
from gatehouse.data.splitting.divide import PAIRS, PARTS, divide_by_time
from gatehouse.data.splitting.spec import TimeSplit
from gatehouse.metrics.tasks import BINARY, TASKS

START = datetime(2024, 1, 1, tzinfo=UTC)


def _hours(values: Any) -> Any:
    start = np.datetime64(START.replace(tzinfo=None), "us")
    return start + np.asarray(values, dtype=np.int64) * np.timedelta64(1, "h")


def _at(hours: int) -> datetime:
    return START + timedelta(hours=hours)


def _problems(decision: Any, label: Any, labels: Any, parts: dict[str, Any]) -> list[str]:
    """All that the checks of a split by time say."""
    problems = [*unusable(len(decision), np.where(BINARY.is_label(labels), labels, np.nan), BINARY, parts)]
    if problems:
        return problems
    for name in PARTS:
        problems += senseless_times(decision, label, name, parts[name])
    for pair in PAIRS:
        problems += decisions_out_of_order(decision, *pair, parts)
        problems += labels_out_of_order(decision, label, *pair, parts)
    return problems


def _spec(**changes: Any) -> TimeSplit:
    keys = {"train_until": _at(100), "validation_until": _at(150), "gap": timedelta(hours=5)}
    return TimeSplit.model_validate(keys | changes)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=60),
    bounds=st.lists(st.integers(1, 59), min_size=4, max_size=4, unique=True).map(sorted),
    gap=st.integers(0, 12),
    open_start=st.booleans(),
    open_end=st.booleans(),
)
def test_divide_agrees_with_a_row_by_row_reference(
    rows: list[tuple[int, int]], bounds: list[int], gap: int, open_start: bool, open_end: bool
) -> None:
    spec = TimeSplit(
        train_from=None if open_start else _at(bounds[0]),
        train_until=_at(bounds[1]),
        validation_until=_at(bounds[2]),
        test_until=None if open_end else _at(bounds[3]),
        gap=timedelta(hours=gap),
    )
    expected: dict[str, list[int]] = {name: [] for name in PARTS}
    for row, (decided, delay) in enumerate(rows):
        if (open_start or decided >= bounds[0]) and decided <= bounds[1] - gap and decided < bounds[1]:
            if decided + delay <= bounds[1]:
                expected["train"].append(row)
        elif bounds[1] <= decided < bounds[2] and decided <= bounds[2] - gap:
            if decided + delay <= bounds[2]:
                expected["validation"].append(row)
        elif bounds[2] <= decided and (open_end or decided < bounds[3]):
            expected["test"].append(row)
    decision = _hours([decided for decided, _ in rows])
    label = _hours([decided + delay for decided, delay in rows])
    divided = divide_by_time(decision, label, spec)
    assert {name: part.tolist() for name, part in divided.items()} == expected


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(2, 6)] * 3),
    gaps=st.tuples(*[st.integers(0, 3)] * 2),
    delay=st.lists(st.integers(0, 3), min_size=18, max_size=18),
    moved=st.none() | st.tuples(st.integers(0, 17), st.integers(0, 3)),
)
def test_only_splits_in_order_of_time_are_accepted(
    sizes: tuple[int, int, int], gaps: tuple[int, int], delay: list[int], moved: tuple[int, int] | None
) -> None:
    # Parts that follow each other, as wide apart as `gaps`; then at most one row is put elsewhere, or nowhere.
    part_of = [index for index, size in enumerate(sizes) for _ in range(size)]
    decided = np.array([row + sum(gaps[:part]) for row, part in enumerate(part_of)])
    if moved and moved[0] < len(part_of):
        part_of[moved[0]] = moved[1]
    labels, late = np.arange(len(part_of)) % 2, np.array(delay[: len(part_of)])
    parts = {
        name: np.array([row for row, part in enumerate(part_of) if part == index], dtype=np.int64)
        for index, name in enumerate(PARTS)
    }
    accepted = _accepted(decided, late, labels, parts)
    event("accepted" if accepted else "refused")
    assert (not _problems(_hours(decided), _hours(decided + late), labels, parts)) == accepted


def _accepted(decided: Any, delay: Any, labels: Any, parts: dict[str, Any]) -> bool:
    matured = decided + delay
    good = all(len(part) and set(labels[part]) == {0, 1} for part in parts.values())
    for earlier, later in (("train", "validation"), ("train", "test"), ("validation", "test")):
        for left in parts[earlier]:
            for right in parts[later]:
                good = good and bool(decided[left] < decided[right] and matured[left] <= decided[right])
    return good


def test_every_class_of_validation_is_in_train() -> None:
    labels, parts = np.array([0.0, 1, 0, 2, 0, 3]), {"train": [0, 1], "validation": [2, 3], "test": [4, 5]}
    (problem,) = unusable(6, labels, TASKS["multiclass"], {name: np.array(rows) for name, rows in parts.items()})
    assert problem == "validation: has rows of classes that train lacks, 1 in all: 2"


def test_a_boundary_may_be_counted_back_from_the_newest_decision() -> None:
    days = np.datetime64("2013-01-01", "us") + np.arange(20) * np.timedelta64(1, "D")
    decision = np.append(days, np.datetime64("NaT"))
    spec = {"strategy": "time", "train_until": "P10D", "validation_until": "P4D", "gap": "PT0S"}
    parts = divide_by_time(decision, decision, TimeSplit.model_validate(spec))
    assert [len(parts[name]) for name in ("train", "validation", "test")] == [9, 6, 5]
    with pytest.raises(ValidationError, match="train_until longer than validation_until, found P"):
        TimeSplit.model_validate(spec | {"validation_until": "P10D"})
    for wrong in ("-P1D", 81, "81 days"):
        with pytest.raises(ValidationError, match="expected a time such as"):
            TimeSplit.model_validate(spec | {"validation_until": wrong})
