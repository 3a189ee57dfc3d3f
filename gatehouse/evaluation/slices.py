"""Metrics of slices of the test rows: where a good average hides a bad corner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.bootstrap import Measured, Units, interval, on_draws
from gatehouse.evaluation.comparison import compared
from gatehouse.evaluation.found_slices import find_slices
from gatehouse.evaluation.gate import Comparison
from gatehouse.evaluation.slice_columns import slice_columns
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.catalogue.found import metric_named
from gatehouse.metrics.catalogue.metric import Array, Metric, Predictions, all_on_draws, by_metric
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.metrics.tasks.level import level_of
from gatehouse.metrics.tasks.task import Task

MOST_VALUES = 40
OTHER = "(other)"


@dataclass(frozen=True)
class Slice:
    """One value of one column.

    Attributes:
        name: `column=value`, or two of these.
        rows: Test rows in it.
        level: The level of their labels.
        metrics: By role (`candidate`, and `champion` where there is one), metrics by name. A metric that slices are
            judged by is given only where labels differ enough to measure it.
        intervals: By role and metric, the ends of the 95 % interval.
        comparisons: Against the champion, by metric; empty where there is none.
        judged: Whether the slice is large enough for the gate, and its labels differ enough.
        p_value: Of a slice that was found: of its mean loss being no greater than that of the other rows.
    """

    name: str
    rows: int
    level: float
    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    comparisons: Mapping[str, Comparison]
    judged: bool
    p_value: float | None = None


@dataclass(frozen=True)
class Slicing:
    """The rows on which slices are measured, and the settings.

    Attributes:
        table: The test rows.
        labels: Shape (rows,).
        predictions: For the rows, of `candidate` and of `champion` where there is one.
        spec: Which columns are sliced, and how many rows a slice needs to be judged.
        task: Says when labels differ enough, and which metric is given of every slice.
        limits: Names of the metrics that slices are judged by.
        compared: The metric that candidate and champion are compared in, and the confidence of its bounds.
        units: What the bootstrap draws.
    """

    table: pa.Table
    labels: Array
    predictions: Mapping[str, Predictions]
    spec: EvaluationSpec
    task: Task
    limits: tuple[str, ...]
    compared: tuple[str, float]
    units: Units

    def named(self) -> list[Slice]:
        """One entry a value of each column, expression and cross that the project names, largest first within one.

        Nulls are a slice of their own; of more than 40 values the rarest are taken together as `(other)`.

        Raises:
            ConfigurationError: if there is no such column, or one cuts the groups of a ranking apart.
        """
        found: list[Slice] = []
        for column, values in slice_columns(self.table, self.spec).items():
            names, members = group(values)
            self._require_whole_groups(column, members)
            rows = [np.flatnonzero(members == number) for number in range(len(names))]
            titles = [name if name != OTHER else f"{column}={OTHER}" for name in names]
            found.extend(sorted(self._measured(titles, rows), key=lambda entry: (-entry.rows, entry.name)))
        return found

    def found(self, features: Mapping[str, bool], design_effect: float) -> list[Slice]:
        """The worst slices of features, given by whether they are numeric.

        Of a ranking these are whole groups, so that only features count that have one value in all rows of each.
        """
        metric, most = metric_named(judging_of(self.task).objective), self.spec.found_slices
        groups, read = self.predictions["candidate"].groups, metric.read(self.predictions["candidate"])
        measured = metric.by_row if groups is None else metric.by_group
        if measured is None or not most:
            return []
        losses, table = measured(self.labels, *read) * (1 if metric.better == "lower" else -1), self.table
        if groups is not None:
            _, first, members = np.unique(groups, return_index=True, return_inverse=True)
            features = {name: kind for name, kind in features.items() if _is_whole(self.table[name], first[members])}
            counted = np.flatnonzero(~np.isnan(losses))
            table, losses = table.take(pa.array(first[counted])), losses[counted]
        worst = find_slices(table, features, losses, most, self.spec.min_slice_rows, max(design_effect, 1.0))
        rows = [each.rows if groups is None else np.flatnonzero(np.isin(members, counted[each.rows])) for each in worst]
        entries = self._measured([each.name for each in worst], rows) if worst else []
        return [replace(entry, p_value=one.p_value, judged=False) for entry, one in zip(entries, worst, strict=True)]

    def _measured(self, names: Sequence[str], members: Sequence[Array]) -> list[Slice]:
        """Slices of rows by their numbers, all measured on the same draws of all rows."""
        objective = judging_of(self.task).objective
        measured: list[Measured] = []
        entries: list[tuple[Slice, Array, list[Metric]]] = []
        start = 0
        for name, rows in zip(names, members, strict=True):
            labels, stop = self.labels[rows], start + len(rows)
            enough = not self.task.lacks(labels)
            given = {role: each.take(rows) for role, each in self.predictions.items()}
            # What candidate and champion are compared in needs labels that differ, as limits do.
            named = dict.fromkeys([objective, *((*self.limits, self.compared[0]) if enough else ())])
            chosen = [metric_named(each) for each in named]
            values = {role: {each.name: each.measure(labels, read) for each in chosen} for role, read in given.items()}
            measured += [Measured(all_on_draws(chosen, labels, read), start, stop) for read in given.values()]
            judged = enough and self._size(rows) >= self.spec.min_slice_rows
            level = level_of(self.task).of(labels, self.labels)[0]
            entry = Slice(name, len(rows), level, values, {}, {}, judged)
            entries.append((entry, rows, chosen))
            start = stop
        order = np.concatenate(members)
        drawn = on_draws(measured, self.units, self.spec.bootstrap_samples, self.spec.seed, order)
        parts = iter(by_metric([each for *_, chosen in entries for _ in self.predictions for each in chosen], drawn))
        return [
            self._with_draws(entry, rows, {role: {each: next(parts) for each in chosen} for role in self.predictions})
            for entry, rows, chosen in entries
        ]

    def _with_draws(self, entry: Slice, rows: Array, drawn: Mapping[str, Mapping[Metric, Array]]) -> Slice:
        intervals: dict[str, dict[str, tuple[float, float]]] = {}
        units, labels = self.units.among(rows), self.labels[rows]
        for role, by_name in drawn.items():
            for metric, values in by_name.items():
                if not np.isnan(values).all():
                    ends = interval(metric, values, units, labels, self.predictions[role].take(rows))
                    intervals.setdefault(role, {})[metric.name] = ends
        name, confidence = self.compared
        metric = metric_named(name)
        pair = [drawn.get(role, {}).get(metric) for role in ("candidate", "champion")]
        comparisons = {}
        if pair[0] is not None and pair[1] is not None and not np.isnan(pair[0]).all():
            ours, theirs = (entry.metrics[role][name] for role in ("candidate", "champion"))
            values_of = (pair[0][:, 0], pair[1][:, 0])
            comparisons[name] = compared(metric, ours, theirs, values_of, confidence, units)
        return replace(entry, intervals=intervals, comparisons=comparisons)

    def _size(self, rows: Array) -> int:
        """What a slice has many or few of: rows, or of a ranking groups."""
        groups = next(iter(self.predictions.values())).groups
        return len(rows) if groups is None else len(np.unique(groups[rows]))

    def _require_whole_groups(self, column: str, members: npt.NDArray[np.int64]) -> None:
        """A part of a ranking is another ranking: of one row it is always right."""
        groups = next(iter(self.predictions.values())).groups
        if groups is None:
            return
        pairs = np.unique(np.column_stack([groups, members]), axis=0)
        cut = len(pairs) - len(np.unique(groups))
        if cut:
            raise ConfigurationError(
                f"evaluation.slices: {column}: expected the same value in all rows of a group, because a ranking "
                f"metric needs the whole group; found several values in {cut:,} groups. Name a column that is constant "
                "within a group."
            )


def _is_whole(values: pa.ChunkedArray, first: Array) -> bool:
    """Whether every row has the value of the first row of its group, given by its number."""
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    codes = plain.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return bool((codes == codes[first]).all())


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
