"""Calibration on labels that have become known: the expected calibration error, compared with the value at the gate."""

from gatehouse.data.splitting.parts import Part
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Predictions
from gatehouse.monitoring.checks.performance import Gate, measured, too_few, units_of
from gatehouse.monitoring.finding import ALARM, CALIBRATION, CHANCE, IGNORED, QUIET, UNKNOWN, Finding
from gatehouse.monitoring.spec import CalibrationSpec, PerformanceSpec

METRIC = "calibration_error"
_DIGITS = 9


def calibration(
    spec: CalibrationSpec,
    sampling: PerformanceSpec,
    task: str,
    gate: Gate | None,
    part: Part,
    predictions: Predictions,
) -> Finding:
    """Check the calibration error.

    Args:
        spec: Settings of the check.
        sampling: How the interval is sampled.
        task: Name of the task.
        gate: The value at the gate.
        part: The newest rows with a known label.
        predictions: The champion's predictions for them.
    """
    metric = metric_named(METRIC)
    if task not in metric.tasks:
        return Finding(CALIBRATION, metric.name, IGNORED, f"only {', '.join(metric.tasks)} tasks have one")
    if gate is None:
        return Finding(CALIBRATION, metric.name, UNKNOWN, "the champion's evaluation does not hold it")
    units = units_of(part, sampling)
    if lacking := too_few(units):
        return Finding(CALIBRATION, metric.name, UNKNOWN, lacking, expected=gate.value)
    now, limit = measured(metric, part, predictions, sampling, units), gate.value + spec.max_rise
    said = f"{gate.value:.4f} at the gate, now {now.value:.4f} (true error {now.low:.4f} to {now.high:.4f})"
    if now.value <= limit:
        state, why = QUIET, f"{said}; the alarm is {limit:.4f}"
    elif now.low <= limit:
        state, why = CHANCE, f"{said}: beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"probabilities come true less often than they say: {said}; expected {limit:.4f} at most"
    return Finding(
        CALIBRATION,
        metric.name,
        state,
        why,
        measure=METRIC,
        value=round(now.value, _DIGITS),
        alarm=round(limit, _DIGITS),
        expected=round(gate.value, _DIGITS),
        low=round(now.low, _DIGITS),
        high=round(now.high, _DIGITS),
    )
