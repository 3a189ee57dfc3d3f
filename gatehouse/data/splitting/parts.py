"""Reads one part of a split, and refuses parts on which a model can be neither fitted nor measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.errors import GatehouseError
from gatehouse.metrics.tasks import Task, declared_task
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_AT_ONCE = 1 << 16


class UnusablePartError(GatehouseError):
    """A part of a split has no rows, labels that a task cannot be judged on, or is of another training set."""

    permanent = True


@dataclass(frozen=True)
class Part:
    """Rows of a training set: their numbers in it, all their columns, and the labels as the task has them.

    `groups` has the number of each row's group in order of appearance; `classes` the names of classes by number, if
    any.
    """

    rows: npt.NDArray[np.int64]
    table: pa.Table
    labels: npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()

    def thinned(self, most: int) -> "Part":
        """About `most` evenly spaced rows, or whole groups of rows; all if there are no more."""
        step = -(-len(self.rows) // most)
        if step <= 1:
            return self
        numbers = np.arange(len(self.rows)) if self.groups is None else self.groups
        kept = np.flatnonzero(numbers % step == 0)
        return self.take(kept)

    def take(self, places: npt.NDArray[np.int64]) -> "Part":
        """The rows at these ascending places of the part, shape (some,); their groups are renumbered."""
        groups = None if self.groups is None else np.unique(self.groups[places], return_inverse=True)[1]
        return Part(self.rows[places], self.table.take(pa.array(places)), self.labels[places], groups, self.classes)


def class_names(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the classes by number, from the details of a training set; empty if they have none."""
    two = ("negative", "positive") if declared_task(details).output == "probability" else ()
    return tuple(details.get("classes") or two)


def divided_set(store: ArtifactStore, split: str) -> str:
    """Reference of the training set that a split divides. Raises UnusablePartError if it divides none."""
    if divided := store.manifest(split).derived_from.get("training_set", ""):
        return divided
    raise UnusablePartError(f"{split}: expected the split of a training set, found an artifact that divides nothing.")


def read_part(store: ArtifactStore, training_set: str, split: str, name: str, task: Task, *more: str) -> Part:
    """Read the part `name` (`train`, `validation` or `test`), followed by `more`; only these rows are in memory.

    Raises UnusablePartError if no model can be judged on it.
    """
    reference = Reference.parse(training_set)
    divided = store.manifest(split).derived_from.get("training_set", "")
    if divided != str(reference):
        raise UnusablePartError(
            f"{split} divides {divided or 'nothing'}, expected {reference}. Split that training set."
        )
    names = (name, *more)
    where = f"{split}: {' and '.join(names)}"
    rows = np.concatenate([pq.read_table(store.path(split, f"{part}.parquet"))["row"].to_numpy() for part in names])
    paths = store.paths(reference)
    total = sum(pq.read_metadata(path).num_rows for path in paths)
    outside = int(((rows < 0) | (rows >= total)).sum())
    if outside or len(rows) == 0:
        raise UnusablePartError(
            f"{where} has {len(rows)} rows, {outside} of them beyond the {total} rows of {reference}; "
            "expected at least one row and none beyond. Correct the boundaries in `split`."
        )
    table, details = _taken(paths, rows), store.manifest(reference).details
    labels: npt.NDArray[np.float64] = pc.cast(table[details["label"]], pa.float64()).to_numpy()
    wrong = int((~task.is_label(labels)).sum())
    if lacking := f"{wrong} rows that are not {task.label}" if wrong else task.lacks(labels):
        raise UnusablePartError(
            f"{where}: label {details['label']}: found {lacking}. A model cannot be judged on that: correct the "
            "boundaries in `split`, or the label."
        )
    groups = group_numbers(table[details["group"]], where) if details.get("group") else None
    return Part(rows, table, labels, groups, tuple(details.get("classes", ())))


def group_numbers(column: pa.ChunkedArray, where: str) -> npt.NDArray[np.int64]:
    """The number of each row's group by its value, in order of appearance, shape (rows,).

    Raises UnusablePartError if a value is missing, null or NaN: such rows would be ranked together.
    """
    if missing := pc.sum(pc.is_null(column, nan_is_null=True)).as_py():
        raise UnusablePartError(
            f"{where}: expected the group of each row, found {missing:,} rows without one, null or NaN. Remove these "
            "rows, or give each a group of its own."
        )
    indices = column.combine_chunks().dictionary_encode().indices
    return np.asarray(pc.cast(indices, pa.int64()).to_numpy(zero_copy_only=False))


def _taken(paths: Sequence[Path], rows: npt.NDArray[np.int64]) -> pa.Table:
    """Rows of Parquet files by their numbers, in that order; the files are read a batch at a time."""
    order = np.argsort(rows, kind="stable")
    ascending, start, tables = rows[order], 0, []
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_AT_ONCE):
                first, last = np.searchsorted(ascending, (start, start + batch.num_rows))
                tables.append(pa.Table.from_batches([batch]).take(pa.array(ascending[first:last] - start)))
                start += batch.num_rows
    table = pa.concat_tables(tables).combine_chunks()
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(np.argsort(order)))
