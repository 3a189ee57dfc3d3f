"""The train stage: a training set and a spec become a model."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import NetworkTraining, TrainSpec, beginning, builder_of

if TYPE_CHECKING:
    from pathlib import Path

    from gatehouse.training.data.job import Prepared
    from gatehouse.training.transformation.fitted import Transformation

PROGRAM = "gatehouse.training.program"
"""Every worker runs it; the launcher is told its name. So a change of it, or of what it imports, is a change of this
stage."""


class TrainRequest(StageModel):
    """What to train on, and how."""

    training_set: str
    split: str
    transformation: str = Field(description="Reference of the transformation fitted on its train part.")
    spec: TrainSpec
    model_name: str
    live: bool = operational(False, description="Publish the metrics while the model trains.")
    segment: int = operational(
        0,
        ge=0,
        description="Keep the last checkpoint, and start from one that an earlier training with the same "
        "settings up to there has kept; checkpoints are looked for at multiples of this many "
        "epochs. 0 for neither.",
    )
    refit: bool = Field(
        False,
        description="Train twice: first on the train rows to find the best number of epochs, then for that "
        "many epochs on train and validation rows together. The second model is the result.",
    )


class TrainResult(StageModel):
    """The model, and the validation metrics of the epoch whose weights it has: none of a refit."""

    model: str
    best_epoch: int
    metrics: dict[str, float]


def _builder(request: TrainRequest) -> str:
    return builder_code(builder_of(request.spec))


@stage(
    "train",
    title="Train the candidate",
    effects=Effects(memo=True, why="Resumes from its last checkpoint."),
    resources=Resources(cpu="2", memory="8G", minutes=240),
    pages={"models": "gatehouse.training.report:page"},
    outside=_builder,
    tracked="model",
    task=("tune", "train", "calibrate"),
)
def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
    """Train one model through the launcher and publish it; a refit is the second of two.

    An interrupted run of the same request goes on at its last checkpoint and ends in the same bits. The artifact holds
    the weights (`weights.safetensors`, or `weights.ubj` of trees), `model.json` (all that scoring needs: architecture,
    inputs, feature tables, transformation, label) and `history.json`; how long it took, settings, environment and the
    worker's log go to a measurement beside it.

    Raises:
        BuilderError: if the package of a builder of one's own is not here.
        FeatureError: if a feature, a label or the split cannot be used.
        LauncherError: if training ends without a model.
    """
    if not request.refit:
        return _trained(request, store)
    first = train(request.model_copy(update={"refit": False}), store)
    stopping = request.spec.stopping.model_copy(update={"refit": first.best_epoch + 1})
    spec = request.spec.model_copy(update={"stopping": stopping})
    return _trained(request.model_copy(update={"spec": spec, "refit": False}), store)


def _trained(request: TrainRequest, store: ArtifactStore) -> TrainResult:
    import json

    from gatehouse.launchers.choose import launcher
    from gatehouse.launchers.job_directory import job_directory
    from gatehouse.launchers.launcher import METRICS, RESULT, TrainingJob
    from gatehouse.tracking.environment import capture_environment
    from gatehouse.tracking.following import followed
    from gatehouse.tracking.shipping import close_spool, open_spool, shipped_live
    from gatehouse.training.checkpointing.kept import shared
    from gatehouse.training.data.job import PARTS, prepare_job

    spec = request.spec
    began = time.monotonic()
    key, where = job_key(request), launcher(store)
    with (
        job_directory(store, f"train-{key}", PARTS) as directory,
        shared(store, key, _beginnings(request), directory),
    ):
        prepared = prepare_job(store, request.training_set, request.split, request.transformation, spec, directory)
        spool = open_spool(
            store,
            key,
            request.model_name.removesuffix("-trial"),
            directory / METRICS,
            params=spec.model_dump(mode="json"),
            inputs={"training_set": request.training_set, "split": request.split},
        )
        job = TrainingJob(
            directory,
            PROGRAM,
            spec.parallelism.processes,
            spec.operation.timeout_minutes,
            model_size=spec.parallelism.model_size,
            builder=builder_of(spec),
        )
        # Up to the model: whatever goes wrong before it is why the run has none.
        with shipped_live(store, spool, live=request.live, sampled=not where.remote):
            with followed(spool):
                where.run(job)
            result = json.loads((directory / RESULT).read_text())
            model = _publish(request, store, prepared, directory, result)
        close_spool(store, spool, str(model))
        measured = {"stage": "train", "seconds": time.monotonic() - began, "job": key} | _log_and_place(directory)
        # All values, as they were: the manifest leaves out what is the default.
        environment = {"environment": asdict(capture_environment())}
        store.append(f"measurements/{model}", measured | environment | {"settings": spec.model_dump(mode="json")})
        where.forget(job)
    best = result["history"][result["best_epoch"]]
    metrics = {name: value for name, value in best.items() if name != "epoch" and not name.startswith("train_")}
    return TrainResult(model=str(model), best_epoch=result["best_epoch"], metrics=metrics)


def _log_and_place(directory: "Path") -> dict[str, Any]:
    import json

    from gatehouse.launchers.launcher import LOG, PLACE

    log = (directory / LOG).read_text(errors="replace").splitlines()
    return {"log": log, "place": json.loads((directory / PLACE).read_text()) if (directory / PLACE).exists() else {}}


def _publish(
    request: TrainRequest, store: ArtifactStore, prepared: "Prepared", directory: "Path", result: dict[str, Any]
) -> Reference:
    from gatehouse.launchers.launcher import WEIGHTS
    from gatehouse.training.models.weights_file import weights_file

    details = store.manifest(request.training_set).details
    description = {
        "architecture": prepared.architecture,
        "inputs": prepared.inputs,
        "feature_tables": {view: version["table"] for view, version in details.get("versions", {}).items()},
        "transformation": prepared.transformation.to_json(),
        "transformation_reference": request.transformation,
        "label": details["label"],
        "training_set": request.training_set,
        "split": request.split,
    } | _importance(result, prepared.transformation)
    return store.publish(
        "models",
        request.model_name,
        {
            weights_file(request.spec.model.architecture): directory / WEIGHTS,
            "model.json": canonical_json(description),
            "history.json": canonical_json(result["history"]),
        },
        derived_from={
            "training_set": request.training_set,
            "split": request.split,
            "transformation": request.transformation,
        },
        configuration=identity_of(request.spec),
        details={"best_epoch": result["best_epoch"]} | _world_sizes(result),
    )


def job_key(request: TrainRequest) -> str:
    """Names the training job of a request: its directory, its metrics, and the run that shows it."""
    return train.key(request)


def forget_job(store: ArtifactStore, key: str) -> None:
    """Remove what a job has left to go on from, also for other trainings; nothing where there is nothing."""
    from gatehouse.launchers.job_directory import job_directory
    from gatehouse.training.checkpointing.kept import drop

    with job_directory(store, f"train-{key}"):
        drop(store, key)  # The directory is removed at the end.


def _beginnings(request: TrainRequest) -> Iterator[str] | None:
    """Keys of the trainings that this one goes on from with the same bits, the longest first; None if alone."""
    spec, segment = request.spec, request.segment
    if not segment or not isinstance(spec, NetworkTraining) or not spec.optimizer.is_independent_of_length:
        return None
    shorter = range((spec.stopping.epochs - 1) // segment * segment, 0, -segment)
    return (job_key(request.model_copy(update={"spec": beginning(spec, epochs)})) for epochs in shorter)


def _world_sizes(result: Mapping[str, Any]) -> dict[str, Any]:
    """From which step on how many processes trained, where their number changed: its bits are another run's then."""
    return {"world_sizes": result["world_sizes"]} if len(result.get("world_sizes", ())) > 1 else {}


def _importance(result: dict[str, Any], transformation: "Transformation") -> dict[str, dict[str, float]]:
    """What each feature gained the loss in all of its splits, where the framework tells."""
    gains = result.get("importance")
    if gains is None:
        return {}
    indicators = [column.name for column in transformation.numeric if column.indicator]
    names = [
        *(column.name for column in transformation.numeric),
        *(f"{name} is missing" for name in indicators),
        *(column.name for column in transformation.categorical),
    ]
    return {"importance": {names[int(column)]: gain for column, gain in gains.items()}}
