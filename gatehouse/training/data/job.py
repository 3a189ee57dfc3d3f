"""Turns a training set and a split into the files that the training program reads."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launcher import JOB
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.store.hidden_values import hidden_columns
from gatehouse.store.store import ArtifactStore
from gatehouse.training.data.parts import Part, read_part
from gatehouse.training.data.targets import Targets, outputs_of, targets_of
from gatehouse.training.spec import NetworkTraining, TrainSpec, task_of
from gatehouse.training.transformation.fitted import Transformation
from gatehouse.training.transformation.reading import read_transformation

PARTS = ("train", "validation")


@dataclass(frozen=True)
class Prepared:
    """What `prepare_job` used and found.

    Attributes:
        transformation: Fitted on the train part.
        architecture: What `model.json` says of the model: all that it takes to build it and to read its weights.
        inputs: Arrow type by name of every feature column.
    """

    transformation: Transformation
    architecture: dict[str, Any]
    inputs: dict[str, str]


def prepare_job(
    store: ArtifactStore, training_set: str, split: str, transformation: str, spec: TrainSpec, directory: Path
) -> Prepared:
    """Write `job.json` and the arrays of both parts into `directory`; those of a refit are one part, `train`.

    With `data.train_fraction` below 1 an evenly spaced part of the train rows is used. `transformation` is the
    reference of one that was fitted on the whole train part.

    Raises:
        ConfigurationError: if the batch is larger than the train part, or the loss is not for the label's task.
        FeatureError: if a part has too few rows, or a feature, a label, a weight or a group cannot be used.
    """
    if spec.stopping.refit:
        parts = {"train": read_part(store, training_set, split, *PARTS)}
    else:
        parts = {part: read_part(store, training_set, split, part) for part in PARTS}
    train_rows = parts["train"].num_rows
    if spec.data.train_fraction < 1.0:
        parts["train"] = parts["train"].thinned(spec.data.train_fraction)
    details = store.manifest(training_set).details
    _require_task(spec, details.get("task", ""))
    targets = targets_of(parts, details["label"], spec.loss, details.get("group", ""))
    _require_a_full_batch(spec, train_rows)
    fitted = read_transformation(store, training_set, split, transformation)
    architecture = {
        "model": spec.model.model_dump(mode="json"),
        "loss": spec.loss.kind,
        "width": fitted.width,
        "cardinalities": [column.cardinality for column in fitted.categorical],
        "outputs": outputs_of(targets["train"].labels, spec.loss),
    }
    for name, part in parts.items():
        _write(directory / name, part, fitted, targets[name])
    # Not the timeout: given more of it, a run goes on at the checkpoints of the same job.
    settings = spec.model_dump(mode="json", exclude={"operation": {"timeout_minutes"}})
    job = {"spec": settings, "architecture": architecture, "hidden": hidden_columns()}
    (directory / JOB).write_text(json.dumps(job, sort_keys=True))
    schema = parts["train"].schema
    inputs = {column.name: str(schema.field(column.name).type) for column in fitted.columns}
    return Prepared(fitted, architecture, inputs)


def _require_task(spec: TrainSpec, declared: str) -> None:
    task = task_of(spec)
    if declared and declared != task.name:
        losses = ", ".join(TASKS[declared].losses)
        raise ConfigurationError(
            f"training.loss.kind: the label is of the task {declared}, which is trained with {losses}; found "
            f"{spec.loss.kind}. Correct it, or the LabelView's task."
        )


def _require_a_full_batch(spec: TrainSpec, rows: int) -> None:
    if isinstance(spec, NetworkTraining) and spec.data.batch_size > rows:
        raise ConfigurationError(
            f"training.data.batch_size: expected at most the {rows:,} rows of the part train, found "
            f"{spec.data.batch_size:,}. Lower it, so that an epoch has several steps."
        )


def _write(folder: Path, part: Part, fitted: Transformation, targets: Targets) -> None:
    """Write the arrays of one part, those of features a batch of rows at a time; rows of a group stand together."""
    folder.mkdir(exist_ok=True)
    order = targets.order()
    targets.write(folder, order)
    place = None if order is None else np.argsort(order)
    paths = folder / "numbers.npy", folder / "ids.npy"
    _make(paths[0], np.dtype(np.float32), (part.num_rows, fitted.width))
    _make(paths[1], np.dtype(np.int64), (part.num_rows, len(fitted.categorical)))
    for rows, table in part.batches([column.name for column in fitted.columns]):
        for path, values in zip(paths, fitted.apply(table), strict=True):
            # Mapped anew for each batch: what was written does not count as this process's memory.
            np.load(path, mmap_mode="r+")[rows if place is None else place[rows]] = values


def _make(path: Path, kind: np.dtype[Any], shape: tuple[int, int]) -> None:
    """An array to be written through a map. Its place on the disk is taken now: a full one is an error here only."""
    np.lib.format.open_memmap(path, "w+", kind, shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
