"""Prepares the files of a training job: the rows of a split as mapped arrays, read batch by batch, and the settings."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.data.splitting.parts import FileRows, divided_set, group_numbers
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launcher import JOB
from gatehouse.metrics.tasks import TASKS, task_of_loss
from gatehouse.store.hidden_values import hidden_columns
from gatehouse.store.store import ArtifactStore
from gatehouse.training.shards import SIZES, Division, shard_count
from gatehouse.training.spec import (
    BinaryLoss,
    LossSpec,
    MulticlassLoss,
    NetworkTraining,
    PairwiseLoss,
    TrainSpec,
    task_of,
)
from gatehouse.training.transformation import Columns, FeatureError, Transformation, read_transformation


def read_part(store: ArtifactStore, split: str, *parts: str) -> FileRows:
    """A part of a split (`train`, `validation` or `test`), or several of them one after another."""
    paths = store.paths(divided_set(store, split))
    rows = [pq.read_table(store.path(split, f"{part}.parquet"))["row"].to_numpy() for part in parts]
    return FileRows(paths, np.concatenate(rows))


PARTS = ("train", "validation")


@dataclass(frozen=True)
class Prepared:
    """What `prepare_job` read."""

    transformation: Transformation
    architecture: dict[str, Any]  # what it takes to build the model and read its weights; part of `model.json`
    inputs: dict[str, str]  # Arrow type by name of every feature column


def prepare_job(store: ArtifactStore, split: str, transformation: str, spec: TrainSpec, directory: Path) -> Prepared:
    """Write `job.json` and the arrays of both parts into `directory`; the parts of a refit are one, `train`.

    Of a training with several shards, each shard is a folder of its part, `train/0` and so on.

    With `data.train_fraction` below 1 an evenly spaced part of the train rows is used. `transformation` is the
    reference of one that was fitted on the whole train part.
    """
    if spec.stopping.refit:
        parts = {"train": read_part(store, split, *PARTS)}
    else:
        parts = {part: read_part(store, split, part) for part in PARTS}
    train_rows = parts["train"].num_rows
    if spec.data.train_fraction < 1.0:
        parts["train"] = parts["train"].thinned(spec.data.train_fraction)
    details = store.manifest(divided_set(store, split)).details
    if (declared := details.get("task", "")) and declared != task_of(spec).name:
        losses = ", ".join(TASKS[declared].losses)
        raise ConfigurationError(
            f"training.loss.kind: the label is of the task {declared}, which is trained with {losses}; found "
            f"{spec.loss.kind}. Correct it, or the LabelView's task."
        )
    targets = targets_of(parts, details["label"], spec.loss, details.get("group", ""))
    if isinstance(spec, NetworkTraining) and spec.data.batch_size > train_rows:
        raise ConfigurationError(
            f"training.data.batch_size: expected at most the {train_rows:,} rows of the part train, found "
            f"{spec.data.batch_size:,}. Lower it, so that an epoch has several steps."
        )
    fitted = read_transformation(store, split, transformation)
    architecture = {
        "model": spec.model.model_dump(mode="json"),
        "loss": spec.loss.kind,
        "width": fitted.width,
        "cardinalities": [column.cardinality for column in fitted.categorical],
        "outputs": outputs_of(targets["train"].labels, spec.loss),
    }
    shards = shard_count(spec)
    for name, part in parts.items():
        _write(directory / name, part, fitted, targets[name], shards)
    # Without the timeout: with a longer one, a run resumes from the checkpoints of the same job.
    settings = spec.model_dump(mode="json", exclude={"operation": {"timeout_minutes"}})
    job = {"spec": settings, "architecture": architecture, "hidden": hidden_columns()}
    (directory / JOB).write_text(json.dumps(job, sort_keys=True))
    schema = parts["train"].schema
    inputs = {column.name: str(schema.field(column.name).type) for column in fitted.columns}
    return Prepared(fitted, architecture, inputs)


@dataclass(frozen=True)
class Targets:
    """The targets of one part's rows, arrays of shape (rows,)."""

    labels: npt.NDArray[np.float32]  # for several classes their numbers from 0
    weights: npt.NDArray[np.float32] | None  # None where every row weighs 1
    groups: npt.NDArray[np.int64] | None  # numbered in order of first appearance; None where the loss has none


def _write(folder: Path, part: FileRows, fitted: Transformation, targets: Targets, shards: int) -> None:
    """Write the arrays of one part, features one batch of rows at a time; rows of a group stand together.

    A divided part is written shard by shard; of validation rows, every process needs all labels, weights and groups.
    """
    folder.mkdir(exist_ok=True)
    order = None if targets.groups is None else np.argsort(targets.groups, kind="stable")
    division, folders, lengths = None, [folder], [part.num_rows]
    if shards > 1:
        sizes = None if targets.groups is None else np.unique(targets.groups, return_counts=True)[1]
        if folder.name == "train":
            units = part.num_rows if sizes is None else len(sizes)
            if units < shards:
                raise ConfigurationError(
                    f"training.parallelism: expected at most as many processes with rows of their own as the {units} "
                    f"{'rows' if sizes is None else 'groups'} of the part train, found {shards}. Take fewer processes."
                )
            np.save(folder / SIZES, np.array([units]) if sizes is None else sizes)
            division = Division.of_train(part.num_rows, sizes, shards)
        else:
            division = Division.of_validation(part.num_rows, shards)
        folders, lengths = [folder / str(shard) for shard in range(shards)], division.lengths
        for path in folders:
            path.mkdir(exist_ok=True)
    for name in ("labels", "weights", "groups"):
        if (array := getattr(targets, name)) is not None:
            ordered = array if order is None else array[order]
            if division is None or folder.name != "train":
                np.save(folder / f"{name}.npy", ordered)
                continue
            for shard, path in enumerate(folders):
                np.save(path / f"{name}.npy", ordered[division.shards == shard])
    place = None if order is None else np.argsort(order)
    kinds: tuple[tuple[str, type, int], ...]
    kinds = ("numbers.npy", np.float32, fitted.width), ("ids.npy", np.int64, len(fitted.categorical))
    for path, length in zip(folders, lengths, strict=True):
        for name, kind, width in kinds:
            np.lib.format.open_memmap(path / name, "w+", np.dtype(kind), (length, width))
            # Allocate the blocks now: later, a full disk would kill a process that maps it.
            with (path / name).open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, (path / name).stat().st_size)
    for rows, table in part.batches([column.name for column in fitted.columns]):
        to = rows if place is None else place[rows]
        arrays: tuple[npt.NDArray[Any], ...] = fitted.apply(table)
        shard_of = np.zeros(1, np.uint16) if division is None else division.shards[to]
        for shard in np.unique(shard_of):
            own = slice(None) if division is None else shard_of == shard
            at = to if division is None else division.places[to[own]]
            for (name, *_), values in zip(kinds, arrays, strict=True):
                # Mapped anew for each batch: written pages then do not count as this process's memory.
                np.load(folders[shard] / name, mmap_mode="r+")[at] = values[own]


def targets_of(tables: Mapping[str, Columns], label: str, spec: LossSpec, group: str = "") -> dict[str, Targets]:
    """The targets of every part. Class weights apply to the part `train` alone: validation measures without them."""
    group = (spec.group or group) if isinstance(spec, PairwiseLoss) else ""
    if isinstance(spec, PairwiseLoss) and not group:
        raise FeatureError(
            "training.loss.group: expected the column of groups for the loss pairwise, in it or in the LabelView, "
            "found none."
        )
    task, name = task_of_loss(spec.kind), spec.sample_weight
    labels: dict[str, npt.NDArray[np.float64]] = {}
    weights: dict[str, npt.NDArray[np.float64] | None] = {}
    for part, table in tables.items():
        if nulls := _column(table, label, "Label").null_count:
            raise FeatureError(f"Label {label}: {nulls} of {table.num_rows} rows are null; expected {task.label}.")
        labels[part] = _numbers(table, label, "Label")
        wrong = int((~(np.isfinite(labels[part].astype(np.float32)) & task.is_label(labels[part]))).sum())
        if wrong:
            raise FeatureError(f"Label {label}: {wrong} of {table.num_rows} rows are not {task.label}.")
        weights[part] = values = _numbers(table, name, "Sample weight") if name else None
        if values is not None and not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
            raise FeatureError(f"Sample weight {name} of part {part}: expected finite numbers from 0 up, not all 0.")
        if lacking := task.lacks(labels[part]):
            raise FeatureError(f"Part {part} of the split has {lacking}. Move its boundaries, or give more data.")
    if task.output == "probabilities" and "validation" in labels:
        unknown = sorted(set(np.unique(labels["validation"])) - set(np.unique(labels["train"])))
        if unknown:
            shown = ", ".join(f"{value:g}" for value in unknown[:5])
            raise FeatureError(f"Part validation of the split has labels that part train has not: {shown}.")
    if isinstance(spec, BinaryLoss | MulticlassLoss) and spec.class_weights:
        numbers = labels["train"].astype(np.int64)
        classes = max(outputs_of(numbers, spec), 2)
        if spec.class_weights == "balanced":
            counts = np.bincount(numbers, minlength=classes)
            by_class = np.asarray(len(numbers) / (classes * np.maximum(counts, 1)))
        elif len(spec.class_weights) == classes:
            by_class = np.array(spec.class_weights, dtype=np.float64)
        else:
            raise FeatureError(
                f"training.loss.class_weights has {len(spec.class_weights)} numbers; expected {classes}, one a class."
            )
        before = weights["train"]
        weights["train"] = by_class[numbers] if before is None else before * by_class[numbers]
    targets = {}
    for part, table in tables.items():
        groups = group_numbers(_column(table, group, "Group"), f"Group {group} of part {part}") if group else None
        weight = weights[part]
        single = None if weight is None else weight.astype(np.float32)
        targets[part] = Targets(labels[part].astype(np.float32), single, groups)
    return targets


def outputs_of(labels: Any, spec: LossSpec) -> int:
    """Logits of a row: one per class of the train part for several classes, else one."""
    return int(labels.max()) + 1 if task_of_loss(spec.kind).output == "probabilities" else 1


def _column(table: Columns, name: str, role: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise FeatureError(f"{role} {name} is no column of the training set; it has {', '.join(table.column_names)}.")
    return table[name]


def _numbers(table: Columns, name: str, role: str) -> npt.NDArray[np.float64]:
    column = _column(table, name, role)
    try:
        values: npt.NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise FeatureError(f"{role} {name}: expected numbers, found {column.type}.") from None
    return values
