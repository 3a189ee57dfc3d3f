"""The train stage: a training set and a spec become a model."""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from pydantic import Field

from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import NetworkTraining, TrainSpec, beginning, own_names

logger = logging.getLogger(__name__)

PROGRAM = "gatehouse.training.program"
"""The program of every worker. It belongs, with everything that it imports, to the code of this stage."""


class TrainRequest(StageModel):
    """The data and the settings of a training."""

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
    """The model, and the validation metrics of the epoch whose weights it has; a refit has no metrics."""

    model: str
    best_epoch: int
    metrics: dict[str, float]


@stage(
    "train",
    title="Train the candidate",
    effects=Effects(memo=True, why="Writes checkpoints to the scratch folder, and resumes from them."),
    pages={"models": "gatehouse.training.report:page"},
    outside=lambda request: builder_code(*own_names(request.spec)),
    tracked="model",
)
def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
    """Train one model through the launcher and publish it; a refit is the second of two.

    An interrupted run of the same request resumes at its last checkpoint and ends in the same bits. The artifact holds
    the weights (`weights.safetensors`, or `weights.ubj` of trees), `model.json` (all that scoring needs: architecture,
    inputs, feature tables, transformation, label) and `history.json`; duration, settings, environment and the worker's
    log go to a measurement beside it.

    Raises:
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

    from gatehouse.data.splitting.parts import divided_set
    from gatehouse.launchers.launcher import LOCATION, LOG, METRICS, RESULT, WEIGHTS, TrainingJob, job_directory
    from gatehouse.launchers.local import launcher
    from gatehouse.tracking.provenance import capture_environment
    from gatehouse.tracking.sending import tracked_job
    from gatehouse.training.job import PARTS, prepare_job
    from gatehouse.training.model_spec import weights_file
    from gatehouse.training.shards import shard_count

    spec, began = request.spec, time.monotonic()
    inputs = {"training_set": divided_set(store, request.split), "split": request.split}
    key, where = job_key(request), launcher(store)
    with job_directory(store, f"train-{key}", PARTS) as directory, _shared_checkpoints(store, key, request, directory):
        prepared = prepare_job(store, request.split, request.transformation, spec, directory)
        name, params = request.model_name.removesuffix("-trial"), spec.model_dump(mode="json")
        minutes = spec.operation.timeout_minutes
        own, divided = own_names(spec), shard_count(spec) > 1
        job = TrainingJob(directory, PROGRAM, spec.parallelism.processes, minutes, own=own, divided=divided)
        # Until the model is published, any error is recorded as the reason why the run has none.
        with tracked_job(
            store,
            key,
            name,
            directory / METRICS,
            params=params,
            inputs=inputs,
            live=request.live,
            sampled=not where.remote,
        ) as tracked:
            where.run(job)
            result = json.loads((directory / RESULT).read_text())
            details = store.manifest(inputs["training_set"]).details
            description = {
                "architecture": prepared.architecture,
                "inputs": prepared.inputs,
                "feature_tables": {view: version["table"] for view, version in details.get("versions", {}).items()},
                "transformation": prepared.transformation.to_json(),
                "transformation_reference": request.transformation,
                "label": details["label"],
            } | inputs
            if (gains := result.get("importance")) is not None:  # By column of the trees.
                names = prepared.transformation.column_names
                description["importance"] = {names[int(column)]: gain for column, gain in gains.items()}
            model = store.publish(
                "models",
                request.model_name,
                {
                    weights_file(spec.model.architecture): directory / WEIGHTS,
                    "model.json": canonical_json(description),
                    "history.json": canonical_json(result["history"]),
                },
                derived_from=inputs | {"transformation": request.transformation},
                configuration=identity_of(spec),
                details={"best_epoch": result["best_epoch"]},
            )
            tracked.model = str(model)
        place = directory / LOCATION
        measurement = {
            "stage": "train",
            "seconds": time.monotonic() - began,
            "job": key,
            "log": (directory / LOG).read_text(errors="replace").splitlines(),
            "place": json.loads(place.read_text()) if place.exists() else {},
            "environment": asdict(capture_environment()),
            "settings": params,  # All of them: the manifest leaves out defaults.
        }
        store.append(f"measurements/{model}", measurement)
        where.forget(job)
    best = result["history"][result["best_epoch"]]
    metrics = {name: value for name, value in best.items() if name != "epoch" and not name.startswith("train_")}
    return TrainResult(model=str(model), best_epoch=result["best_epoch"], metrics=metrics)


def job_key(request: TrainRequest) -> str:
    """Names the training job of a request: its directory, its metrics, and its run."""
    return train.key(request)


def forget_job(store: ArtifactStore, key: str) -> None:
    """Remove the directory and the kept checkpoints of a job, if there are any."""
    from gatehouse.launchers.launcher import job_directory

    with job_directory(store, f"train-{key}"):
        shutil.rmtree(_kept(store, key), ignore_errors=True)  # The directory is removed at the end.


def _beginnings(request: TrainRequest) -> Iterator[str] | None:
    """Keys of the trainings whose checkpoints give the same bits, the longest first; None if it shares none."""
    spec, segment = request.spec, request.segment
    if not segment or not isinstance(spec, NetworkTraining) or not spec.optimizer.is_independent_of_length:
        return None
    shorter = range((spec.stopping.epochs - 1) // segment * segment, 0, -segment)
    return (job_key(request.model_copy(update={"spec": beginning(spec, epochs)})) for epochs in shorter)


@contextmanager
def _shared_checkpoints(store: ArtifactStore, key: str, request: TrainRequest, directory: Path) -> Iterator[None]:
    """Start a job from the checkpoints of a shorter one, and keep its own if it ends well: they only save time.

    Checkpoints in the job's own directory are used before those of a shorter job.
    """
    from gatehouse.launchers.launcher import CHECKPOINTS

    if (beginnings := _beginnings(request)) is None:
        yield
        return
    own, copied = directory / CHECKPOINTS, directory / f"{CHECKPOINTS}.part"
    shutil.rmtree(copied, ignore_errors=True)
    folders = (_kept(store, beginning_key) for beginning_key in beginnings)
    kept = None if own.exists() else next(filter(Path.exists, folders), None)
    if kept is not None:
        try:
            shutil.copytree(kept, copied)
            os.replace(copied, own)
        except OSError as error:
            logger.warning("%s cannot be copied, so the training begins anew: %s", kept, error)
    yield
    if own.exists():
        shutil.rmtree(_kept(store, key), ignore_errors=True)
        os.replace(own, _kept(store, key))


def _kept(store: ArtifactStore, key: str) -> Path:
    return store.local_folder / "scratch" / f"kept-{key}"
