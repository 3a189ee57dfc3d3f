"""Tables of data files, as Delta and Iceberg have them: files in the order of the log, large ones cut into runs."""

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from gatehouse.data.snapshot.spec import SourceBase, TableSpec
from gatehouse.data.sources.base import EarlierPart, Opened, Part, Raw
from gatehouse.store.canonical import digest_of

if TYPE_CHECKING:
    import pyarrow as pa


class LakehouseTable(TableSpec):
    """A table of data files. Its rows stand in the order in which the files came into it, then of the rows in each."""

    @model_validator(mode="after")
    def _keeps_its_order(self) -> "LakehouseTable":
        if self.order_by and not self.sort_on_ingest:
            raise ValueError("order_by: rows stand in the order of the table's files; to have another, sort_on_ingest")
        return self


@dataclass(frozen=True)
class DataFile:
    """One immutable file of a table, with a digest of what the log says of it, and its rows if the log counts them."""

    name: str
    identity: str
    columns: Mapping[str, str]
    rows: int | None
    read: Callable[[], "Iterator[pa.Table]"]


class LakehouseSource(SourceBase):
    """Tables of data files."""

    rows_per_part: int = Field(131_072, ge=1, description="Larger data files are cut into parts of this many rows.")


class LakehouseReader(Opened):
    """Tables of data files, each at the version that the first look found."""

    def __init__(self, spec: LakehouseSource, tables: Mapping[str, LakehouseTable]) -> None:
        self._source, self._tables = spec, tables
        self._opened: dict[str, Any] = {}

    def close(self) -> None:
        """Forget the tables."""
        self._opened.clear()

    def state(self) -> Mapping[str, Any]:
        """By table: its id, its version, and its declaration."""
        return {name: self._identify(name) for name in self._tables}

    def _identify(self, table: str, *, version: bool = True) -> dict[str, Any]:
        declared = {"columns": dict(self._tables[table].columns), "time_zone": self._source.time_zone}
        state = self._version(table)
        return declared | (state if version else dict.fromkeys(state) | {"table": state["table"]})

    def _version(self, table: str) -> dict[str, Any]:
        """The table's id as `table`, and its version."""
        raise NotImplementedError

    def _files(self, table: str) -> Iterator[DataFile]:
        """The data files of a table, in the order in which they came into it."""
        raise NotImplementedError

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...] = ()) -> Iterator[Part]:
        """Runs of `rows_per_part` rows of each data file; of a table that is sorted on ingest, runs of the sorted rows.

        A file whose parts are all known is not read. A file whose rows the log does not count is one part.
        """
        fingerprints, size = {part.fingerprint for part in earlier_parts}, self._source.rows_per_part
        parts = (part for file in self._files(table) for part in self._file_parts(file, table, fingerprints))
        if not self._tables[table].sort_on_ingest:
            yield from parts
            return
        from gatehouse.data.sources.row_runs import sorted_parts

        with tempfile.TemporaryDirectory(prefix="gatehouse-sort-") as directory:
            yield from sorted_parts(parts, self._tables[table], Path(directory), size)

    def _file_parts(self, file: DataFile, table: str, earlier_fingerprints: set[str]) -> Iterator[Part]:
        size, rows = self._source.rows_per_part, file.rows or 0
        starts = range(0, max(rows, 1), size)
        fingerprints = [
            digest_of([file.identity, start, start + size if start + size < rows else None]) for start in starts
        ]
        runs = itertools.repeat(None) if earlier_fingerprints.issuperset(fingerprints) else _runs(file, size)
        for start, fingerprint, run in zip(starts, fingerprints, runs, strict=False):
            yield Part(fingerprint, partial(self._typed, file, table, start, run))

    def _typed(self, file: DataFile, table: str, start: int, run: "list[pa.Table] | None") -> Raw:
        from gatehouse.data.sources.declared import declare

        def place(_piece: "pa.Table", _row: int, number: int) -> str:
            return f"row {start + number} of {file.name}"

        size = self._source.rows_per_part
        pieces = next(itertools.islice(_runs(file, size), start // size, None)) if run is None else run
        raw = declare(pieces, self._tables[table], name=table, place=place, time_zone=self._source.time_zone)
        return replace(raw, columns=file.columns)


def _runs(file: DataFile, size: int) -> "Iterator[list[pa.Table]]":
    """The file's rows in runs, then empty ones."""
    from gatehouse.data.sources.row_runs import runs_in_pieces

    yield from ([list(file.read())] if file.rows is None else runs_in_pieces(file.read(), size))
    yield from itertools.repeat([])


def one_line(error: Exception) -> str:
    """The text of an error without line ends."""
    return " ".join(str(error).split())
