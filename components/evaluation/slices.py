"""Metrics by the values of a column: where a good average hides a bad corner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.evaluation.spec import EvaluationSpec
from gatehouse.components.metrics.catalogue.found import metric_named
from gatehouse.components.metrics.catalogue.metric import Array, Predictions
from gatehouse.components.tasks.judging import judging_of
from gatehouse.components.tasks.level import level_of
from gatehouse.components.tasks.task import Task
from gatehouse.errors import ConfigurationError

MOST_VALUES = 40
NULL, OTHER = "(null)", "(other)"


@dataclass(frozen=True)
class Slice:
    """One value of one column.

    Attributes:
        name: `column=value`.
        rows: Test rows with this value.
        level: The level of their labels.
        metrics: By role (`candidate`, and `champion` where there is one), metrics by name. A metric that slices are
            judged by is given only where labels differ enough to measure it.
        intervals: 95 % interval of the candidate's value, of metrics that tell one.
        judged: Whether the slice is large enough for the gate, and its labels differ enough.
    """

    name: str
    rows: int
    level: float
    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, tuple[float, float]]
    judged: bool


def slice_metrics(
    table: pa.Table,
    labels: Array,
    predictions: Mapping[str, Predictions],
    spec: EvaluationSpec,
    task: Task,
    metrics: Sequence[str],
) -> list[Slice]:
    """One entry a value of each slice column, largest first within a column.

    Nulls are a slice of their own; of a column with more than 40 values the rarest are taken together as `(other)`.

    Args:
        table: The test rows.
        labels: Shape (rows,).
        predictions: For the rows, of `candidate` and of `champion` where there is one.
        spec: Which columns, and from how many rows on a slice is judged.
        task: Says when labels differ enough, and which metric is given of every slice.
        metrics: Names of the metrics that slices are judged by.

    Raises:
        ConfigurationError: if the training set has no such column, or one cuts the groups of a ranking apart.
    """
    missing = [column for column in spec.slices if column not in table.column_names]
    if missing:
        raise ConfigurationError(
            f"evaluation.slices: the training set has no column {', '.join(missing)}; it has "
            f"{', '.join(table.column_names)}."
        )
    found: list[Slice] = []
    for column in spec.slices:
        names, members = group(table[column])
        _require_whole_groups(column, members, predictions)
        entries = []
        for index, name in enumerate(names):
            rows = np.flatnonzero(members == index)
            entries.append(_slice(f"{column}={name}", rows, labels, predictions, spec, task, metrics))
        found.extend(sorted(entries, key=lambda entry: (-entry.rows, entry.name)))
    return found


def _require_whole_groups(column: str, members: npt.NDArray[np.int64], predictions: Mapping[str, Predictions]) -> None:
    """A part of a ranking is another ranking: of one row it is always right."""
    groups = next(iter(predictions.values())).groups
    if groups is None:
        return
    pairs = np.unique(np.column_stack([groups, members]), axis=0)
    cut = len(pairs) - len(np.unique(groups))
    if cut:
        raise ConfigurationError(
            f"evaluation.slices: {column}: expected one value in all rows of a group, as a ranking is judged whole; "
            f"found more in {cut:,} groups. Name a column of the group."
        )


def group(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Names of the groups of a column's values, the most frequent first, and the number of the group of every row."""
    text = pc.fill_null(pc.cast(column, pa.string()), NULL)
    encoded = text.combine_chunks().dictionary_encode()
    names, members = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    counts = np.bincount(members, minlength=len(names))
    order = sorted(range(len(names)), key=lambda index: (-counts[index], names[index]))
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    if len(names) <= MOST_VALUES:
        return [names[index] for index in order], place[members]
    kept = [names[index] for index in order[: MOST_VALUES - 1]]
    return [*kept, OTHER], np.minimum(place, MOST_VALUES - 1)[members]


def _units(predictions: Predictions, rows: Array) -> int:
    """What a slice has many or few of: rows, or of a ranking groups."""
    return len(rows) if predictions.groups is None else len(np.unique(predictions.groups[rows]))


def _slice(
    name: str,
    rows: Array,
    every: Array,
    predictions: Mapping[str, Predictions],
    spec: EvaluationSpec,
    task: Task,
    metrics: Sequence[str],
) -> Slice:
    labels = every[rows]
    enough = not task.lacks(labels)
    objective = judging_of(task).objective
    named = [metric_named(each) for each in dict.fromkeys([objective, *(metrics if enough else ())])]
    measured = {
        role: {metric.name: metric.measure(labels, given) for metric in named}
        for role, given in ((role, each.take(rows)) for role, each in predictions.items())
    }
    intervals = {
        metric.name: metric.interval(measured["candidate"][metric.name], labels)
        for metric in named
        if metric.interval is not None
    }
    return Slice(
        name=name,
        rows=len(labels),
        level=level_of(task).of(labels, every)[0],
        metrics=measured,
        intervals=intervals,
        judged=enough and _units(next(iter(predictions.values())), rows) >= spec.min_slice_rows,
    )
