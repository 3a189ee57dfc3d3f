"""Size and latency of a trial's model."""

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import TrainResult
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.training_trials import measured
from tests.conftest import Once
from tests.training.trained import train_once

PARAMETERS = [{"name": "model.dropout", "type": "double", "min": 0, "max": 0.2}]


@pytest.fixture(scope="session")
def trained(once: Once) -> tuple[ArtifactStore, TrainResult]:
    return train_once(once)


def test_what_a_constraint_or_an_objective_asks_for_is_measured_and_nothing_else(
    trained: tuple[ArtifactStore, TrainResult],
) -> None:
    store, result = trained
    split = store.manifest(result.model).derived_from["split"]
    (weights,) = (file for file in store.manifest(result.model).files if file.path == "weights.safetensors")
    size = {"constraints": [{"measure": "size_bytes", "at_most": 1}], "parameters": PARAMETERS}
    assert measured(store, split, result.model, ExperimentSpec.model_validate(size)) == {"size_bytes": weights.bytes}
    latency = {"objective": ["log_loss", "latency_ms"], "algorithm": "random", "parameters": PARAMETERS}
    actual = measured(store, split, result.model, ExperimentSpec.model_validate(latency))
    assert set(actual) == {"latency_ms", "latency_p99_ms"} and 0 < actual["latency_ms"] <= actual["latency_p99_ms"]
    assert measured(store, split, result.model, ExperimentSpec.model_validate({"parameters": PARAMETERS})) == {}
