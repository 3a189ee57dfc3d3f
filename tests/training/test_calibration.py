"""Calibration: each method, the thresholds, and the calibrated model."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss

from gatehouse.data.splitting.parts import read_part
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of
from gatehouse.training.calibration import (
    Calibration,
    Temperature,
    choose_threshold,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    log_odds,
)
from gatehouse.training.calibration_stage import CalibrateRequest, CalibrateResult, calibrate
from gatehouse.training.model_spec import (
    CalibrationError,
    CalibrationSpec,
    CostThreshold,
    FBetaThreshold,
    PrecisionThreshold,
)
from gatehouse.training.predictor import Predictor
from tests.evaluation.conftest import Bench
from tests.training.synthetic import publish_split, publish_training_set, table

SEEDS = given(st.integers(0, 2**32), st.integers(20, 400), st.integers(2, 60))


def rows(seed: int, count: int, values: int) -> tuple[Any, Any]:
    """Overconfident probabilities, with ties, and labels that rise with them."""
    draw = np.random.default_rng(seed)
    scores = np.round(draw.uniform(0.01, 0.99, count) * values) / (values + 1) + 0.5 / (values + 1)
    labels = (draw.random(count) < 0.3 + 0.4 * scores).astype(np.float64)
    labels[np.argmin(scores)], labels[np.argmax(scores)] = 0.0, 1.0
    return scores, labels


@settings(max_examples=25)
@SEEDS
def test_isotonic_is_that_of_scikit_learn(seed: int, count: int, values: int) -> None:
    scores, labels = rows(seed, count, values)
    reference = IsotonicRegression(out_of_bounds="clip").fit(scores, labels)
    if np.ptp(reference.y_thresholds_) < 1e-12:
        with pytest.raises(CalibrationError, match="no better than chance"):
            fit_isotonic(scores, labels)
        return
    fitted = fit_isotonic(scores, labels)
    # The same breakpoints, whose values are kept away from 0 and 1.
    values = np.clip(reference.y_thresholds_, 1 / (count + 2), 1 - 1 / (count + 2))
    points = np.concatenate([scores, np.linspace(0, 1, 101)])
    assert fitted.apply(points) == pytest.approx(np.interp(points, reference.X_thresholds_, values), abs=1e-12)
    assert fitted.apply(points) == pytest.approx(reference.predict(points), abs=1 / count)


@settings(max_examples=25)
@SEEDS
def test_platt_is_that_of_scikit_learn(seed: int, count: int, values: int) -> None:
    scores, labels = rows(seed, count, values)
    slope, intercept = _sigmoid_calibration(log_odds(scores), labels)
    if slope >= -0.01:
        return
    fitted = fit_platt(scores, labels)
    expected = 1 / (1 + np.exp(slope * log_odds(scores) + intercept))
    assert fitted.apply(scores) == pytest.approx(expected, abs=2e-4)
    high, low = (labels.sum() + 1) / (labels.sum() + 2), 1 / (count - labels.sum() + 2)
    off = fitted.apply(scores) - np.where(labels > 0, high, low)
    assert abs(np.sum(off)) < 1e-7 * count and abs(np.sum(off * log_odds(scores))) < 1e-7 * count


def test_temperature_has_the_least_log_loss_and_keeps_the_order_of_classes() -> None:
    draw = np.random.default_rng(5)
    logits = draw.normal(0, 1, (2000, 4))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([draw.choice(4, p=row) for row in shares], np.float64)
    bold = np.exp(2.5 * logits) / np.exp(2.5 * logits).sum(axis=1, keepdims=True)
    fitted = fit_temperature(bold, labels)
    assert fitted.temperature == pytest.approx(2.5, rel=0.1)
    losses = [log_loss(labels, Temperature(fitted.temperature * by).apply(bold)) for by in (0.999, 1.0, 1.001)]
    assert losses[1] == min(losses)
    corrected = fitted.apply(bold)
    assert corrected.sum(axis=1) == pytest.approx(np.ones(2000), abs=1e-12)
    assert (np.argsort(corrected, axis=1) == np.argsort(bold, axis=1)).all()


def test_temperature_of_rows_that_are_all_right_or_all_chance_is_refused() -> None:
    sure = np.array([[0.9, 0.1], [0.2, 0.8]] * 20)
    for labels in ([0.0, 1.0], [1.0, 0.0]):
        with pytest.raises(CalibrationError, match="right on some validation rows and wrong on others"):
            fit_temperature(sure, np.array(labels * 20))


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_probabilities_that_fall_with_the_label_are_refused(fit: Any) -> None:
    scores = np.linspace(0.1, 0.9, 100)
    with pytest.raises(CalibrationError, match="no better than chance"):
        fit(scores, (scores < 0.5).astype(np.float64))


def test_what_was_fitted_comes_back_from_json_and_treats_each_row_alone() -> None:
    scores, labels = rows(1, 300, 50)
    several = np.column_stack([scores, 1 - scores])
    for calibrator, values in (
        (fit_platt(scores, labels), scores),
        (fit_isotonic(scores, labels), scores),
        (fit_temperature(several, 1 - labels), several),
        (None, scores),
    ):
        kept = Calibration(calibrator, 0.3)
        assert Calibration.from_json(kept.to_json()) == kept
        whole = kept.apply(values)
        assert all((kept.apply(values[row : row + 1]) == whole[row : row + 1]).all() for row in range(len(values)))
        assert np.isfinite(kept.apply(np.round(values))).all()


RULES = [
    FBetaThreshold(rule="f_beta", beta=2.0),
    CostThreshold(rule="cost", false_positive=1.0, false_negative=3.0, true_positive=0.5),
    PrecisionThreshold(rule="precision", at_least=0.5),
]


def worth(labels: Any, taken: Any, rule: Any) -> float:
    """How good it is to take these rows for positive, by the words of the rule."""
    hits, alarms = float((labels[taken] == 1).sum()), float((labels[taken] == 0).sum())
    misses, rest = float((labels[~taken] == 1).sum()), float((labels[~taken] == 0).sum())
    if isinstance(rule, FBetaThreshold):
        precision, recall = hits / (hits + alarms), hits / (hits + misses)
        by = rule.beta**2
        return (1 + by) * precision * recall / (by * precision + recall) if hits else 0.0
    if isinstance(rule, CostThreshold):
        return -(0.5 * hits + alarms + 3.0 * misses + 0.0 * rest)
    return hits if hits / (hits + alarms) >= rule.at_least else -1.0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), min_size=2, max_size=40))
def test_no_other_threshold_is_better(rule: Any, points: list[tuple[int, int]]) -> None:
    rows = np.array([*points, (0, 0), (1, 12)], np.float64)
    labels, probabilities = rows[:, 0], rows[:, 1] / 12
    every = [worth(labels, probabilities >= threshold, rule) for threshold in np.unique(probabilities)]
    if isinstance(rule, PrecisionThreshold) and max(every) < 0:
        with pytest.raises(CalibrationError, match="no threshold has a precision of at least"):
            choose_threshold(labels, probabilities, rule)
        return
    chosen = choose_threshold(labels, probabilities, rule)
    assert worth(labels, probabilities >= chosen, rule) == pytest.approx(max(every))
    higher = [value for at, value in zip(np.unique(probabilities), every, strict=True) if at > chosen]
    assert not higher or max(higher) <= max(every) - 1e-12 or (probabilities >= chosen).any()


def test_of_equally_good_thresholds_it_is_the_highest() -> None:
    labels, probabilities = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.9, 0.7, 0.5, 0.3])
    rule = CostThreshold(rule="cost", false_positive=1.0, false_negative=1.0)
    assert choose_threshold(labels, probabilities, rule) == pytest.approx(0.8)


F1 = FBetaThreshold(rule="f_beta")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with an overconfident model, `good`: it was trained for long on few rows."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("bench"))
    training_set = publish_training_set(store, table(3000))
    parts = {"train": range(400), "validation": range(400, 1700), "test": range(1700, 3000)}
    made = Bench(store, training_set, publish_split(store, training_set, **parts))
    made.models = {"good": made.model(steps=400)}
    return made


def calibrated(bench: Bench, model: str = "", **spec: object) -> CalibrateResult:
    fitted = CalibrationSpec.model_validate(spec)
    return calibrate(CalibrateRequest(model=model or bench.models["good"], spec=fitted), bench.store)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_probabilities_come_true_on_rows_that_nobody_fitted_on(bench: Bench, method: str) -> None:
    result = calibrated(bench, method=method, threshold=F1)
    before = bench.evaluate(bench.models["good"]).metrics
    after = bench.evaluate(result.model).metrics
    assert after["calibration_error"] < before["calibration_error"] * 0.7
    assert after["log_loss"] < before["log_loss"]
    assert after["roc_auc"] == pytest.approx(before["roc_auc"], abs=0.01 if method == "isotonic" else 1e-12)
    assert bench.store.read_json(result.model, "calibration.json")["method"] == method


def test_weights_are_kept_once_and_the_lineage_leads_to_the_trained_model(bench: Bench) -> None:
    store, good = bench.store, bench.models["good"]
    blobs = set(store.objects.list("blobs"))
    result = calibrated(bench, method="platt", threshold={"rule": "fixed", "at": 0.31})
    added = set(store.objects.list("blobs")) - blobs
    made, trained = store.manifest(result.model), store.manifest(good)
    assert {entry.path for entry in made.files} - {entry.path for entry in trained.files} == {"calibration.json"}
    assert len(added) == 1
    assert set(lineage_of(store, result.model)) >= {good, bench.training_set, bench.split}
    assert made.configuration["calibration"] == {"method": "platt", "threshold": {"rule": "fixed", "at": 0.31}}


def test_the_threshold_decides_the_classes_of_the_candidate_and_of_nobody_else(bench: Bench) -> None:
    result = calibrated(bench, method="none", threshold=PrecisionThreshold(rule="precision", at_least=0.75))
    test = read_part(bench.store, bench.training_set, bench.split, "test", BINARY)
    plain, chosen = (Predictor.load(bench.store, reference) for reference in (bench.models["good"], result.model))
    assert (plain.predict(test.table) == chosen.predict(test.table)).all()
    predicted = chosen.predict(test.table)
    assert (chosen.read(predicted).form("classes") == (predicted >= result.threshold)).all()
    evaluation = bench.evaluate(result.model, champion=bench.models["good"])
    expected = float(np.mean((predicted >= result.threshold) == (test.labels == 1)))
    assert evaluation.metrics["accuracy"] == pytest.approx(expected)
    assert evaluation.metrics["precision"] > evaluation.champion_metrics["precision"]
    assert evaluation.champion_metrics["accuracy"] == pytest.approx(np.mean((predicted >= 0.5) == (test.labels == 1)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"min_rows": 1301}, "has 1,300 rows: expected at least calibration.min_rows, 1,301"),
        ({"method": "temperature"}, "method: expected platt or isotonic or none for the task binary"),
        ({"method": "none"}, "does nothing"),
        ({"threshold": {"rule": "precision", "at_least": 1.0}}, "no threshold has a precision of at least 1 "),
    ],
)
def test_what_cannot_be_done_is_said(bench: Bench, spec: dict[str, object], message: str) -> None:
    with pytest.raises((CalibrationError, ConfigurationError), match=message):
        calibrated(bench, **spec)


def test_a_model_that_is_calibrated_or_says_one_thing_is_refused(bench: Bench) -> None:
    once = calibrated(bench).model
    with pytest.raises(ConfigurationError, match="is calibrated already"):
        calibrated(bench, once)
    seen = bench.store.manifest(bench.models["good"])
    files = {entry.path: entry for entry in seen.files}
    refit = bench.store.publish(
        "models", "refit", files, derived_from=seen.derived_from, configuration={"stopping": {"refit": 3}}
    )
    with pytest.raises(ConfigurationError, match="was trained on the validation rows too"):
        calibrated(bench, str(refit))
    with pytest.raises(CalibrationError, match="not numbers"):
        calibrated(bench, bench.model(steps=1, broken=True))
    labels = table(3000)["label"].to_numpy()
    rare = sorted([*np.flatnonzero(labels == 0)[500:540].tolist(), *np.flatnonzero(labels)[500:509].tolist()])
    lone = Bench(bench.store, bench.training_set, publish_split(bench.store, bench.training_set, validation=rare))
    model = lone.model(steps=2)
    with pytest.raises(CalibrationError, match="has 9 rows with label 1: expected at least 10 of either"):
        calibrated(lone, model, min_rows=20)
