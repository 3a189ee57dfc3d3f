"""Metrics of slices of the test rows, where a good average hides a bad corner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.bootstrap import compared, interval
from gatehouse.evaluation.draws import PartMetrics, Sample, measured_draws
from gatehouse.evaluation.gate import Comparison
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.metric import Array, by_metric
from gatehouse.metrics.tasks import Task
from gatehouse.store.database import connect
from gatehouse.store.hidden_values import error_words
from gatehouse.store.repeatable_sql import repeatable
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation import Columns

MOST_VALUES = 40
OTHER = "(other)"
NULL = "(null)"
CROSS = " × "


@dataclass(frozen=True)
class Slice:
    """One value of one column.

    Attributes:
        name: `column=value`, or two of these.
        metrics: By role (`candidate`, and `champion` if there is one), metrics by name. A metric that slices are
            judged by is given only if labels differ enough to measure it.
        judged: Whether the slice is large enough for the gate, and its labels differ enough.
    """

    name: str
    rows: int
    level: float
    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    comparisons: Mapping[str, Comparison]
    judged: bool


def measured_slices(
    table: Columns,
    sample: Sample,
    spec: EvaluationSpec,
    task: Task,
    limits: tuple[str, ...],
    judged_by: tuple[str, float],
    objective: str = "",
    store: ArtifactStore | None = None,
) -> list[Slice]:
    """One slice per value of each column, expression and cross that the project names, the largest first within one.

    Nulls are a slice of their own. With more than 40 values, the rarest are one slice, `(other)`.

    Args:
        task: Decides when labels differ enough.
        judged_by: The metric in which candidate and champion are compared, and the confidence of its bounds.
        objective: The metric that is measured in every slice; empty for the task's own.
        store: Where pieces find many rows; None to measure all in this process.

    Raises ConfigurationError if there is no such column, or if one splits the groups of a ranking.
    """
    labels, predictions = sample.labels, sample.predictions
    groups, objective = predictions["candidate"].groups, objective or profile_of(task).objective
    compared_in, confidence = judged_by
    names: list[str] = []
    members: list[Array] = []
    divisions: list[Array] = []
    for column, labelled in slice_columns(table, spec).items():
        titles, numbers = group(labelled)
        if groups is not None:
            split = len(np.unique(np.column_stack([groups, numbers]), axis=0)) - len(np.unique(groups))
            if split:
                raise ConfigurationError(
                    f"evaluation.slices: {column}: expected one value in each group, found several in {split:,} groups."
                )
        titles = [f"{column}={OTHER}" if title == OTHER else title for title in titles]
        sizes = np.bincount(numbers)
        order = sorted(range(len(titles)), key=lambda number: (-sizes[number], titles[number]))
        names += [titles[number] for number in order]
        members += [np.flatnonzero(numbers == number) for number in order]
        divisions.append(np.argsort(order)[numbers])
    if not names:
        return []

    needed = list[tuple[str, ...]]()
    for rows in members:
        enough = not task.lacks(labels[rows])
        needed.append(tuple(dict.fromkeys([objective, *((*limits, compared_in) if enough else ())])))
    metrics_of = [[metric_named(metric) for metric in of_slice] for of_slice in needed]
    # All slices are measured on the same draws of all rows.
    measured = [PartMetrics(role=role, metrics=tuple(needed)) for role in predictions]
    divided = replace(sample, divisions=divisions)
    numbers_of = measured_draws(divided, measured, spec.bootstrap_samples, spec.seed, store)
    flat = [metric for metrics in metrics_of for metric in metrics]
    columns = {role: iter(by_metric(flat, drawn)) for role, drawn in zip(predictions, numbers_of, strict=True)}

    slices = []
    for name, rows, metrics in zip(names, members, metrics_of, strict=True):
        own, drawn_units = labels[rows], sample.units.among(rows)
        values: dict[str, dict[str, float]] = {}
        intervals: dict[str, dict[str, tuple[float, float]]] = {}
        draws: dict[tuple[str, str], Array] = {}
        for role, predicted in predictions.items():
            read = predicted.take(rows)
            values[role] = {metric.name: metric.measure(own, read) for metric in metrics}
            for metric in metrics:
                draw = draws[role, metric.name] = next(columns[role])
                if not np.isnan(draw).all():
                    intervals.setdefault(role, {})[metric.name] = interval(metric, draw, drawn_units, own, read)
        pair = [draws.get((role, compared_in)) for role in ("candidate", "champion")]
        comparisons = {}
        if pair[0] is not None and pair[1] is not None and not np.isnan(pair[0]).all():
            comparisons[compared_in] = compared(
                metric_named(compared_in),
                values["candidate"][compared_in],
                values["champion"][compared_in],
                (pair[0][:, 0], pair[1][:, 0]),
                confidence,
                drawn_units,
            )
        size = len(rows) if groups is None else len(np.unique(groups[rows]))
        judged = not task.lacks(own) and size >= spec.min_slice_rows
        level = task.level.of(own, labels)[0]
        slices.append(Slice(name, len(rows), level, values, intervals, comparisons, judged))
    return slices


def group(values: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Names of the groups of values, the most frequent first, and the number of each row's group, shape (rows,)."""
    encoded = values.combine_chunks().dictionary_encode()
    names, members = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    counts = np.bincount(members, minlength=len(names))
    order = sorted(range(len(names)), key=lambda index: (-counts[index], names[index]))
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    if len(names) <= MOST_VALUES:
        return [names[index] for index in order], place[members]
    kept = [names[index] for index in order[: MOST_VALUES - 1]]
    return [*kept, OTHER], np.minimum(place, MOST_VALUES - 1)[members]


def slice_columns(table: Columns, spec: EvaluationSpec) -> dict[str, pa.ChunkedArray]:
    """By column, expression or pair, the name of each row's slice, shape (rows,); a null is a value of its own.

    Raises ConfigurationError if there is no such column, or DuckDB cannot evaluate an expression over the rows.
    """
    import duckdb

    named = named_values(table, spec.slices, "slices") if isinstance(spec.slices, tuple) else {}
    for name, expression in spec.slices.items() if isinstance(spec.slices, dict) else ():
        try:
            with connect(threads=1) as database:
                database.execute("SET TimeZone = 'UTC'")
                database.register("rows", table)
                query = repeatable(database, f"SELECT ({expression}) AS value FROM rows", f"evaluation.slices: {name}")
                result = database.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise ConfigurationError(
                f"evaluation.slices: {name}: expected a SQL expression over the test rows, which have "
                f"{', '.join(table.column_names)}; found {expression!r}: {error_words(error).partition(' LINE ')[0]}"
            ) from error
        if result.num_rows != table.num_rows:
            raise ConfigurationError(
                f"evaluation.slices: {name}: expected a value for each of {table.num_rows:,} rows, found "
                f"{result.num_rows:,} for {expression!r}."
            )
        named[name] = _named(name, result["value"])
    for first, second in spec.crossed_slices:
        named[f"{first}{CROSS}{second}"] = pc.binary_join_element_wise(named[first], named[second], CROSS)
    return named


def named_values(table: Columns, columns: Sequence[str], key: str) -> dict[str, pa.ChunkedArray]:
    """By column, the name of each row's group, `column=value`, shape (rows,); null and NaN are one value.

    Raises ConfigurationError if there is no such column; `key` is the key of the specification that names it.
    """
    if missing := [column for column in columns if column not in table.column_names]:
        raise ConfigurationError(
            f"evaluation.{key}: the training set has no column {', '.join(missing)}; it has "
            f"{', '.join(table.column_names)}."
        )
    return {name: _named(name, table[name]) for name in columns}


def _named(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    values = pc.if_else(pc.is_null(column, nan_is_null=True), NULL, pc.cast(column, pa.string()))
    return pc.binary_join_element_wise(name, values, "=")
