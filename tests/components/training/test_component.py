"""The component of the train stage: which training its parameters ask for."""

import json
from types import SimpleNamespace

import pytest

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking import training as tracking
from gatehouse.components.training import stage
from gatehouse.components.training.spec import operation_of, settings_of
from gatehouse.components.training.stage import TrainRequest, TrainResult
from gatehouse.pipelines.interfaces import component_of
from tests.components.training.specs import network, trees

MODEL = f"models/flights/sha256-{'1' * 64}"


@pytest.mark.parametrize(("given", "seed"), [({}, 5), ({"seed": 11}, 11), ({"seed": 0}, 0)])
def test_the_seed_of_a_run_stands_in_place_of_that_of_the_spec_and_trees_run_as_networks_do(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], seed: int
) -> None:
    asked: list[TrainRequest] = []

    def train(request: TrainRequest, *_: object, **__: object) -> TrainResult:
        asked.append(request)
        return TrainResult(model=MODEL, best_epoch=0, metrics={"log_loss": 0.5})

    monkeypatch.setattr(stage, "train", train)
    monkeypatch.setattr(tracking, "track_training", lambda *_: None)
    logged: dict[str, float] = {}
    candidate, metrics = SimpleNamespace(metadata={}), SimpleNamespace(log_metric=logged.__setitem__)
    outputs = component_of("train").python_func(
        store=store.address,
        training_set="training-sets/flights",
        split="splits/flights",
        transformation="",
        spec=canonical_json(settings_of(trees(seed=5, rounds=9))),
        operation=json.dumps(operation_of(network(prefetch=0, timeout_minutes=7))),
        model_name="flights",
        code="",
        force="",
        candidate=candidate,
        metrics=metrics,
        **given,
    )
    assert asked[0].spec == trees(seed=seed, rounds=9, timeout_minutes=7)
    assert outputs == (MODEL,) and logged == {"validation_log_loss": 0.5}
