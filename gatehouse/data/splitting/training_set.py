"""Reads a training set column by column, so that a split's memory grows with its rows and not with its columns.

Rows are hashed in pieces, each of some files: hashes are most of a split, and the only part that reads all columns.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.data.splitting.stable_hash import Flags, Hashes, row_hashes
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import declared_task
from gatehouse.pieces.piece import KIND, ROWS, batches, piece, run_pieces
from gatehouse.store.manifest import Manifest
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_AT_ONCE, _HASHES, _MISSING = 1 << 18, "hashes.npy", "missing.npy"

Times = npt.NDArray[np.datetime64]
Labels = npt.NDArray[np.float64]
"""As the task has them, NaN where there is none; shape (rows,)."""


class TrainingSet:
    """The columns of a training set's files, and what its manifest says of them.

    With a store, many rows are hashed in pieces.
    """

    def __init__(self, manifest: Manifest, paths: Sequence[Path], store: ArtifactStore | None = None) -> None:
        self.manifest, self._store = manifest, store
        details = manifest.details
        self.numeric = tuple(details.get("numeric", ()))
        self.categorical = tuple(details.get("categorical", ()))
        self.schema = pq.read_schema(paths[0]) if paths else pa.schema([])
        # A category that is read as a dictionary is hashed once, not in every row.
        texts = [
            name for name in self.categorical if self.has(name) and pa.types.is_string(self.schema.field(name).type)
        ]
        self._files = [pq.ParquetFile(path, read_dictionary=texts) for path in paths]
        self.rows = sum(file.metadata.num_rows for file in self._files)
        self.entity_keys = tuple(details.get("entity_keys", ()))
        self.label = str(details.get("label", "label"))
        self.task = declared_task(details)
        self.decision_time = str(details.get("decision_time") or "decision_time")
        self.label_time = str(details.get("label_time") or "label_time")

    @classmethod
    def open(cls, store: ArtifactStore, reference: str) -> "TrainingSet":
        """Open the training set of a reference."""
        return cls(store.manifest(reference), store.paths(reference), store)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return (*self.numeric, *self.categorical)

    def has(self, column: str) -> bool:
        """Whether there is such a column."""
        return column in self.schema.names

    def require(self, columns: Iterable[str]) -> None:
        """Check that there are such columns. Raises ConfigurationError naming all that are missing."""
        missing = [name for name in dict.fromkeys(columns) if not self.has(name)]
        if missing:
            raise ConfigurationError(
                f"The training set {self.manifest.reference} has no column {', '.join(missing)}, which its split reads;"
                f" it has: {', '.join(self.schema.names) or 'none'}."
            )

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of one column, shape (rows,)."""
        chunks = [chunk for file in self._files for chunk in file.read(columns=[name])[name].chunks]
        return pa.chunked_array(chunks, type=chunks[0].type if chunks else self.schema.field(name).type)

    def batches(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Several columns, shape (some,) each: some hundred thousand rows at a time."""
        for file in self._files:
            for batch in file.iter_batches(_AT_ONCE, columns=list(columns)):
                yield [batch.column(name) for name in columns]

    def hashes(self, columns: Sequence[str], start: int) -> tuple[Hashes, Flags]:
        """Hash of every row's values in these columns, and whether one of them is missing; shape (rows,).

        Without columns it is the hash of the whole row, in which a null is a value like any other.
        Raises ConfigurationError if there is no such column, or its type cannot be hashed.
        """
        self.require(columns)
        files = batches(self.manifest.files, [entry.rows or 0 for entry in self.manifest.files], ROWS)
        if self._store is not None and len(files) > 1:
            of = {"training_set": str(self.manifest.reference), "columns": tuple(columns), "start": f"{start:x}"}
            requests = [HashesRequest(**of, files=tuple(entry.path for entry in batch)) for batch in files]
            results = run_pieces(self._store, [(hash_rows, request) for request in requests])
            parts = [self._store.paths_of([result.hashes for result in results], name) for name in (_HASHES, _MISSING)]
            hashes, missing = (np.concatenate([np.load(path, mmap_mode="r") for path in paths]) for paths in parts)
            return hashes, missing
        try:
            hashes, missing = row_hashes(self.batches(columns or self.schema.names), start, self.rows)
            return hashes, missing & bool(columns)
        except TypeError as error:
            raise ConfigurationError(f"The training set cannot be divided by {', '.join(columns)}: {error}.") from error

    def times(self, name: str) -> Times:
        """A column of times as datetime64[us] in UTC, shape (rows,), NaT where null; a time without a zone is in UTC.

        Raises ConfigurationError if the column is not one of times.
        """
        kind = self.schema.field(name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise ConfigurationError(
                f"The training set's column {name} is {kind}: expected a timestamp. Correct the entity rows."
            )
        plain = pc.cast(self.column(name), pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        ticks = pc.fill_null(pc.cast(plain, pa.int64()), np.iinfo(np.int64).min).to_numpy()
        times: Times = ticks.view("datetime64[us]")
        return times

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column as numbers, shape (rows,), NaN where null: truth values are 0 and 1, times microseconds in UTC."""
        column = self.column(name)
        kind = column.type
        if pa.types.is_temporal(kind):
            column = pc.cast(pc.cast(column, pa.timestamp("us", getattr(kind, "tz", None)), safe=False), pa.int64())
        elif pa.types.is_boolean(kind):
            column = pc.cast(column, pa.int8())
        return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)

    def labels(self) -> Labels:
        """The labels, shape (rows,); NaN where there is none or one that the task does not have."""
        self.require([self.label])
        values = self.numbers(self.label)
        return np.where(self.task.is_label(values), values, np.nan)


class HashesRequest(StageModel):
    """Files of a training set, and the arguments of `TrainingSet.hashes`; `start` is hexadecimal."""

    training_set: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    start: str


class HashesResult(StageModel):
    """The artifact with the hash of each row, and whether one of its values is missing."""

    hashes: str


@piece
def hash_rows(request: HashesRequest, store: ArtifactStore) -> HashesResult:
    """Hash the rows of files. Raises as `TrainingSet.hashes`."""
    manifest, files = store.manifest(request.training_set), {}
    part = TrainingSet(manifest, store.paths(request.training_set, request.files))
    for name, values in zip((_HASHES, _MISSING), part.hashes(request.columns, int(request.start, 16)), strict=True):
        np.save(sink := io.BytesIO(), values, allow_pickle=False)
        files[name] = sink.getvalue()
    inputs = {"training_set": request.training_set}
    return HashesResult(hashes=str(store.publish(KIND, "hashes", files, derived_from=inputs)))
