"""The calibrate stage: the same weights, probabilities that come true, a threshold that classes follow, errors."""

import numpy as np
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of
from gatehouse.training.calibration.spec import CalibrationError, CalibrationSpec, FBetaThreshold, PrecisionThreshold
from gatehouse.training.calibration.stage import CalibrateRequest, CalibrateResult, calibrate
from gatehouse.training.scoring.predictor import Predictor
from tests.evaluation.conftest import Bench
from tests.training.synthetic import publish_split, publish_training_set, table

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
