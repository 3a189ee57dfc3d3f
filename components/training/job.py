"""Turns a training set and a split into the files that the training program reads."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.transformation import FeatureError, Transformation


@dataclass(frozen=True)
class Prepared:
    """What `prepare_job` fitted: the transformation and the architecture of `model.json`."""

    transformation: Transformation
    architecture: dict[str, Any]


def read_part(store: ArtifactStore, training_set: str, split: str, part: str) -> pa.Table:
    """The rows of one part of a split (`train`, `validation` or `test`), in order, with all columns."""
    rows = pq.read_table(store.path(split, f"{part}.parquet"))["row"]
    return pq.ParquetDataset(store.paths(training_set)).read().take(rows).combine_chunks()


def prepare_job(store: ArtifactStore, training_set: str, split: str, spec: TrainSpec, directory: Path) -> Prepared:
    """Write `job.json` and the arrays of both parts into `directory`.

    The transformation is fitted on the train part only. With `train_fraction` below 1 an evenly spaced part of the
    train rows is used.

    Raises:
        FeatureError: if a feature cannot be used, or a label is neither 0 nor 1.
    """
    manifest = store.manifest(training_set)
    tables = {part: read_part(store, training_set, split, part) for part in ("train", "validation")}
    if spec.train_fraction < 1.0:
        count = max(1, round(len(tables["train"]) * spec.train_fraction))
        chosen = np.linspace(0, len(tables["train"]) - 1, count).astype(np.int64)
        tables["train"] = tables["train"].take(pa.array(chosen))
    transformation = Transformation.fit(tables["train"], manifest.details["numeric"], manifest.details["categorical"])
    architecture = {
        "spec": spec.model_dump(mode="json"),
        "width": transformation.width,
        "cardinalities": [column.cardinality for column in transformation.categorical],
    }
    for part, table in tables.items():
        folder = directory / part
        folder.mkdir(exist_ok=True)
        numbers, ids = transformation.apply(table)
        np.save(folder / "numbers.npy", numbers)
        np.save(folder / "ids.npy", ids)
        np.save(folder / "labels.npy", labels_of(table, manifest).astype(np.float32))
    job = {"spec": spec.model_dump(mode="json"), "architecture": architecture}
    (directory / "job.json").write_text(json.dumps(job, sort_keys=True))
    return Prepared(transformation, architecture)


def labels_of(table: pa.Table, manifest: Manifest) -> Any:
    """The labels of a training set's rows: int8, 0 or 1, shape (rows,).

    Raises:
        FeatureError: if a label is null or neither 0 nor 1.
    """
    name = manifest.details["label"]
    column = table[name]
    if column.null_count:
        raise FeatureError(f"Label {name}: {column.null_count} of {table.num_rows} rows are null; expected 0 or 1.")
    labels = column.to_numpy()
    wrong = int((~np.isin(labels, (0, 1))).sum())
    if wrong:
        raise FeatureError(f"Label {name}: {wrong} of {table.num_rows} rows are neither 0 nor 1.")
    return labels
