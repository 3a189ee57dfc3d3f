"""The component that trains a candidate: which search, training and calibration its parameters ask for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gatehouse.pipelines.interfaces import component_of

from gatehouse.reports import contents
from gatehouse.store.parameters import parameter_of
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import training as tracking
from gatehouse.training import calibration_stage as calibrating
from gatehouse.training import stage
from gatehouse.training.model_spec import CalibrationSpec
from gatehouse.training.stage import TrainRequest, TrainResult
from tests.training.specs import network, trees

MODEL = f"models/flights/sha256-{'1' * 64}"
CALIBRATED = f"models/flights/sha256-{'2' * 64}"
DATA = {
    "split": f"splits/flights/sha256-{'4' * 64}",
    "transformation": f"transformations/flights/sha256-{'5' * 64}",
    "model_name": "flights",
}


class StopHereError(Exception):
    """Stands for the run of a stage."""


class Stand:
    """Stands for a stage: keeps what it is asked for, and gives a result or raises."""

    def __init__(self, real: Any, result: Any) -> None:
        self.name, self.request, self.requests, self._result = real.name, real.request, list[Any](), result

    def __call__(self, request: Any, store: ArtifactStore, **_: object) -> Any:
        self.requests.append(request)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The typed artifacts of the component; pages and MLflow are left out."""
    monkeypatch.setattr(tracking, "track_training", lambda *_: None)  # The model is no real one.
    (tmp_path / "page").write_text("a page")
    monkeypatch.setattr(contents, "rendered", lambda *_: tmp_path / "page")  # The model is no real one.
    logged: dict[str, float] = {}
    return {
        "candidate": SimpleNamespace(metadata={}),
        "metrics": SimpleNamespace(log_metric=logged.__setitem__, logged=logged),
        "report": SimpleNamespace(metadata={}, path=str(tmp_path / "report.html")),
        "trials": SimpleNamespace(metadata={}, path=str(tmp_path / "trials.md")),
    }


@pytest.mark.parametrize(("arguments", "seed"), [({}, 5), ({"seed": 11}, 11), ({"seed": 0}, 0)])
def test_the_seed_of_a_run_stands_in_place_of_that_of_the_spec(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any], arguments: dict[str, int], seed: int
) -> None:
    fit = Stand(stage.train, TrainResult(model=MODEL, best_epoch=0, metrics={"log_loss": 0.5}))
    monkeypatch.setattr(stage, "train", fit)  # What is asked for is looked at, and not trained.
    spec = trees(seed=5, rounds=9, timeout_minutes=7)
    outputs = component_of("train").python_func(
        store=store.address, **DATA, spec=parameter_of(spec), **shown, **arguments
    )
    assert fit.requests[0] == TrainRequest(**DATA, spec=trees(seed=seed, rounds=9, timeout_minutes=7), live=True)
    assert outputs == (MODEL, "") and shown["metrics"].logged == {"validation_log_loss": 0.5}
    assert Path(shown["report"].path).read_text() == "a page"
    assert "no section `tuning`" in Path(shown["trials"].path).read_text()


def test_a_candidate_is_calibrated_where_the_project_asks_for_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any]
) -> None:
    fit = Stand(stage.train, TrainResult(model=MODEL, best_epoch=0, metrics={}))
    monkeypatch.setattr(stage, "train", fit)  # What is asked for is looked at, and not trained.
    result = calibrating.CalibrateResult(model=CALIBRATED, threshold=0.4, summary="")
    calibrate = Stand(calibrating.calibrate, result)
    monkeypatch.setattr(calibrating, "calibrate", calibrate)  # As above.
    specs = {"spec": parameter_of(network()), "calibration": parameter_of(CalibrationSpec(min_rows=70))}
    outputs = component_of("train").python_func(store=store.address, **DATA, **specs, **shown)
    assert outputs == (CALIBRATED, "")
    assert (calibrate.requests[0].model, calibrate.requests[0].spec.min_rows) == (MODEL, 70)
    assert shown["candidate"].metadata["reference"].endswith(CALIBRATED)
