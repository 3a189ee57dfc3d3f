"""Measures fairness: the rates of each group of a protected column, and how far apart they are, with intervals."""

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from gatehouse.evaluation.bootstrap import LEVEL, Units
from gatehouse.evaluation.gate import LEAST_UNITS
from gatehouse.evaluation.group_measures import Fairness, Group, GroupMeasure, Interval, Rates, group_measures_of
from gatehouse.evaluation.slice_columns import named_values
from gatehouse.evaluation.slices import OTHER, group
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.arithmetic.intervals import NORMAL, wilson
from gatehouse.metrics.calibration_error_debiased import calibration_error_debiased
from gatehouse.metrics.catalogue.metric import Array, Predictions
from gatehouse.metrics.tasks.task import Task

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
    differ, cannot be judged: measures are those of the other groups. A rate that divides by fewer than 20 units of a
    group is not known.

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
        classes = _number_of_classes(labels, predictions) if task.has_classes else 0
        wholes = _wholes(labels, members, len(rows), classes, units) if classes else {}
        wholes = {name: each[:, 1:] if task.output == "probability" else each for name, each in wholes.items()}
        unknown = [_unknown(wholes, number, units.name) if judged[number] else {} for number in range(len(rows))]
        rates, measures = {}, {}
        for role, read in predictions.items():
            measured = _rates(task, labels, read, members, rows, classes)
            once = measured(np.ones(len(labels)))
            drawn = _on_draws(measured, once, units, spec)
            _mend(once, drawn, wholes, spec.seed)
            rates[role] = _by_group(once, drawn) if task.output != "probabilities" else [{} for _ in names]
            measures[role] = _measures(task.name, once, drawn, judged) if judged.sum() > 1 else {}
        groups = tuple(
            Group(
                names[number] if names[number] != OTHER else f"{column}={OTHER}",
                len(rows[number]),
                lacking[number] or "; ".join(unknown[number].values()),
                {role: each[number] for role, each in rates.items()},
                tuple(unknown[number]),
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


def _number_of_classes(labels: Array, predictions: Mapping[str, Predictions]) -> int:
    said = (read.form("classes") for read in predictions.values())
    return max(2, 1 + max(int(np.max(each)) for each in (labels, *said)))


def _wholes(labels: Array, members: Array, groups: int, classes: int, units: Units) -> dict[str, Array]:
    """How many units each rate of a class against the rest divides by, by its name, shape (groups, classes)."""
    unit = np.arange(len(labels)) if units.of_row is None else units.of_row
    found = np.unique((members * units.number + unit) * classes + labels.astype(np.int64))
    of_unit, seen = np.divmod(found, classes)
    _, place, labels_of = np.unique(of_unit, return_inverse=True, return_counts=True)
    cell = of_unit // units.number * classes + seen
    positive, alone = (
        np.bincount(cell, weights=weights, minlength=groups * classes).reshape(groups, classes)
        for weights in (None, labels_of[place] == 1)
    )
    total = np.bincount(np.unique(of_unit) // units.number, minlength=groups)[:, None]
    return {
        "selection_rate": np.broadcast_to(total, positive.shape),
        "true_positive_rate": positive,
        "false_positive_rate": total - alone,
    }


def _unknown(wholes: Mapping[str, Array], number: int, unit: str) -> dict[str, str]:
    """The rates of a group that divide by too few units, by name, in words; of classes that some test row has."""
    found = {}
    for name, wholes_of in wholes.items():
        each = wholes_of[number]
        few = np.flatnonzero((each < LEAST_UNITS) & wholes["true_positive_rate"].any(axis=0))
        told = [f"{each[of]:.0f}" if len(each) == 1 else f"class {of}: {each[of]:.0f}" for of in few]
        if told:
            more = f", and {len(told) - 3} more" if len(told) > 3 else ""
            title = name.replace("_", " ")
            found[name] = f"the {title}, of fewer than {LEAST_UNITS} {unit}s ({', '.join(told[:3])}{more})"
    return found


def _mend(once: Rates, drawn: Rates, wholes: Rates, seed: int) -> None:
    """Take away rates of too few units, and draw anew what draws of rows cannot move: rates of 0 and of 1; in place.

    The new draws of a rate of 0 are log-normal around half a unit, the usual correction of a count of 0. They are as
    wide as puts their upper end at that of `wilson`. A rate of 1 is 0 of the others.

    Args:
        once: Rates by name, shape (groups, classes).
        drawn: Likewise, shape (samples, groups, classes).
        wholes: How many units rates divide by, shape (groups, classes).
        seed: Of the new draws.
    """
    generator, samples = np.random.default_rng(seed), len(next(iter(drawn.values())))
    normal = np.array([NormalDist().inv_cdf((place + 0.5) / samples) for place in range(samples)])
    for name, number in wholes.items():
        values, draws = once[name], drawn[name]
        few = number < LEAST_UNITS
        values[few], draws[:, few] = np.nan, np.nan
        for row, place in np.argwhere((values == 0) | (values == 1)):
            half, (_, end) = 0.5 / (number[row, place] + 1), wilson(0.0, number[row, place])
            away = half * (end / half) ** (generator.permutation(normal) / NORMAL)
            draws[:, row, place] = np.abs(values[row, place] - np.minimum(away, 1.0))


def _rates(task: Task, labels: Array, read: Predictions, members: Array, rows: list[Array], classes: int) -> OfDraw:
    """A function from how often each row was drawn to rates by name, shape (groups, classes); NaN of no rows."""
    if not task.has_classes:
        said = (read.scores, read.scores - labels)
        return lambda times: dict(zip(_REGRESSION, _means(times, said, members, len(rows)), strict=True))
    rates = _class_rates(labels, read.form("classes"), members, len(rows), classes)
    if task.output == "probabilities":
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


def _class_rates(labels: Array, classes: Array, members: Array, groups: int, number: int) -> OfDraw:
    """Rates of each class against the rest; only pairs of label and prediction that occur are counted."""
    seen, said = labels.astype(np.int64), np.asarray(classes).astype(np.int64)
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


def _on_draws(measured: OfDraw, once: Rates, units: Units, spec: EvaluationSpec) -> Rates:
    """Rates on each draw, shape (samples, groups, classes); `once` has them of the rows themselves."""
    drawn = {name: np.empty((spec.bootstrap_samples, *values.shape)) for name, values in once.items()}
    for number, times in enumerate(units.draws(spec.bootstrap_samples, spec.seed)):
        for name, values in measured(times).items():
            drawn[name][number] = values
    return drawn


def _by_group(once: Rates, drawn: Rates) -> list[dict[str, Interval]]:
    """The rates of each group, of one class, with intervals; those without a value are left out."""
    found: list[dict[str, Interval]] = []
    for number in range(len(next(iter(once.values())))):
        rates = {}
        for name, values in once.items():
            value, draws = float(values[number, 0]), drawn[name][:, number, 0]
            if not np.isnan(value):
                low, high = _ends(draws) if name != _CALIBRATION else _reversed_ends(value, *_ends(draws))
                rates[name] = (value, min(low, value), max(high, value))
        found.append(rates)
    return found


def _measures(task: str, once: Rates, drawn: Rates, judged: Array) -> dict[str, Interval]:
    """Measures over the judged groups; those without a value are left out."""
    found = {name: _interval(measure, once, drawn, judged) for name, measure in group_measures_of(task).items()}
    return {name: each for name, each in found.items() if each is not None}


@np.errstate(divide="ignore", invalid="ignore")  # Logarithms of no rows, and their differences.
def _interval(measure: GroupMeasure, once: Rates, drawn: Rates, judged: Array) -> Interval | None:
    """The measure of the rates of judged groups with its 95 % interval; None where it has no value.

    Groups of a sample differ by chance too, and the largest of many differences is large. So the lower end of a
    difference is below it by what 95 % of draws differ from the sample at most in any two groups, which bounds all
    of them at once (Tukey's range, by the bootstrap). The true difference is that of some two groups: the upper end is
    the highest of the upper ends of two. Classes are taken one by one, as the draws of all are many.
    """
    if measure.kind == "largest":
        worst = float(measure.of(_among(judged, measure, once)))
        draws_of = measure.of(_among(judged, measure, drawn))
        return None if math.isnan(worst) else (worst, *_reversed_ends(worst, *_ends(draws_of)))
    value = least = high = math.nan
    most = np.full(len(next(iter(drawn.values()))), math.nan)
    for place in range(next(iter(once.values())).shape[1]):
        rates, draws = (_among(judged, measure, of, slice(place, place + 1)) for of in (once, drawn))
        if measure.is_ratio:
            rates, shown, shifts = _logarithms(rates, draws)
        else:
            shown, shifts = rates, {name: draws[name] - rates[name] for name in rates}
        value, least = (float(np.fmax(far, measure.of(of))) for far, of in ((value, rates), (least, shown)))
        most = np.fmax(most, measure.of(shifts))
        high = float(np.fmax.reduce([high, *(_upper_end(rates[name], shifts[name]) for name in rates)]))
    if math.isnan(value):
        return None
    low, high = max(least - _quantile(most, LEVEL), 0.0), float(np.fmax(value, high))
    return (math.exp(-value), math.exp(-high), math.exp(-low)) if measure.is_ratio else (value, low, high)


def _among(judged: Array, measure: GroupMeasure, rates: Rates, classes: slice = slice(None)) -> Rates:
    return {name: np.compress(judged, rates[name][..., classes], axis=-2) for name in measure.rates}


def _logarithms(rates: Rates, draws: Rates) -> tuple[Rates, Rates, Rates]:
    """The logarithms of rates of one class, those that are shown to be apart, and how far draws move them.

    A rate of 0 is counted from the middle of its draws. It is not shown to be apart from another upwards, so no more
    than the largest of the others is taken. Nothing is shown, or moves, where no group has a rate above 0.
    """
    found: tuple[dict[str, Array], dict[str, Array], dict[str, Array]] = ({}, {}, {})
    for name, values in rates.items():
        middle = np.where(values == 0, np.median(draws[name], axis=0), values)
        shown = np.log(np.minimum(middle, np.fmax.reduce(values, axis=0)))
        # Of a group that no row of a draw was selected of, the logarithm does not say how far it moved.
        shifts = np.log(draws[name]) - np.log(middle)
        shifts[~(np.isfinite(shifts) & np.isfinite(shown))] = np.nan
        for of, each in zip(found, (np.log(values), shown, shifts), strict=True):
            of[name] = each
    return found


def _upper_end(once: Array, shifts: Array) -> float:
    """The highest upper end of the difference between any two groups, from rates and by how much draws move them.

    Args:
        once: Of one class, shape (groups, 1).
        shifts: Shape (samples, groups, 1); NaN does not count.
    """
    highest = math.nan
    for number in range(len(once)):
        moved = np.sort(shifts[:, [number]] - shifts, axis=0)  # NaN comes last.
        known = (~np.isnan(moved)).sum(axis=0, keepdims=True)
        place = np.maximum(np.ceil(known * (1 - LEVEL) / 2).astype(int) - 1, 0)
        ends = once[number] - once - np.take_along_axis(moved, place, axis=0)[0]
        highest = float(np.fmax(highest, np.fmax.reduce(ends, axis=None)))
    return highest


def _ends(drawn: Array) -> tuple[float, float]:
    """The ends of the interval that percentiles of draws give; draws without a number do not count."""
    return _quantile(drawn, (1 - LEVEL) / 2), _quantile(drawn, (1 + LEVEL) / 2)


def _quantile(drawn: Array, share: float) -> float:
    """One of the draws, so that none between infinite logarithms is asked for."""
    return float(np.quantile(drawn[~np.isnan(drawn)], share, method="inverted_cdf"))


def _reversed_ends(value: float, low: float, high: float) -> tuple[float, float]:
    """The ends of the reversed (basic) interval of a number that chance makes larger, and that is never below 0.

    It takes off the bias that draws show (Davison and Hinkley 1997, section 5.2). The value itself is always within it.

    Args:
        value: The number, of the test rows.
        low: The lower percentile of its draws.
        high: The upper one.
    """
    return min(max(2 * value - high, 0.0), value), max(2 * value - low, value)
