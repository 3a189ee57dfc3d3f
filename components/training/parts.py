"""Reads the rows of one part of a split."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.feature_columns import FeatureError


def read_part(
    store: ArtifactStore, training_set: str, split: str, part: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of one part of a split (`train`, `validation` or `test`), in order, with all columns or some.

    Raises:
        FeatureError: if the split divides another training set.
    """
    return read_parts(store, training_set, split, (part,), columns)[part]


def read_parts(
    store: ArtifactStore, training_set: str, split: str, parts: Sequence[str], columns: Sequence[str] | None = None
) -> dict[str, pa.Table]:
    """The rows of several parts; the training set is read once. Columns that it has not are left out.

    Raises:
        FeatureError: as `read_part`.
    """
    divided = store.manifest(split).derived_from.get("training_set", "")
    if divided != str(Reference.parse(training_set)):
        raise FeatureError(f"{split} divides {divided or 'nothing'}, expected {training_set}. Split that training set.")
    dataset = pq.ParquetDataset(store.paths(training_set))
    wanted = None if columns is None else [name for name in columns if name in dataset.schema.names]
    table = dataset.read(columns=wanted)
    rows = {part: pq.read_table(store.path(split, f"{part}.parquet"))["row"] for part in parts}
    return {part: table.take(rows[part]).combine_chunks() for part in parts}
