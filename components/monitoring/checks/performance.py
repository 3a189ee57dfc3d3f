"""Performance on labels that have become known, against the value that the champion had at its gate: concept drift."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.bootstrap import Measured, Units, interval, on_draws
from gatehouse.components.evaluation.parts import Part
from gatehouse.components.metrics.catalogue.found import metric_named
from gatehouse.components.metrics.catalogue.metric import Metric, Predictions, all_on_draws
from gatehouse.components.monitoring.finding import ALARM, CHANCE, PERFORMANCE, QUIET, UNKNOWN, Finding
from gatehouse.components.monitoring.rows import TIME
from gatehouse.components.monitoring.spec import PerformanceSpec
from gatehouse.components.tasks.found import TASKS
from gatehouse.components.tasks.judging import objective_of

SEED = 7
_ONE_SIDED, _TWO_SIDED = 1.644854, 1.959964
_DIGITS = 9


@dataclass(frozen=True)
class Gate:
    """What the champion's evaluation says of a metric.

    Attributes:
        value: Its value on the test rows.
        error: Its standard error, from the 95 % interval.
    """

    value: float
    error: float


@dataclass(frozen=True)
class Now:
    """A metric on the newest rows: its value, the ends of its 95 % interval, and its standard error."""

    value: float
    low: float
    high: float
    error: float


def gate_of(store: ArtifactStore, evaluation: str, metric: str) -> Gate | None:
    """The value of a metric at the gate; None where the evaluation does not hold it, or there is none."""
    if not evaluation:
        return None
    value = store.read_json(evaluation, "metrics.json")["candidate"].get(metric)
    if value is None or not math.isfinite(value):
        return None
    held = store.manifest(evaluation).entry("uncertainty.json")
    intervals = store.read_json(evaluation, "uncertainty.json")["intervals"].get("candidate", {}) if held else {}
    low, high = intervals.get(metric, (value, value))
    return Gate(float(value), (high - low) / (2 * _TWO_SIDED))


def measured(metric: Metric, part: Part, predictions: Predictions, spec: PerformanceSpec) -> Now:
    """A metric on rows whose label is known; its interval is that of the evaluation."""
    units = Units.of(part, spec.resample_by, TIME)
    drawn = on_draws([Measured(all_on_draws([metric], part.labels, predictions))], units, spec.samples, SEED)
    low, high = interval(metric, drawn, units.number, part.labels, predictions)
    return Now(metric.measure(part.labels, predictions), low, high, float(np.nanstd(drawn[:, 0])))


def performance(spec: PerformanceSpec, task: str, gate: Gate | None, part: Part, predictions: Predictions) -> Finding:
    """What is found of one metric.

    Args:
        spec: How it is judged.
        task: Name of the task.
        gate: The value at the gate.
        part: The newest rows whose label is known.
        predictions: What the champion said of them.
    """
    metric = metric_named(spec.metric or objective_of(task))
    if lacking := TASKS[task].lacks(part.labels):
        return Finding(PERFORMANCE, metric.title, UNKNOWN, f"the newest labels are {lacking}")
    if gate is None:
        return Finding(PERFORMANCE, metric.title, UNKNOWN, "the champion's evaluation does not hold it")
    now = measured(metric, part, predictions, spec)
    if not math.isfinite(now.value):
        why = f"it is not defined on the {len(part.labels):,} rows whose label is known"
        return Finding(PERFORMANCE, metric.title, UNKNOWN, why, expected=gate.value)
    worse, error = metric.worse_by(now.value, gate.value), math.hypot(now.error, gate.error)
    allowed = spec.max_decay * abs(gate.value)
    limit = gate.value - allowed if metric.better == "higher" else gate.value + allowed
    said = f"{gate.value:.4f} at the gate, now {now.value:.4f} ({now.low:.4f} to {now.high:.4f})"
    on = f"on {len(part.labels):,} rows whose label is known"
    if worse <= allowed:
        state, why = QUIET, f"the model holds: {said} {on}; the alarm is {limit:.4f}"
    elif worse - _ONE_SIDED * error <= allowed:
        state, why = CHANCE, f"{said} {on} is beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"the model decays: {said} {on}; expected {limit:.4f} or better"
    return Finding(
        PERFORMANCE,
        metric.title,
        state,
        why,
        measure=metric.name,
        value=round(now.value, _DIGITS),
        alarm=round(limit, _DIGITS),
        expected=round(gate.value, _DIGITS),
        low=round(now.low, _DIGITS),
        high=round(now.high, _DIGITS),
    )


def part_of(table: pa.Table, label: str, group: str) -> Part:
    """Rows whose label is known, as metrics and the bootstrap read them."""
    groups = None
    if group and group in table.column_names:
        encoded = table[group].combine_chunks().dictionary_encode(null_encoding="encode").indices
        groups = np.asarray(pc.cast(encoded, pa.int64()).to_numpy(zero_copy_only=False))
    labels = pc.cast(table[label], pa.float64()).to_numpy()
    return Part(np.arange(table.num_rows), table, labels, groups)
