"""Turns a training set and a split into the files that the training program reads."""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.launcher import JOB
from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.targets import outputs_of, targets_of
from gatehouse.components.training.transformation import FeatureError, Transformation

logger = logging.getLogger(__name__)

PARTS = ("train", "validation")


@dataclass(frozen=True)
class Prepared:
    """What `prepare_job` fitted and found.

    Attributes:
        transformation: Fitted on the train part.
        architecture: What `model.json` says about the module.
        inputs: Arrow type by name of every feature column.
    """

    transformation: Transformation
    architecture: dict[str, Any]
    inputs: dict[str, str]


@contextmanager
def job_directory(store: ArtifactStore, name: str) -> Iterator[Path]:
    """The directory of one job, for one process at a time; removed at the end, and kept where an error ends the job.

    Another process that wants the same job waits. A process that is killed gives the directory free as it stands.
    """
    while True:
        directory = store.scratch(name)
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.info("Another process trains the same model: waiting for it to end.")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_at(descriptor, directory):
                continue  # The process that we waited for has finished and removed it.
            yield directory
            shutil.rmtree(directory)
            return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def read_part(store: ArtifactStore, training_set: str, split: str, part: str) -> pa.Table:
    """The rows of one part of a split (`train`, `validation` or `test`), in order, with all columns.

    Raises:
        FeatureError: if the split divides another training set.
    """
    return _read_parts(store, training_set, split, (part,))[part]


def _read_parts(store: ArtifactStore, training_set: str, split: str, parts: tuple[str, ...]) -> dict[str, pa.Table]:
    divided = store.manifest(split).derived_from.get("training_set", "")
    if divided != str(Reference.parse(training_set)):
        raise FeatureError(f"{split} divides {divided or 'nothing'}, expected {training_set}. Split that training set.")
    table = pq.ParquetDataset(store.paths(training_set)).read()
    rows = {part: pq.read_table(store.path(split, f"{part}.parquet"))["row"] for part in parts}
    return {part: table.take(rows[part]).combine_chunks() for part in parts}


def prepare_job(store: ArtifactStore, training_set: str, split: str, spec: TrainSpec, directory: Path) -> Prepared:
    """Write `job.json` and the arrays of both parts into `directory`.

    The transformation is fitted on the train part only. With `train_fraction` below 1 an evenly spaced part of the
    train rows is used.

    Raises:
        FeatureError: if a part has too few rows, or a feature, a label, a weight or a group cannot be used.
    """
    manifest = store.manifest(training_set)
    tables = _read_parts(store, training_set, split, PARTS)
    if spec.train_fraction < 1.0:
        count = max(1, round(len(tables["train"]) * spec.train_fraction))
        chosen = np.linspace(0, len(tables["train"]) - 1, count).astype(np.int64)
        tables["train"] = tables["train"].take(pa.array(chosen))
    targets = targets_of(tables, manifest.details["label"], spec)
    transformation = Transformation.fit(tables["train"], manifest.details["numeric"], manifest.details["categorical"])
    architecture = {
        "spec": spec.model_dump(mode="json"),
        "width": transformation.width,
        "cardinalities": [column.cardinality for column in transformation.categorical],
        "outputs": outputs_of(targets["train"].labels, spec),
    }
    for part, table in tables.items():
        folder = directory / part
        folder.mkdir(exist_ok=True)
        order = targets[part].order()
        numbers, ids = transformation.apply(table)
        np.save(folder / "numbers.npy", numbers if order is None else numbers[order])
        np.save(folder / "ids.npy", ids if order is None else ids[order])
        targets[part].write(folder, order)
    job = {"spec": spec.model_dump(mode="json"), "architecture": architecture}
    (directory / JOB).write_text(json.dumps(job, sort_keys=True))
    schema = tables["train"].schema
    inputs = {column.name: str(schema.field(column.name).type) for column in transformation.columns}
    return Prepared(transformation, architecture, inputs)
