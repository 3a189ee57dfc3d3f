"""Logs of predictions: rows, features and predictions of a model, joined with labels as they become known."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TASKS
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from gatehouse.store.manifest import Manifest

TABLE = "predictions"
"""Name of the log's table in a snapshot."""
_SAID = ("model", "model_version", "positive", "class")
_PLACE = "__place"


@dataclass(frozen=True)
class Log:
    """A log of predictions.

    Attributes:
        table: Keys, decision time, the prediction, and the features if they were logged.
        others: Number of rows predicted by other models; they are not in the table.
        repeated: Number of rows with keys and time of an earlier row; they are not in the table.
    """

    table: "pa.Table"
    others: int
    repeated: int


def read_log(store: ArtifactStore, reference: str, model: str, task: str, keys: list[str]) -> Log:
    """Read a log: predictions of batch scoring, or a snapshot with a table named `predictions`.

    Args:
        store: The artifact store.
        reference: Reference of the log.
        model: The champion; rows that name another model are left out.
        task: Name of the task.
        keys: Names of the columns that identify a row, including the decision time.

    Raises:
        ConfigurationError: if the log lacks a key or the prediction.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    manifest = store.manifest(reference)
    table = pq.ParquetDataset(_paths(store, manifest)).read()
    wanted = [*keys, TASKS[task].output]
    if lacking := [name for name in wanted if name not in table.column_names]:
        raise ConfigurationError(
            f"{reference}: expected a log with the columns {', '.join(wanted)}, found no {', '.join(lacking)}."
        )
    rows = table.num_rows
    if "model" in table.column_names:
        table = table.filter(pc.equal(table["model"], model))
    table = table.drop_columns([name for name in _SAID if name in table.column_names])
    own = table.num_rows
    if scored := manifest.derived_from.get("rows"):
        features = pq.ParquetDataset(store.paths(scored)).read()
        features = features.select([name for name in features.column_names if name not in wanted or name in keys])
        table = _joined(table, features, keys)
    table = _firsts(table, keys)
    return Log(table, rows - own, own - table.num_rows)


def with_labels(log: "pa.Table", labelled: "pa.Table", keys: list[str]) -> "pa.Table":
    """The log with each row's label and the other columns of `labelled`; null where the label is not known yet.

    Args:
        log: Rows of a log.
        labelled: Keys and label, one row for each decision whose outcome is known.
        keys: Names of the columns that identify a row.
    """
    return _joined(log, labelled, keys)


def predicted(log: "pa.Table", task: str) -> "npt.NDArray[np.float64]":
    """The predictions, shape (rows,), or (rows, classes) with several classes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    column = log[TASKS[task].output].combine_chunks()
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type):
        flat = np.asarray(pc.cast(pc.list_flatten(column), pa.float64()).to_numpy(zero_copy_only=False))
        return flat.reshape(log.num_rows, -1)
    found: npt.NDArray[np.float64] = np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))
    return found


def _paths(store: ArtifactStore, manifest: "Manifest") -> "list[Path]":
    """The files of a log: all of them, or those of one table of a snapshot."""
    tables = manifest.derived_from
    if manifest.reference.kind in ("predictions", "prediction-logs"):
        return store.paths(manifest.reference)
    if TABLE not in tables:
        raise ConfigurationError(
            f"{manifest.reference}: expected a log of predictions, or a snapshot with a table named {TABLE}, found "
            f"{', '.join(tables) or 'no table'}."
        )
    return store.paths(tables[TABLE])


def _firsts(table: "pa.Table", keys: list[str]) -> "pa.Table":
    """The first row of each key, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    placed = table.select(keys).append_column(_PLACE, pa.array(range(table.num_rows)))
    first = placed.group_by(keys).aggregate([(_PLACE, "min")])[f"{_PLACE}_min"]
    return table.take(first.take(pc.sort_indices(first)))


def _joined(left: "pa.Table", right: "pa.Table", keys: list[str]) -> "pa.Table":
    """Left join in the order of the left rows; keys of the right side take the types of the left."""
    import pyarrow as pa

    right = _firsts(right, keys)
    named = right.select(keys).cast(left.select(keys).schema)
    places = [
        each.append_column(_PLACE + side, pa.array(range(each.num_rows)))
        for each, side in ((left.select(keys), "left"), (named, "right"))
    ]
    found = places[0].join(places[1], keys=keys, join_type="left outer").sort_by(_PLACE + "left")
    taken = right.take(found[_PLACE + "right"])
    for name in right.column_names:
        if name not in keys:
            left = left.append_column(name, taken[name])
    return left
