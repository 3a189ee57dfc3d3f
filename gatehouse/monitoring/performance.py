"""Performance and calibration on labels that have become known, compared with the champion's values at its gate."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import DrawnMetrics, Units, interval, on_draws
from gatehouse.metrics.arithmetic import NORMAL
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import objective_of
from gatehouse.metrics.metric import Metric, Predictions, all_on_draws
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring.decision import ALARM, CALIBRATION, CHANCE, IGNORED, PERFORMANCE, QUIET, UNKNOWN, Finding
from gatehouse.monitoring.rows import TIME, Gate
from gatehouse.monitoring.spec import CalibrationSpec, PerformanceSpec
from gatehouse.store.store import ArtifactStore

CALIBRATION_ERROR = "calibration_error"
_SEED = 7
_LEVEL = 0.95
_DIGITS = 9


@dataclass(frozen=True)
class Measured:
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
        """Standard error of the difference to the gate.

        Rows of one unit also depended on each other at the gate, so an error that was sampled by rows there is
        multiplied by the present effect.
        """
        by_rows = gate.unit in ("row", "group") and gate.unit != units.name
        return math.hypot(self.error, gate.error * math.sqrt(self.effect if by_rows else 1.0))


def gate_of(store: ArtifactStore, evaluation: str, metric: str) -> Gate | None:
    """The value of a metric at the gate; None without an evaluation, or if it lacks the metric."""
    if not evaluation:
        return None
    value = store.read_json(evaluation, "metrics.json")["candidate"].get(metric)
    if value is None or not math.isfinite(value):
        return None
    uncertainty: dict[str, Any] = {"intervals": {}, "unit": ""}
    if store.manifest(evaluation).entry("uncertainty.json"):
        uncertainty = store.read_json(evaluation, "uncertainty.json")
    low, high = uncertainty["intervals"].get("candidate", {}).get(metric, (value, value))
    return Gate(float(value), (high - low) / (2 * NORMAL), uncertainty["unit"])


def units_of(part: Part, spec: PerformanceSpec) -> Units:
    """The units by which the interval is sampled."""
    return Units.of(part, spec.resample_by, TIME, "monitoring.performance.resample_by")


def measured(metric: Metric, part: Part, predictions: Predictions, spec: PerformanceSpec, units: Units) -> Measured:
    """A metric on rows with a known label, with the same kind of interval as in the evaluation.

    The bootstrap variance of n units is (n - 1) / n of the sampling variance; the standard error is corrected for this.
    """
    rows, draws = Units.of(part, "", TIME), [DrawnMetrics(all_on_draws([metric], part.labels, predictions))]
    by_units, by_rows = (on_draws(draws, sampled, spec.samples, _SEED) for sampled in (units, rows))
    low, high = interval(metric, by_units, units.number, part.labels, predictions)
    error, row_error = (
        float(np.nanstd(drawn[:, 0])) * math.sqrt(sampled.number / max(sampled.number - 1, 1))
        for drawn, sampled in ((by_units, units), (by_rows, rows))
    )
    effect = max((error / row_error) ** 2, 1.0) if row_error else 1.0
    return Measured(metric.measure(part.labels, predictions), low, high, error, effect)


def performance(spec: PerformanceSpec, task: str, gate: Gate | None, part: Part, predictions: Predictions) -> Finding:
    """The finding for the metric of the gate, or another metric, on the newest rows with a known label."""
    metric, units = metric_named(spec.metric or objective_of(task)), units_of(part, spec)
    lacking = TASKS[task].lacks(part.labels)
    if lacking := f"the newest labels are {lacking}" if lacking else _unjudged(gate, units):
        return Finding(PERFORMANCE, metric.name, UNKNOWN, lacking, expected=gate.value if gate else None)
    assert gate is not None  # `_unjudged` says so
    now = measured(metric, part, predictions, spec, units)
    if not math.isfinite(now.value):
        why = f"it is not defined on the {len(part.labels):,} rows whose label is known"
        return Finding(PERFORMANCE, metric.name, UNKNOWN, why, expected=gate.value)
    worse, allowed = metric.worse_by(now.value, gate.value), spec.max_decay * abs(gate.value)
    chance = float(stdtrit(units.number - 1, _LEVEL)) * now.error_of(gate, units)
    limit = gate.value - allowed if metric.better == "higher" else gate.value + allowed
    values = f"{gate.value:.4f} {gate.place}, now {now.value:.4f} ({now.low:.4f} to {now.high:.4f})"
    values += f" on {len(part.labels):,} rows whose label is known"
    holds = worse + chance <= allowed
    if worse <= allowed:
        verdict = "the model holds" if holds else "no decay is seen, which chance alone may hide"
        state, why = QUIET, f"{verdict}: {values}; the alarm is {limit:.4f}"
    elif worse - chance <= allowed:
        state, why = CHANCE, f"{values} is beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"the model decays: {values}; expected {limit:.4f} or better"
    return _finding(PERFORMANCE, metric, state, why, now, limit, gate, holds)


def calibration(
    spec: CalibrationSpec,
    sampling: PerformanceSpec,
    task: str,
    gate: Gate | None,
    part: Part,
    predictions: Predictions,
) -> Finding:
    """The finding for the expected calibration error; `sampling` has the settings of the interval."""
    metric, units = metric_named(CALIBRATION_ERROR), units_of(part, sampling)
    if task not in metric.tasks:
        return Finding(CALIBRATION, metric.name, IGNORED, f"only {', '.join(metric.tasks)} tasks have one")
    if lacking := _unjudged(gate, units):
        return Finding(CALIBRATION, metric.name, UNKNOWN, lacking, expected=gate.value if gate else None)
    assert gate is not None  # `_unjudged` says so
    now, limit = measured(metric, part, predictions, sampling, units), gate.value + spec.max_rise
    values = f"{gate.value:.4f} {gate.place}, now {now.value:.4f} (true error {now.low:.4f} to {now.high:.4f})"
    if now.value <= limit:
        state, why = QUIET, f"{values}; the alarm is {limit:.4f}"
    elif now.low <= limit:
        state, why = CHANCE, f"{values}: beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"probabilities come true less often than they say: {values}; expected {limit:.4f} at most"
    return _finding(CALIBRATION, metric, state, why, now, limit, gate)


def _unjudged(gate: Gate | None, units: Units) -> str:
    """Why a metric cannot be judged: no value at the gate, or one unit, which shows no difference between units."""
    if gate is None:
        return "the champion's evaluation does not hold it"
    return "" if units.number > 1 else f"expected two units ({units.name}) with known labels at least, found one"


def _finding(
    check: str, metric: Metric, state: str, why: str, now: Measured, limit: float, gate: Gate, holds: bool = False
) -> Finding:
    return Finding(
        check,
        metric.name,
        state,
        why,
        measure=CALIBRATION_ERROR if check == CALIBRATION else metric.name,
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
