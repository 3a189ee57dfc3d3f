"""The train stage: a training set and a spec become a model."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.components.artifacts.builder_code import builder_code as builder_code
from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.identity import operational
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec

if TYPE_CHECKING:
    from pathlib import Path

    from gatehouse.components.training.data.job import Prepared
    from gatehouse.components.training.transformation.fitted import Transformation

PROGRAM = "gatehouse.components.training.program"
"""Every worker runs it; the launcher is told its name. So a change of it, or of what it imports, is a change of this
stage."""


class TrainRequest(StageModel):
    """What to train on, and how."""

    training_set: str
    split: str
    transformation: str = Field("", description="Reference; empty fits the default one on the train part.")
    spec: TrainSpec
    model_name: str
    live: bool = operational(False, description="Show the metrics while they are made.")


class TrainResult(StageModel):
    """The model, and the validation metrics of the epoch whose weights it has."""

    model: str
    best_epoch: int
    metrics: dict[str, float]


def _builder(request: TrainRequest) -> str:
    return builder_code(request.spec.architecture)


@stage(
    "train",
    title="Train the candidate",
    effects=Effects(memo=True, why="Resumes from its last checkpoint."),
    resources=Resources(cpu="2", memory="8G", minutes=240),
    outside=_builder,
)
def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
    """Train one model through the launcher and publish it.

    An interrupted run of the same request goes on at its last checkpoint and ends in the same bits. The artifact holds
    the weights (`weights.safetensors`, or `weights.ubj` of trees), `model.json` (architecture, inputs, feature tables,
    transformation, label) and `history.json`; how long it took, and the worker's log, go to a measurement beside it.

    Raises:
        BuilderError: if the package of a builder of one's own is not here.
        FeatureError: if a feature, a label or the split cannot be used.
        LauncherError: if training ends without a model.
    """
    import json

    from gatehouse.components.launchers.choose import launcher
    from gatehouse.components.launchers.launcher import LOG, METRICS, PLACE, RESULT, TrainingJob
    from gatehouse.components.tracking.shipping import close_spool, open_spool, shipped_live
    from gatehouse.components.training.data.job import job_directory, prepare_job

    spec = request.spec
    began = time.monotonic()
    key, where = job_key(request), launcher(store)
    with job_directory(store, f"train-{key}") as directory:
        prepared = prepare_job(store, request.training_set, request.split, spec, directory, request.transformation)
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
            spec.processes,
            spec.timeout_minutes,
            model_size=spec.model_size,
            builder=spec.architecture if ":" in spec.architecture else "",
        )
        # Up to the model: whatever goes wrong before it is why the run has none.
        with shipped_live(store, spool, live=request.live, sampled=not where.remote):
            where.run(job)
            result = json.loads((directory / RESULT).read_text())
            model = _publish(request, store, prepared, directory, result)
        close_spool(store, spool, str(model))
        log = (directory / LOG).read_text(errors="replace").splitlines()
        place = json.loads((directory / PLACE).read_text()) if (directory / PLACE).exists() else {}
        measured = {"stage": "train", "seconds": time.monotonic() - began, "log": log, "place": place, "job": key}
        store.append(f"measurements/{model}", measured)
        where.forget(job)
    best = result["history"][result["best_epoch"]]
    metrics = {name: value for name, value in best.items() if name != "epoch" and not name.startswith("train_")}
    return TrainResult(model=str(model), best_epoch=result["best_epoch"], metrics=metrics)


def _publish(
    request: TrainRequest, store: ArtifactStore, prepared: "Prepared", directory: "Path", result: dict[str, Any]
) -> Reference:
    from gatehouse.components.launchers.launcher import WEIGHTS
    from gatehouse.components.training.scoring.frameworks import framework_of

    details = store.manifest(request.training_set).details
    description = {
        "architecture": prepared.architecture,
        "inputs": prepared.inputs,
        "feature_tables": {view: version["table"] for view, version in details.get("versions", {}).items()},
        "transformation": prepared.transformation.to_json(),
        "transformation_reference": prepared.reference,
        "label": details["label"],
        "training_set": request.training_set,
        "split": request.split,
    } | _importance(result, prepared.transformation)
    return store.publish(
        "models",
        request.model_name,
        {
            framework_of(request.spec).weights: directory / WEIGHTS,
            "model.json": canonical_json(description),
            "history.json": canonical_json(result["history"]),
        },
        derived_from={
            "training_set": request.training_set,
            "split": request.split,
            "transformation": prepared.reference,
        },
        configuration=request.spec.model_dump(mode="json"),
        details={"best_epoch": result["best_epoch"]} | _worlds(result),
    )


def job_key(request: TrainRequest) -> str:
    """Names the training job of a request: its directory, its metrics, and the run that shows it."""
    return train.key(request)


def _worlds(result: Mapping[str, Any]) -> dict[str, Any]:
    """From which step on how many processes trained, where their number changed: its bits are another run's then."""
    return {"worlds": result["worlds"]} if len(result.get("worlds", ())) > 1 else {}


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
