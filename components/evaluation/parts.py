"""Reads one part of a split, and refuses parts on which a model can be neither fitted nor measured."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import GatehouseError


class UnusablePartError(GatehouseError):
    """A part of a split has no rows, one class only, labels that are not 0 or 1, or is of another training set."""


@dataclass(frozen=True)
class Part:
    """Rows of a training set.

    Attributes:
        rows: Their numbers in the training set, int64, shape (rows,).
        table: All their columns, in the same order.
        labels: 0 or 1, int8, shape (rows,).
    """

    rows: npt.NDArray[np.int64]
    table: pa.Table
    labels: npt.NDArray[np.int8]


def read_part(store: ArtifactStore, training_set: str, split: str, name: str) -> Part:
    """Read the part `name` (`train`, `validation` or `test`).

    Raises:
        UnusablePartError: if no model can be judged on it.
    """
    reference = Reference.parse(training_set)
    divided = store.manifest(split).derived_from.get("training_set", "")
    if divided != str(reference):
        raise UnusablePartError(
            f"{split} divides {divided or 'nothing'}, expected {reference}. Split that training set."
        )
    rows = pq.read_table(store.path(split, f"{name}.parquet"))["row"].to_numpy()
    whole = pq.ParquetDataset(store.paths(reference)).read()
    outside = int(((rows < 0) | (rows >= whole.num_rows)).sum())
    if outside or len(rows) == 0:
        raise UnusablePartError(
            f"{split}: {name} has {len(rows)} rows, {outside} of them beyond the {whole.num_rows} rows of {reference}; "
            "expected at least one row and none beyond. Correct the boundaries in `split`."
        )
    table = whole.take(pa.array(rows)).combine_chunks()
    return Part(rows, table, _labels(table, store.manifest(reference).details["label"], f"{split}: {name}"))


def _labels(table: pa.Table, column: str, where: str) -> npt.NDArray[np.int8]:
    found = table[column].value_counts().to_pylist()
    counts: dict[Any, int] = {entry["values"]: entry["counts"] for entry in found}
    if set(counts) != {0, 1}:
        listed = ", ".join(f"{value} in {count} rows" for value, count in sorted(counts.items(), key=str))
        raise UnusablePartError(
            f"{where}: label {column}: expected both 0 and 1 and nothing else, found {listed}. "
            "A model cannot be judged on one class: correct the boundaries in `split`, or the label."
        )
    return np.asarray(table[column].to_numpy().astype(np.int8))
