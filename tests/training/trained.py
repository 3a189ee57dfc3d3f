"""A model that two processes trained undisturbed: what disturbed trainings, and those in other places, must end in."""

import contextvars
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from gatehouse.launchers.launcher import STOP, Stop, TrainingStoppedError
from gatehouse.launchers.ranks import FAULT
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import Point
from gatehouse.tracking.sending import FOLLOWER
from gatehouse.training.spec import CheckpointSpec, NetworkTraining
from gatehouse.training.stage import TrainRequest, TrainResult, train
from tests.conftest import Once
from tests.training import synthetic
from tests.training.specs import network

SPEC = network(
    hidden=(16, 8),
    dropout=0.2,
    epochs=4,
    batch_size=128,
    learning_rate=0.01,
    patience=10,
    processes=2,
    checkpoints=CheckpointSpec(every_steps=3),
)


def request(store: ArtifactStore, spec: NetworkTraining = SPEC) -> TrainRequest:
    split, fitted = synthetic.fitted_data(store)
    return TrainRequest(split=split, transformation=fitted, spec=spec, model_name="flights")


def train_once(once: Once) -> tuple[ArtifactStore, TrainResult]:
    """The store and the model, made once for all workers. Nobody writes into this store."""

    def make(folder: Path) -> None:
        store = ArtifactStore.open(folder / "store")
        (folder / "result.json").write_text(train(request(store), store).model_dump_json())

    folder = once("trained", make)
    result = TrainResult.model_validate_json((folder / "result.json").read_text())
    return ArtifactStore.open(folder / "store"), result


def log_of(store: ArtifactStore, model: str) -> list[str]:
    (key,) = store.objects.list(f"measurements/{model}")
    log: list[str] = json.loads(store.objects.get_bytes(key))["log"]
    return log


def followed(
    request: TrainRequest, store: ArtifactStore, stop_after: int = -1
) -> tuple[dict[int, dict[str, float]], TrainResult | None]:
    """Train, perhaps stopped after an epoch: a follower's metrics by epoch, and the result; None where stopped."""
    reported: dict[int, dict[str, float]] = defaultdict(dict)
    stop = Stop()

    def hear(points: Sequence[Point]) -> None:
        for point in points:
            if point.name in ("train_log_loss", "log_loss", "roc_auc"):
                reported[point.step][point.name] = point.value
        if stop_after in reported:
            stop.ask()

    def begin() -> TrainResult:
        STOP.set(stop)
        FOLLOWER.set(hear)
        return train(request, store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAULT, f"await:{stop_after}")
        try:
            return reported, contextvars.copy_context().run(begin)
        except TrainingStoppedError:
            return reported, None
