"""Measures fairness: the rates of each group of a protected column, and how far apart they are, with intervals."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from gatehouse.components.evaluation.bootstrap import LEVEL, Units
from gatehouse.components.evaluation.gate import LEAST_UNITS
from gatehouse.components.evaluation.group_measures import (
    Fairness,
    Group,
    GroupMeasure,
    Interval,
    Rates,
    group_measures_of,
)
from gatehouse.components.evaluation.slice_columns import named_values
from gatehouse.components.evaluation.slices import OTHER, group
from gatehouse.components.evaluation.spec import EvaluationSpec
from gatehouse.components.metrics.calibration_error_debiased import calibration_error_debiased
from gatehouse.components.metrics.catalogue.metric import Array, Predictions
from gatehouse.components.tasks.task import Task

_CALIBRATION = "calibration_error"
OfDraw = Callable[[Array], dict[str, Array]]


def fairness_of(
    table: pa.Table,
    labels: Array,
    predictions: Mapping[str, Predictions],
    spec: EvaluationSpec,
    task: Task,
    units: Units,
) -> list[Fairness]:
    """What each protected column shows, measured on the draws of all other numbers.

    A group that has fewer than `min_slice_rows` rows, fewer than 20 units of the bootstrap, or labels that do not
    differ, cannot be judged: measures are those of the other groups.

    Args:
        table: The test rows.
        labels: Shape (rows,).
        predictions: For the rows, by role; classes are those at the model's threshold.
        spec: Names the columns.
        task: Says which measures there are.
        units: What the bootstrap draws.

    Raises:
        ConfigurationError: if there is no such column.
    """
    found = []
    for column, values in named_values(table, spec.protected, "protected").items():
        if not group_measures_of(task.name):
            found.append(Fairness(column, (), {}))
            continue
        names, members = group(values)
        rows = [np.flatnonzero(members == number) for number in range(len(names))]
        lacking = [_lacking(labels, each, spec, task, units) for each in rows]
        judged = np.array([not each for each in lacking])
        rates, measures = {}, {}
        for role, read in predictions.items():
            measured = _rates(task.name, labels, read, members, rows)
            once, drawn = measured(np.ones(len(labels))), _on_draws(measured, units, spec)
            rates[role] = _by_group(once, drawn) if task.name != "multiclass" else [{} for _ in names]
            measures[role] = _measures(task.name, once, drawn, judged) if judged.sum() > 1 else {}
        groups = tuple(
            Group(
                names[number] if names[number] != OTHER else f"{column}={OTHER}",
                len(rows[number]),
                lacking[number],
                {role: each[number] for role, each in rates.items()},
            )
            for number in range(len(names))
        )
        found.append(Fairness(column, groups, measures))
    return found


def _lacking(labels: Array, rows: Array, spec: EvaluationSpec, task: Task, units: Units) -> str:
    if len(rows) < spec.min_slice_rows:
        return f"{len(rows):,} rows, fewer than {spec.min_slice_rows:,}"
    if (number := units.among(rows)) < LEAST_UNITS:
        return f"rows of {number} {units.name}s, fewer than {LEAST_UNITS}"
    return task.lacks(labels[rows])


def _rates(task: str, labels: Array, read: Predictions, members: Array, rows: list[Array]) -> OfDraw:
    """A function from how often each row was drawn to rates by name, shape (groups, classes); NaN of no rows."""
    if task == "regression":
        said = (read.scores, read.scores - labels)
        return lambda times: dict(zip(_REGRESSION, _means(times, said, members, len(rows)), strict=True))
    rates = _class_rates(labels, read.form("classes"), members, len(rows))
    if task == "multiclass":
        return rates
    errors = [calibration_error_debiased.on_draws(labels[each], read.take(each)) for each in rows]

    def both(times: Array) -> dict[str, Array]:
        by_class = {name: values[:, 1:] for name, values in rates(times).items()}
        return by_class | {_CALIBRATION: np.array([[of(times[each])] for of, each in zip(errors, rows, strict=True)])}

    return both


_REGRESSION = ("mean_prediction", "mean_error")


def _means(times: Array, said: tuple[Array, ...], members: Array, groups: int) -> list[Array]:
    counts = np.bincount(members, weights=times, minlength=groups)
    return [_share(np.bincount(members, weights=times * each, minlength=groups), counts)[:, None] for each in said]


def _class_rates(labels: Array, classes: Array, members: Array, groups: int) -> OfDraw:
    """Rates of each class against the rest; only pairs of label and prediction that occur are counted."""
    seen, said = labels.astype(np.int64), np.asarray(classes).astype(np.int64)
    number = max(2, int(max(seen.max(), said.max())) + 1)
    cells, cell = np.unique((members * number + seen) * number + said, return_inverse=True)
    rest, is_said = np.divmod(cells, number)
    of_group, is_seen = np.divmod(rest, number)
    size = groups * number

    def counted(times: Array) -> dict[str, Array]:
        rows = np.bincount(cell, weights=times, minlength=len(cells))
        place = of_group * number
        right, positive, selected = (
            np.bincount(place + of, weights=weights, minlength=size).reshape(groups, number)
            for of, weights in ((is_seen, rows * (is_seen == is_said)), (is_seen, rows), (is_said, rows))
        )
        total = positive.sum(axis=1, keepdims=True)
        return {
            "selection_rate": _share(selected, np.broadcast_to(total, selected.shape)),
            "true_positive_rate": _share(right, positive),
            "false_positive_rate": _share(selected - right, total - positive),
        }

    return counted


def _share(parts: Array, wholes: Array) -> Array:
    return np.asarray(np.divide(parts, wholes, out=np.full(parts.shape, np.nan), where=wholes > 0))


def _on_draws(measured: OfDraw, units: Units, spec: EvaluationSpec) -> Rates:
    """Rates on each draw, shape (samples, groups, classes)."""
    drawn = [measured(times) for times in units.draws(spec.bootstrap_samples, spec.seed)]
    return {name: np.stack([each[name] for each in drawn]) for name in drawn[0]}


def _by_group(once: Rates, drawn: Rates) -> list[dict[str, Interval]]:
    """The rates of each group, of one class, with intervals; those without a value are left out."""
    found: list[dict[str, Interval]] = []
    for number in range(len(next(iter(once.values())))):
        rates = {}
        for name, values in once.items():
            value, draws = float(values[number, 0]), drawn[name][:, number, 0]
            if not np.isnan(value):
                low, high = _ends(draws)
                rates[name] = (value, *((low, high) if name != _CALIBRATION else _reversed_ends(value, low, high)))
        found.append(rates)
    return found


def _measures(task: str, once: Rates, drawn: Rates, judged: Array) -> dict[str, Interval]:
    """Measures over the judged groups; those without a value are left out."""
    rates = {name: values[judged] for name, values in once.items()}
    draws = {name: values[:, judged] for name, values in drawn.items()}
    found = {name: _interval(measure, rates, draws) for name, measure in group_measures_of(task).items()}
    return {name: each for name, each in found.items() if each is not None}


@np.errstate(divide="ignore", invalid="ignore")  # Logarithms of no rows, and their differences.
def _interval(measure: GroupMeasure, once: Rates, drawn: Rates) -> Interval | None:
    """The measure of rates with its 95 % interval; None where it has no value.

    Groups of a sample differ by chance too, and the largest of many differences is large. So the lower end of a
    difference is below it by what 95 % of draws differ from the sample at most in any two groups, which bounds all
    of them at once (Tukey's range, by the bootstrap). The true difference is that of some two groups: the upper end is
    the highest of the upper ends of two.
    """
    if measure.is_ratio:
        once, drawn = ({name: np.log(each) for name, each in rates.items()} for rates in (once, drawn))
    value = float(measure.of(once))
    if np.isnan(value):
        return None
    if measure.kind == "largest":
        return (value, *_reversed_ends(value, *_ends(measure.of(drawn))))
    low = high = value
    if np.isfinite(value):
        # Of a group that no row of a draw was selected of, the logarithm does not say how far it moved.
        shifts = {name: drawn[name] - once[name] for name in measure.rates}
        shifts = {name: np.where(np.isinf(each), np.nan, each) for name, each in shifts.items()}
        low = max(value - _quantile(measure.of(shifts), LEVEL), 0.0)
        high = max(value, *(_upper_end(once[name], each) for name, each in shifts.items()))
    return (math.exp(-value), math.exp(-high), math.exp(-low)) if measure.is_ratio else (value, low, high)


def _upper_end(once: Array, shifts: Array) -> float:
    """The highest upper end of the difference between any two groups, from rates and by how much draws move them.

    Args:
        once: Shape (groups, classes).
        shifts: Shape (samples, groups, classes); NaN does not count.
    """
    highest = -math.inf
    for number in range(len(once)):
        moved = np.sort(shifts[:, [number]] - shifts, axis=0)  # NaN comes last.
        known = (~np.isnan(moved)).sum(axis=0, keepdims=True)
        place = np.maximum(np.ceil(known * (1 - LEVEL) / 2).astype(int) - 1, 0)
        ends = once[number] - once - np.take_along_axis(moved, place, axis=0)[0]
        highest = max(highest, float(np.fmax.reduce(ends, axis=None)))
    return highest


def _ends(drawn: Array) -> tuple[float, float]:
    """The ends of the interval that percentiles of draws give; draws without a number do not count."""
    return _quantile(drawn, (1 - LEVEL) / 2), _quantile(drawn, (1 + LEVEL) / 2)


def _reversed_ends(value: float, low: float, high: float) -> tuple[float, float]:
    """The ends of the reversed interval of what chance makes larger, none below 0, and the upper one not below it."""
    return max(2 * value - high, 0.0), max(2 * value - low, value)


def _quantile(drawn: Array, share: float) -> float:
    """One of the draws, so that none between infinite logarithms is asked for."""
    return float(np.quantile(drawn[~np.isnan(drawn)], share, method="inverted_cdf"))
