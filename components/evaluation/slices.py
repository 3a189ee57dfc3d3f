"""Metrics by the values of a column: where a good average hides a bad corner."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.evaluation.bootstrap import Measured, Units, interval, on_draws
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
        intervals: By role and metric, the ends of the 95 % interval.
        judged: Whether the slice is large enough for the gate, and its labels differ enough.
    """

    name: str
    rows: int
    level: float
    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    judged: bool


def slice_metrics(
    table: pa.Table,
    labels: Array,
    predictions: Mapping[str, Predictions],
    spec: EvaluationSpec,
    task: Task,
    metrics: Sequence[str],
    units: Units,
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
        units: What the bootstrap draws.

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
        titles = [f"{column}={name}" for name in names]
        entries = _slices(titles, members, labels, predictions, spec, task, metrics, units)
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


def _slices(
    names: Sequence[str],
    members: Array,
    every: Array,
    predictions: Mapping[str, Predictions],
    spec: EvaluationSpec,
    task: Task,
    metrics: Sequence[str],
    units: Units,
) -> list[Slice]:
    """The slices that the rows are divided into, all measured on the same draws of all rows."""
    order = np.argsort(members, kind="stable")
    ends = np.searchsorted(members[order], np.arange(len(names) + 1))
    measured: list[Measured] = []
    entries: list[tuple[Slice, list[tuple[str, str]]]] = []
    for index, name in enumerate(names):
        start, stop = ends[index], ends[index + 1]
        rows = order[start:stop]
        labels = every[rows]
        enough = not task.lacks(labels)
        given = {role: each.take(rows) for role, each in predictions.items()}
        named = dict.fromkeys([judging_of(task).objective, *(metrics if enough else ())])
        values = {
            role: {each: metric_named(each).measure(labels, read) for each in named} for role, read in given.items()
        }
        measured += [
            Measured(metric_named(each).on_draws(labels, read), start, stop)
            for read in given.values()
            for each in named
        ]
        judged = enough and _units(next(iter(predictions.values())), rows) >= spec.min_slice_rows
        slice_ = Slice(name, len(rows), level_of(task).of(labels, every)[0], values, {}, judged)
        entries.append((slice_, [(role, each) for role in given for each in named]))
    drawn = iter(on_draws(measured, units, spec.bootstrap_samples, spec.seed, order).T)
    return [replace(entry, intervals=_intervals(entry, keys, drawn)) for entry, keys in entries]


def _intervals(
    entry: Slice, keys: Sequence[tuple[str, str]], drawn: Iterator[Array]
) -> dict[str, dict[str, tuple[float, float]]]:
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for role, metric in keys:
        of_draws = next(drawn)
        if not np.isnan(of_draws).all():
            found.setdefault(role, {})[metric] = interval(metric_named(metric), entry.metrics[role][metric], of_draws)
    return found
