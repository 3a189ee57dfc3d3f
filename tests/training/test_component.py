"""The component that trains a candidate: which search, training and calibration its parameters ask for."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.components import train
from gatehouse.data import component_task
from gatehouse.store.parameters import parameter_of
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import projection as tracking
from gatehouse.training import calibration_stage as calibrating
from gatehouse.training import stage
from gatehouse.training.model_spec import CalibrationSpec
from tests.components import call, stored
from tests.training.specs import network, trees
from tests.training.synthetic import lay_out


class Stand:
    """Stands for a stage: keeps what it is asked for, and gives a result."""

    def __init__(self, real: Any, result: Any) -> None:
        self.name, self.request, self.requests, self._result = real.name, real.request, list[Any](), result

    def __call__(self, request: Any, store: ArtifactStore, **_: object) -> Any:
        self.requests.append(request)
        return self._result


@pytest.fixture
def model(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that nobody trained, so that pages and MLflow are left out."""
    monkeypatch.setattr(tracking, "track_training", lambda *_: None)  # The model is no real one.
    monkeypatch.setattr(component_task, "write_page", lambda _store, _model, path: Path(path).write_text("a page"))
    return str(store.publish("models", "flights", {"model.json": "{}"}))


@pytest.mark.parametrize(("inputs", "seed"), [({}, 5), ({"seed": 11}, 11), ({"seed": 0}, 0)])
def test_the_seed_of_a_run_stands_in_place_of_that_of_the_spec(
    store: ArtifactStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    inputs: dict[str, int],
    seed: int,
) -> None:
    fit = Stand(stage.train, stage.TrainResult(model=model, best_epoch=0, metrics={"log_loss": 0.5}))
    monkeypatch.setattr(stage, "train", fit)  # What is asked for is looked at, and not trained.
    _, split = lay_out(store)
    spec = trees(seed=5, rounds=9, timeout_minutes=7)
    made = call(train, tmp_path, split=stored(store, split), spec=parameter_of(spec), model_name="flights", **inputs)
    (request,) = fit.requests
    assert request.spec == trees(seed=seed, rounds=9, timeout_minutes=7) and request.live
    assert (request.split, request.model_name) == (split, "flights") and store.exists(request.transformation)
    assert made.model.metadata["reference"] == store.address_of(model)
    assert (
        made.experiment.metadata["reference"] == "none" and "No hyperparameters" in Path(made.trials.path).read_text()
    )
    assert made.metrics.metadata["validation_log_loss"] == made.metrics_by_name["log_loss"] == 0.5
    assert Path(made.report.path).read_text() == "a page"


def test_a_candidate_is_calibrated_where_that_is_asked_for(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(stage, "train", Stand(stage.train, stage.TrainResult(model=model, best_epoch=0, metrics={})))
    calibrated = str(store.publish("models", "flights", {"calibration.json": "{}"}))
    result = calibrating.CalibrateResult(model=calibrated, threshold=0.4, summary="")
    calibrate = Stand(calibrating.calibrate, result)
    monkeypatch.setattr(calibrating, "calibrate", calibrate)  # As above.
    specs = {"spec": parameter_of(network()), "calibration": parameter_of(CalibrationSpec(min_rows=70))}
    made = call(train, tmp_path, split=stored(store, lay_out(store)[1]), model_name="flights", tables=True, **specs)
    assert (calibrate.requests[0].model, calibrate.requests[0].spec.min_rows) == (model, 70)
    assert made.threshold == 0.4 and made.model.metadata["reference"] == store.address_of(calibrated)
    assert {path.name for path in Path(made.model.path).iterdir()} == {"calibration.json"}
