"""Size and latency of a trial's model, and what its score owes to being chosen; on a model that is trained once."""

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import TrainResult
from gatehouse.tuning.data import TrialData
from gatehouse.tuning.measures import measured
from gatehouse.tuning.optimism import optimism
from gatehouse.tuning.spec import ExperimentSpec, Objective
from gatehouse.tuning.trial import Trial
from tests.conftest import Once
from tests.training.trained import train_once

PARAMETERS = [{"name": "model.dropout", "type": "double", "min": 0, "max": 0.2}]


@pytest.fixture(scope="session")
def trained(once: Once) -> tuple[ArtifactStore, TrainResult]:
    return train_once(once)


def _data(store: ArtifactStore, model: str) -> TrialData:
    origin = store.manifest(model).derived_from
    return TrialData(origin["training_set"], origin["split"], origin["transformation"])


def test_what_a_constraint_or_an_objective_asks_for_is_measured_and_nothing_else(
    trained: tuple[ArtifactStore, TrainResult],
) -> None:
    store, result = trained
    data = _data(store, result.model)
    (weights,) = (file for file in store.manifest(result.model).files if file.path == "weights.safetensors")
    size = {"constraints": [{"measure": "size_bytes", "at_most": 1}], "parameters": PARAMETERS}
    assert measured(store, data, result.model, ExperimentSpec.model_validate(size)) == {"size_bytes": weights.bytes}
    latency = {"objective": ["log_loss", "latency_ms"], "algorithm": "random", "parameters": PARAMETERS}
    found = measured(store, data, result.model, ExperimentSpec.model_validate(latency))
    assert set(found) == {"latency_ms", "latency_p99_ms"} and 0 < found["latency_ms"] <= found["latency_p99_ms"]
    assert measured(store, data, result.model, ExperimentSpec.model_validate({"parameters": PARAMETERS})) == {}


def test_the_best_score_is_that_of_training_and_the_same_model_twice_is_no_choice(
    trained: tuple[ArtifactStore, TrainResult],
) -> None:
    store, result = trained
    trials = [
        Trial(number, "succeeded", {}, {"log_loss": result.metrics["log_loss"]}, model=result.model)
        for number in range(2)
    ]
    objective = Objective(metric="log_loss")
    found = optimism(store, _data(store, result.model), objective, trials, 7)
    assert found is not None and found.best == pytest.approx(result.metrics["log_loss"], abs=1e-6)
    assert found.corrected == found.best and found.lower < found.best < found.upper
    assert optimism(store, _data(store, result.model), objective, trials[:1], 7) is None
    assert optimism(store, _data(store, result.model), Objective(metric="size_bytes"), trials, 7) is None
