"""Parts of a lakehouse table: its data files in the order of its log, large ones cut into runs of rows."""

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from gatehouse.data.snapshot.spec import TableSpec
from gatehouse.data.sources.base import Part, Raw
from gatehouse.data.sources.declared import declare
from gatehouse.store.canonical import digest_of

_ROWS_SKIPPED = 65_536


@dataclass(frozen=True)
class DataFile:
    """One immutable file of a table.

    Attributes:
        name: Its path within the table.
        identity: What the table's log says of it, as a digest.
        columns: Name and type of the table's columns.
        rows: How many rows it has at most, by the log; None where the log does not say.
        read: Its rows in order, piece by piece.
    """

    name: str
    identity: str
    columns: Mapping[str, str]
    rows: int | None
    read: Callable[[], Iterator[pa.Table]]


def parts_of(files: Iterable[DataFile], table: str, spec: TableSpec, rows: int, time_zone: str) -> Iterator[Part]:
    """The parts of files, none of which is read yet; of a table that is sorted on ingest, its sorted runs instead.

    A file whose rows the log does not count is one part.

    Args:
        files: The files, in their order.
        table: The table's name, for messages.
        spec: What is declared of it.
        rows: Rows of a part.
        time_zone: Zone of times that state none; empty refuses them.
    """
    parts = (part for file in files for part in _parts_of(file, table, spec, rows, time_zone))
    if not spec.sort_on_ingest:
        yield from parts
        return
    from gatehouse.data.sources.sorted_rows import sorted_parts

    with tempfile.TemporaryDirectory(prefix="gatehouse-sort-") as directory:
        yield from sorted_parts(parts, spec, Path(directory), rows)


def _parts_of(file: DataFile, table: str, spec: TableSpec, rows: int, time_zone: str) -> Iterator[Part]:
    held = _Rows(file)
    count = file.rows or 0
    for start in range(0, max(count, 1), rows):
        stop = start + rows if start + rows < count else None

        def read(start: int = start, stop: int | None = stop) -> Raw:
            def place(_piece: pa.Table, _row: int, number: int) -> str:
                return f"row {start + number} of {file.name}"

            raw = declare(held.between(start, stop), spec, name=table, place=place, time_zone=time_zone)
            return replace(raw, columns=file.columns)

        yield Part(digest_of([file.identity, start, stop]), read)


class _Rows:
    """The rows of a file by number, read on from where the last call ended."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._at = -1
        self._left: pa.Table | None = None
        self._pieces: Iterator[pa.Table] = iter(())

    def between(self, start: int, stop: int | None) -> list[pa.Table]:
        """Rows `start` to `stop`, or to the end where it is None."""
        with self._lock:
            if not 0 <= self._at <= start:
                self._pieces, self._left, self._at = self._file.read(), None, 0
            self._skip(start - self._at)
            taken = self._take(None if stop is None else stop - start)
            if stop is None:
                self._at, self._left = -1, None
            return taken

    def _skip(self, rows: int) -> None:
        while rows > 0 and (taken := self._take(min(rows, _ROWS_SKIPPED))):
            rows -= sum(piece.num_rows for piece in taken)

    def _take(self, rows: int | None) -> list[pa.Table]:
        taken: list[pa.Table] = []
        while rows is None or rows > 0:
            piece = self._left if self._left is not None else next(self._pieces, None)
            if piece is None:
                break
            count = piece.num_rows if rows is None else min(rows, piece.num_rows)
            taken.append(piece.slice(0, count))
            self._left = piece.slice(count) if count < piece.num_rows else None
            self._at += count
            rows = None if rows is None else rows - count
        return taken
