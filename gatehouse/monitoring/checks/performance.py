"""Performance on labels that have become known, compared with the champion's value at the gate: concept drift."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import Measured, Units, interval, on_draws
from gatehouse.metrics.arithmetic.intervals import NORMAL
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import objective_of
from gatehouse.metrics.metric import Metric, Predictions, all_on_draws
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring.finding import ALARM, CHANCE, PERFORMANCE, QUIET, UNKNOWN, Finding
from gatehouse.monitoring.rows import TIME
from gatehouse.monitoring.spec import PerformanceSpec
from gatehouse.store.store import ArtifactStore

SEED = 7
_LEVEL = 0.95
_DIGITS = 9


@dataclass(frozen=True)
class Gate:
    """A metric in the champion's evaluation.

    Attributes:
        value: Its value on the test rows.
        error: Its standard error, from the 95 % interval.
        unit: The unit that this interval was sampled by, such as `row` or `day`; empty if unknown.
    """

    value: float
    error: float
    unit: str = ""


@dataclass(frozen=True)
class Now:
    """A metric on the newest rows: its value, the bounds of its 95 % interval, and its standard error.

    `effect` is the variance when units are sampled, divided by the variance when single rows (or ranking groups) are;
    at least 1.
    """

    value: float
    low: float
    high: float
    error: float
    effect: float = 1.0

    def error_of(self, gate: Gate, units: Units) -> float:
        """Standard error of the difference to the gate, whose interval may have been sampled by independent rows.

        Rows of one unit also depended on each other at the gate, so the gate's error is multiplied by the present
        effect.
        """
        by_rows = gate.unit in ("row", "group") and gate.unit != units.name
        return math.hypot(self.error, gate.error * math.sqrt(self.effect if by_rows else 1.0))


def gate_of(store: ArtifactStore, evaluation: str, metric: str) -> Gate | None:
    """The value of a metric at the gate; None if there is no evaluation, or it does not hold the metric."""
    if not evaluation:
        return None
    value = store.read_json(evaluation, "metrics.json")["candidate"].get(metric)
    if value is None or not math.isfinite(value):
        return None
    held = store.manifest(evaluation).entry("uncertainty.json")
    told: dict[str, Any] = store.read_json(evaluation, "uncertainty.json") if held else {"intervals": {}, "unit": ""}
    low, high = told["intervals"].get("candidate", {}).get(metric, (value, value))
    return Gate(float(value), (high - low) / (2 * NORMAL), told["unit"])


def units_of(part: Part, spec: PerformanceSpec) -> Units:
    """The units by which the interval is sampled."""
    return Units.of(part, spec.resample_by, TIME, "monitoring.performance.resample_by")


def too_few(units: Units) -> str:
    """Why there are too few units to judge: with one unit, differences between units are unknown; empty if enough."""
    return "" if units.number > 1 else f"expected two units ({units.name}) with known labels at least, found one"


def measured(metric: Metric, part: Part, predictions: Predictions, spec: PerformanceSpec, units: Units) -> Now:
    """A metric on rows with a known label, with the same kind of interval as in the evaluation.

    The bootstrap variance of n units is (n - 1) / n of the sampling variance; the standard error is corrected for this.
    """
    of_rows, wanted = Units.of(part, "", TIME), [Measured(all_on_draws([metric], part.labels, predictions))]
    drawn, alone = (on_draws(wanted, each, spec.samples, SEED) for each in (units, of_rows))
    low, high = interval(metric, drawn, units.number, part.labels, predictions)
    error, by_rows = (
        float(np.nanstd(found[:, 0])) * math.sqrt(each.number / max(each.number - 1, 1))
        for found, each in ((drawn, units), (alone, of_rows))
    )
    effect = max((error / by_rows) ** 2, 1.0) if by_rows else 1.0
    return Now(metric.measure(part.labels, predictions), low, high, error, effect)


def performance(spec: PerformanceSpec, task: str, gate: Gate | None, part: Part, predictions: Predictions) -> Finding:
    """The finding for one metric.

    Args:
        spec: Settings of the check.
        task: Name of the task.
        gate: The value at the gate.
        part: The newest rows with a known label.
        predictions: The champion's predictions for them.
    """
    metric = metric_named(spec.metric or objective_of(task))
    if lacking := TASKS[task].lacks(part.labels):
        return Finding(PERFORMANCE, metric.name, UNKNOWN, f"the newest labels are {lacking}")
    if gate is None:
        return Finding(PERFORMANCE, metric.name, UNKNOWN, "the champion's evaluation does not hold it")
    units = units_of(part, spec)
    if lacking := too_few(units):
        return Finding(PERFORMANCE, metric.name, UNKNOWN, lacking, expected=gate.value)
    now = measured(metric, part, predictions, spec, units)
    if not math.isfinite(now.value):
        why = f"it is not defined on the {len(part.labels):,} rows whose label is known"
        return Finding(PERFORMANCE, metric.name, UNKNOWN, why, expected=gate.value)
    worse = metric.worse_by(now.value, gate.value)
    chance = float(stdtrit(units.number - 1, _LEVEL)) * now.error_of(gate, units)
    allowed = spec.max_decay * abs(gate.value)
    limit = gate.value - allowed if metric.better == "higher" else gate.value + allowed
    said = f"{gate.value:.4f} at the gate, now {now.value:.4f} ({now.low:.4f} to {now.high:.4f})"
    on = f"on {len(part.labels):,} rows whose label is known"
    holds = worse + chance <= allowed
    if worse <= allowed:
        told = "the model holds" if holds else "no decay is seen, which chance alone may hide"
        state, why = QUIET, f"{told}: {said} {on}; the alarm is {limit:.4f}"
    elif worse - chance <= allowed:
        state, why = CHANCE, f"{said} {on} is beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"the model decays: {said} {on}; expected {limit:.4f} or better"
    return Finding(
        PERFORMANCE,
        metric.name,
        state,
        why,
        measure=metric.name,
        value=round(now.value, _DIGITS),
        alarm=round(limit, _DIGITS),
        expected=round(gate.value, _DIGITS),
        low=round(now.low, _DIGITS),
        high=round(now.high, _DIGITS),
        holds=holds,
    )


def part_of(table: pa.Table, label: str, group: str) -> Part:
    """Rows with a known label, in the form for metrics and the bootstrap."""
    groups = None
    if group and group in table.column_names:
        encoded = table[group].combine_chunks().dictionary_encode(null_encoding="encode").indices
        groups = np.asarray(pc.cast(encoded, pa.int64()).to_numpy(zero_copy_only=False))
    labels = pc.cast(table[label], pa.float64()).to_numpy()
    return Part(np.arange(table.num_rows), table, labels, groups)
