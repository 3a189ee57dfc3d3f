"""Performance and calibration on labels that became known, against the gate."""

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.parts import Part, UnusablePartError
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Predictions
from gatehouse.monitoring.checks import Gate, Measured, calibration, measured, part_of, performance, sampling_units
from gatehouse.monitoring.spec import CalibrationSpec, PerformanceSpec

SPEC = PerformanceSpec(metric="roc_auc", samples=50)


def _rows(days: int, rows: int, wrong_from: int, blur: float = 0.0, seed: int = 1) -> tuple[Part, Predictions]:
    """Calibrated probabilities; from a day on they are those of the other class."""
    random, day = np.random.default_rng(seed), np.repeat(np.arange(days), rows)
    chances = random.uniform(size=days * rows)
    labels = (random.uniform(size=days * rows) < chances).astype(np.float64)
    times = np.datetime64("2013-01-01", "us") + day * np.timedelta64(1, "D")
    scores = np.where(day >= wrong_from, 1 - chances, chances) * (1 - blur) + blur
    table = pa.table({"decision_time": pa.array(times, pa.timestamp("us", "UTC")), "label": labels})
    return part_of(table, "label", ""), Predictions(scores, scores, scores >= 0.5)


@pytest.mark.parametrize(
    ("wrong_from", "gate", "state", "message"),
    [
        (99, Gate(0.83, 0.01), "quiet", "the model holds: 0.8300 at the gate, now 0.8"),
        (20, Gate(0.83, 0.01), "alarm", "the model decays: 0.8300 at the gate, now 0.6"),
        (99, Gate(0.90, 0.05), "chance", "which chance alone may do"),
        (99, None, "not judged", "does not hold it"),
    ],
)
def test_performance_is_held_against_the_gate_with_its_uncertainty(
    wrong_from: int, gate: Gate | None, state: str, message: str
) -> None:
    finding = performance(SPEC, "binary", gate, *_rows(30, 40, wrong_from))
    assert finding.state == state and message in finding.why
    if gate:
        assert finding.low is not None and finding.value is not None and finding.high is not None
        assert finding.low < finding.value < finding.high and finding.expected == gate.value


def test_one_unit_is_not_judged_and_few_units_are_judged_with_their_uncertainty() -> None:
    gate = Gate(0.95, 0.001)
    for finding in (
        performance(SPEC, "binary", gate, *_rows(1, 400, 99)),
        calibration(CalibrationSpec(), SPEC, "binary", Gate(0.0, 0.001), *_rows(1, 400, 0)),
    ):
        assert finding.state == "not judged" and "expected two units (day) with known labels at least" in finding.why
    strict = PerformanceSpec(metric="roc_auc", max_decay=0.0, samples=50)
    alarms = [
        performance(strict, "binary", Gate(5 / 6, 0.0), *_rows(2, 200, 99, seed=seed)).state == "alarm"
        for seed in range(40)
    ]
    assert sum(alarms) <= 5, "a fair model alarms in 5 % of samples, and does so too with two days"


def test_the_model_holds_only_where_chance_did_not_flatter_it() -> None:
    sure, unsure = (performance(SPEC, "binary", Gate(0.83, 0.01), *_rows(days, 40, 99)) for days in (100, 3))
    assert sure.holds and sure.state == "quiet" and sure.why.startswith("the model holds")
    assert not unsure.holds and unsure.state == "quiet" and "chance alone may hide" in unsure.why


def test_an_error_of_the_gate_that_was_drawn_by_rows_grows_by_the_design_effect() -> None:
    units = sampling_units(_rows(4, 5, 99)[0], SPEC)
    now = Measured(0.8, 0.7, 0.9, error=0.0, effect=4.0)
    assert now.error_of(Gate(0.8, 0.01, "row"), units) == pytest.approx(0.02)
    assert now.error_of(Gate(0.8, 0.01, "day"), units) == pytest.approx(0.01)
    part, predictions = _rows(30, 40, 15)
    assert measured(metric_named("roc_auc"), part, predictions, SPEC, sampling_units(part, SPEC)).effect > 4


def test_performance_without_both_classes_is_not_judged() -> None:
    part, predictions = _rows(10, 20, 99)
    alone = Part(part.rows, part.table, np.zeros(len(part.labels)))
    finding = performance(SPEC, "binary", Gate(0.8, 0.01), alone, predictions)
    assert finding.state == "not judged" and "200 rows with label 0 and 0 with label 1" in finding.why


@pytest.mark.parametrize(("blur", "state"), [(0.0, "quiet"), (0.4, "alarm")])
def test_calibration_decays_where_probabilities_no_longer_come_true(blur: float, state: str) -> None:
    finding = calibration(CalibrationSpec(), SPEC, "binary", Gate(0.03, 0.01), *_rows(30, 40, 99, blur))
    assert finding.state == state
    assert calibration(CalibrationSpec(), SPEC, "regression", None, *_rows(3, 4, 99)).state == "ignored"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_without_a_group_are_refused(missing: float | None) -> None:
    table = pa.table({"label": [0.0, 1.0], "query": pa.array([1.0, missing])})
    with pytest.raises(UnusablePartError, match="query"):
        part_of(table, "label", "query")
