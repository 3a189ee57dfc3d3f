"""The train stage: a training set and a spec become a model."""

import shutil

from gatehouse.components.artifacts.canonical import canonical_json, digest_of
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec


class TrainRequest(StageModel):
    """What to train on, and how."""

    training_set: str
    split: str
    spec: TrainSpec
    model_name: str


class TrainResult(StageModel):
    """The model, and the validation metrics of the epoch whose weights it has."""

    model: str
    best_epoch: int
    metrics: dict[str, float]


@stage("train", distributions=("torch", "numpy", "safetensors", "pyarrow"))
def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
    """Train one model through the launcher and publish it.

    An interrupted run of the same request goes on at its last checkpoint and ends in the same bits. The artifact holds
    `weights.safetensors`, `model.json` (architecture, transformation, label) and `history.json`.

    Raises:
        FeatureError: if a feature or label cannot be used.
        LauncherError: if training ends without a model.
    """
    import json

    from gatehouse.components.training.job import prepare_job
    from gatehouse.components.training.launcher import TrainingJob
    from gatehouse.components.training.local import LocalLauncher

    spec = request.spec
    directory = store.scratch(f"train-{digest_of({'code': train.code(), 'request': request.model_dump(mode='json')})}")
    prepared = prepare_job(store, request.training_set, request.split, spec, directory)
    (directory / "failure.json").unlink(missing_ok=True)
    LocalLauncher().run(TrainingJob(directory, spec.processes, spec.timeout_minutes))
    result = json.loads((directory / "result.json").read_text())
    best = result["history"][result["best_epoch"]]
    details = store.manifest(request.training_set).details
    description = {
        "architecture": prepared.architecture,
        "transformation": prepared.transformation.to_json(),
        "label": details["label"],
        "training_set": request.training_set,
        "split": request.split,
    }
    model = store.publish(
        "models",
        request.model_name,
        {
            "weights.safetensors": directory / "weights.safetensors",
            "model.json": canonical_json(description),
            "history.json": canonical_json(result["history"]),
        },
        derived_from={"training_set": request.training_set, "split": request.split},
        configuration=spec.model_dump(mode="json"),
        details={"best_epoch": result["best_epoch"]},
    )
    shutil.rmtree(directory, ignore_errors=True)
    metrics = {name: best[name] for name in ("log_loss", "roc_auc")}
    return TrainResult(model=str(model), best_epoch=result["best_epoch"], metrics=metrics)
