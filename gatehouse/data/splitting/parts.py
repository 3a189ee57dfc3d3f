"""Reads one part of a split by columns, and refuses parts on which a model can be neither fitted nor measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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

AT_ONCE = 1 << 16
Rows = npt.NDArray[np.int64]


class UnusablePartError(GatehouseError):
    """A part of a split has no rows, labels that a task cannot be judged on, or is of another training set."""

    permanent = True


class FileRows:
    """Rows of a training set's files by their numbers, in any order; a column is read when it is asked for."""

    def __init__(self, paths: Sequence[Path], rows: Rows) -> None:
        """Read the rows with these numbers."""
        self._paths, self._rows = paths, rows
        self.schema: pa.Schema = pq.read_schema(paths[0])

    @property
    def column_names(self) -> list[str]:
        """All columns of the training set."""
        return list(self.schema.names)

    @property
    def num_rows(self) -> int:
        """Number of the rows."""
        return len(self._rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """One column."""
        chunks = [chunk for _, table in self.batches([name]) for chunk in table[name].chunks]
        column = pa.chunked_array(chunks, self.schema.field(name).type)
        if _ascending(self._rows):
            return column
        order = np.argsort(self._rows, kind="stable")  # The order in which `batches` gives the rows.
        return column.take(pa.array(np.argsort(order)))

    def thinned(self, share: float) -> "FileRows":
        """An evenly spaced share of the rows; one at least."""
        count = max(1, round(self.num_rows * share))
        return FileRows(self._paths, self._rows[np.linspace(0, self.num_rows - 1, count).astype(np.int64)])

    def take(self, places: npt.ArrayLike) -> "FileRows":
        """The rows at these places among them, shape (some,)."""
        return FileRows(self._paths, self._rows[np.asarray(places)])

    def read(self) -> pa.Table:
        """All columns."""
        return pa.table({name: self[name] for name in self.column_names})

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[Rows, pa.Table]]:
        """Every row once, as the files hold them: places among these rows, shape (some,), and their columns."""
        order = None if _ascending(self._rows) else np.argsort(self._rows, kind="stable")
        ascending = self._rows if order is None else self._rows[order]
        types = pa.schema([pa.field(name, self.schema.field(name).type) for name in columns])
        start = 0  # Number of the first row of a batch, or of a row group; groups of other parts are passed over.
        for path in self._paths:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    end = start + file.metadata.row_group(group).num_rows
                    if not np.diff(np.searchsorted(ascending, (start, end))):
                        start = end
                        continue
                    for batch in file.iter_batches(AT_ONCE, row_groups=[group], columns=list(columns)):
                        first, last = np.searchsorted(ascending, (start, start + batch.num_rows))
                        if first < last:
                            places = np.arange(first, last) if order is None else order[first:last]
                            table = pa.Table.from_batches([batch]).select(columns).cast(types)
                            yield places, table.take(pa.array(ascending[first:last] - start))
                        start += batch.num_rows
        if len(ascending) and not 0 <= ascending[0] <= ascending[-1] < start:
            rows = f"{ascending[0]} to {ascending[-1]}"
            raise UnusablePartError(f"The split has the rows {rows} of a training set of {start} rows. Split it again.")


def files_with(store: ArtifactStore, table: str, first: int, last: int) -> tuple[list[Path], int]:
    """The files of a table that hold the rows `first` to `last`, and how many rows come before these files."""
    paths, before, start = list[Path](), 0, 0
    for entry in store.manifest(table).files:
        rows = entry.rows
        if rows is None:
            rows = pq.read_metadata(store.path(table, entry.path)).num_rows
        if start <= last and first < start + rows:
            paths.append(store.path(table, entry.path))
        start += rows
        before = before if paths else start
    return paths, before


def _ascending(numbers: Rows) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


@dataclass(frozen=True)
class Part:
    """Rows of a training set: their numbers in it, their columns, and the labels as the task has them.

    `groups` has the number of each row's group in order of appearance; `classes` the names of classes by number, if
    any.
    """

    rows: Rows
    columns: pa.Table | FileRows
    labels: npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()

    @property
    def table(self) -> pa.Table:
        """All columns, read now: for few rows."""
        return self.columns if isinstance(self.columns, pa.Table) else self.columns.read()

    def scored(
        self, score: Callable[[pa.Table], npt.NDArray[np.float64]], columns: Sequence[str]
    ) -> npt.NDArray[np.float64]:
        """What `score` gives for each row, by these columns alone, shape (rows,) or (rows, outputs).

        It is called with some rows at a time, and must give a row the same numbers among any others.
        """
        if isinstance(self.columns, pa.Table):
            return score(self.columns)
        names = self.columns.column_names
        read = [name for name in columns if name in names] or names[:1]  # Of a column that is missing, `score` tells.
        scores: npt.NDArray[np.float64] | None = None
        for places, table in self.columns.batches(read):
            values = score(table)
            if scores is None:
                scores = np.empty((len(self.rows), *values.shape[1:]), values.dtype)
            scores[places] = values
        return np.empty(0) if scores is None else scores

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
        return Part(self.rows[places], self.columns.take(pa.array(places)), self.labels[places], groups, self.classes)


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
    """Read the part `name` (`train`, `validation` or `test`), followed by `more`; only labels and groups are read now.

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
    columns, details = FileRows(paths, rows), store.manifest(reference).details
    labels: npt.NDArray[np.float64] = pc.cast(columns[details["label"]], pa.float64()).to_numpy()
    wrong = int((~task.is_label(labels)).sum())
    if lacking := f"{wrong} rows that are not {task.label}" if wrong else task.lacks(labels):
        raise UnusablePartError(
            f"{where}: label {details['label']}: found {lacking}. A model cannot be judged on that: correct the "
            "boundaries in `split`, or the label."
        )
    groups = group_numbers(columns[details["group"]], where) if details.get("group") else None
    return Part(rows, columns, labels, groups, tuple(details.get("classes", ())))


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
