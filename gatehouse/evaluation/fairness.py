"""Measures fairness: the rates of each group of a protected column, and how far apart they are, with intervals."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gatehouse.evaluation.bootstrap import LEVEL, Units
from gatehouse.evaluation.draws import CALIBRATION, GroupRates, Sample, measured_draws
from gatehouse.evaluation.gate import LEAST_UNITS
from gatehouse.evaluation.group_measures import Fairness, Group, GroupMeasure, Interval, Rates, group_measures_of
from gatehouse.evaluation.slices import OTHER, group, named_values
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.metric import Array
from gatehouse.metrics.tasks import Task
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation import Columns


def fairness_of(
    table: Columns, sample: Sample, spec: EvaluationSpec, task: Task, store: ArtifactStore | None = None
) -> list[Fairness]:
    """The fairness by each protected column, measured on the draws of all other numbers.

    A group with fewer than `min_slice_rows` rows, fewer than 20 units of the bootstrap, or equal labels cannot be
    judged: measures are those of the other groups. A rate whose denominator has fewer than 20 units is unknown. Raises
    ConfigurationError if there is no such column. Many rows are measured in pieces, except without a store.
    """
    result, labels, units, predictions = [], sample.labels, sample.units, sample.predictions
    for column, values in named_values(table, spec.protected, "protected").items():
        if not group_measures_of(task.name):
            result.append(Fairness(column, (), {}))
            continue
        names, members = group(values)
        rows = [np.flatnonzero(members == number) for number in range(len(names))]
        lacking = []
        for numbers in rows:
            drawn_units = units.among(numbers)
            if len(numbers) < spec.min_slice_rows:
                lacking.append(f"{len(numbers):,} rows, fewer than {spec.min_slice_rows:,}")
            elif drawn_units < LEAST_UNITS:
                lacking.append(f"rows of {drawn_units} {units.name}s, fewer than {LEAST_UNITS}")
            else:
                lacking.append(task.lacks(labels[numbers]))
        judged = np.array([not reason for reason in lacking])
        classes, denominators = 0, {}
        if task.has_classes:
            predicted = [read.form("classes") for read in predictions.values()]
            classes = max(2, 1 + max(int(np.max(numbers)) for numbers in (labels, *predicted)))
            denominators = _denominators(labels, members, len(rows), classes, units)
            if task.output == "probability":  # The positive class alone.
                denominators = {name: counts[:, 1:] for name, counts in denominators.items()}
        unknown = [_unknown(denominators, number, units.name) if judged[number] else {} for number in range(len(rows))]
        rates: dict[str, list[dict[str, Interval]]] = {}
        measures = {}
        divided = replace(sample, divisions=(members,))
        measured = [GroupRates(role=role, task=task.name, classes=classes) for role in predictions]
        numbers_of = measured_draws(divided, measured, spec.bootstrap_samples, spec.seed, store)
        for role, rates_of, drawn_numbers in zip(predictions, measured, numbers_of, strict=True):
            once = rates_of.of_draw(divided)(np.ones(len(labels)))
            shape = (spec.bootstrap_samples, *next(iter(once.values())).shape)
            by_name = np.split(drawn_numbers, len(once), axis=1)
            drawn = {name: values.reshape(shape) for name, values in zip(once, by_name, strict=True)}
            _mend(once, drawn, denominators, spec.seed)
            rates[role] = [{} for _ in names]
            for name, values in once.items() if task.output != "probabilities" else ():
                for number, value in enumerate(values[:, 0].tolist()):
                    if not math.isnan(value):
                        draws = drawn[name][:, number, 0]
                        low, high = _ends(draws) if name != CALIBRATION else _reversed_ends(value, draws)
                        rates[role][number][name] = (value, min(low, value), max(high, value))
            intervals = {
                name: _interval(measure, once, drawn, judged)
                for name, measure in (group_measures_of(task.name).items() if judged.sum() > 1 else ())
            }
            measures[role] = {name: ends for name, ends in intervals.items() if ends is not None}
        groups = tuple(
            Group(
                name if name != OTHER else f"{column}={OTHER}",
                len(rows[number]),
                lacking[number] or "; ".join(unknown[number].values()),
                {role: by_group[number] for role, by_group in rates.items()},
                tuple(unknown[number]),
            )
            for number, name in enumerate(names)
        )
        result.append(Fairness(column, groups, measures))
    return result


def _denominators(labels: Array, members: Array, groups: int, classes: int, units: Units) -> dict[str, Array]:
    """Units in the denominator of each rate, one class against the rest, shape (groups, classes)."""
    unit = np.arange(len(labels)) if units.of_row is None else units.of_row
    distinct = np.unique((members * units.number + unit) * classes + labels.astype(np.int64))
    of_unit, label = np.divmod(distinct, classes)
    _, place, labels_of_unit = np.unique(of_unit, return_inverse=True, return_counts=True)
    cell = of_unit // units.number * classes + label
    positive, alone = (
        np.bincount(cell, weights=weights, minlength=groups * classes).reshape(groups, classes)
        for weights in (None, labels_of_unit[place] == 1)
    )
    total = np.bincount(np.unique(of_unit) // units.number, minlength=groups)[:, None]
    return {
        "selection_rate": np.broadcast_to(total, positive.shape),
        "true_positive_rate": positive,
        "false_positive_rate": total - alone,
    }


def _unknown(denominators: Mapping[str, Array], number: int, unit: str) -> dict[str, str]:
    """The rates of a group whose denominators have too few units, by name, in words; for classes in the test rows."""
    reasons = {}
    for name, counts_of_groups in denominators.items():
        counts = counts_of_groups[number]
        few = np.flatnonzero((counts < LEAST_UNITS) & denominators["true_positive_rate"].any(axis=0))
        listed = [f"{counts[of]:.0f}" if len(counts) == 1 else f"class {of}: {counts[of]:.0f}" for of in few]
        if listed:
            more = f", and {len(listed) - 3} more" if len(listed) > 3 else ""
            title = name.replace("_", " ")
            reasons[name] = f"the {title}, of fewer than {LEAST_UNITS} {unit}s ({', '.join(listed[:3])}{more})"
    return reasons


def _mend(once: Rates, drawn: Rates, denominators: Mapping[str, Array], seed: int) -> None:
    """Remove rates of too few units, and give rates of 0 and 1 draws that vary, in place.

    Draws of rows never move a rate of 0 or 1. Its draws come from the posterior of Jeffreys' prior instead.
    """
    generator = np.random.default_rng(seed)
    for name, counts in denominators.items():
        values, draws = once[name], drawn[name]
        few = counts < LEAST_UNITS
        values[few], draws[:, few] = np.nan, np.nan
        for row, place in np.argwhere((values == 0) | (values == 1)):
            away = generator.beta(0.5, counts[row, place] + 0.5, len(draws))
            draws[:, row, place] = np.abs(values[row, place] - away)


@np.errstate(divide="ignore", invalid="ignore")  # Logarithms of 0, and their differences.
def _interval(measure: GroupMeasure, once: Rates, drawn: Rates, judged: Array) -> Interval | None:
    """A measure of the judged groups with its 95 % interval; None if it has no value.

    Groups of a sample differ by chance too. So the lower end of a difference is below it by the largest difference that
    95 % of draws make between any two groups. The upper end is the percentile of the draws, which chance enlarges.
    Classes are processed one by one, because the draws of all need much memory.
    """
    value = shown = np.array(np.nan)
    moved = apart = np.full(len(next(iter(drawn.values()))), np.nan)
    for place in range(next(iter(once.values())).shape[1]):
        rates, draws = (
            {name: np.compress(judged, of[name][..., place : place + 1], axis=-2) for name in measure.rates}
            for of in (once, drawn)
        )
        middle = rates
        if measure.is_ratio:
            # A rate of 0 moves from the median of its draws, and is not shown to differ upwards from the others.
            middle = {name: np.where(of == 0, np.median(draws[name], axis=0), of) for name, of in rates.items()}
            middle = {name: np.log(np.minimum(of, np.fmax.reduce(rates[name], axis=0))) for name, of in middle.items()}
            rates, draws = ({name: np.log(values) for name, values in of.items()} for of in (rates, draws))
        shifts = {name: draws[name] - middle[name] for name in rates}
        shifts = {name: np.where(np.isfinite(shift), shift, np.nan) for name, shift in shifts.items()}
        value, shown = np.fmax(value, measure.of(rates)), np.fmax(shown, measure.of(middle))
        moved, apart = np.fmax(moved, measure.of(shifts)), np.fmax(apart, measure.of(draws))
    if np.isnan(value):
        return None
    if measure.kind == "largest":
        return float(value), *_reversed_ends(float(value), apart)
    low = max(float(shown) - _quantile(moved, LEVEL), 0.0)
    high = max(float(value), _quantile(apart, (1 + LEVEL) / 2))
    return (math.exp(-value), math.exp(-high), math.exp(-low)) if measure.is_ratio else (float(value), low, high)


def _ends(drawn: Array) -> tuple[float, float]:
    """The percentile interval; draws without a number are left out."""
    return _quantile(drawn, (1 - LEVEL) / 2), _quantile(drawn, (1 + LEVEL) / 2)


def _quantile(drawn: Array, share: float) -> float:
    """A quantile that is one of the draws, so infinite logarithms are not interpolated."""
    return float(np.quantile(drawn[~np.isnan(drawn)], share, method="inverted_cdf"))


def _reversed_ends(value: float, drawn: Array) -> tuple[float, float]:
    """The reversed (basic) interval of an error that is never below 0 and that chance makes larger.

    It removes the bias that draws show (Davison and Hinkley 1997, section 5.2). It always holds the value itself.
    """
    low, high = _ends(drawn)
    return min(max(2 * value - high, 0.0), value), max(2 * value - low, value)
