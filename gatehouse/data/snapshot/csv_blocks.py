"""The pieces of one large CSV at an address: its blocks of bytes are read by many workers, in the parts of one process.

A row may have quoted line ends, so no block knows alone where its first row begins. The quotes before it say so, unless
a value has them as letters. So a first round of pieces counts quotes and lines, the second reads each block from where
a row begins by that count, and checks that a row ends where the next block begins. As the first block begins right,
all do. Otherwise the file is not divided. A third round puts the rows together into parts, whose bounds follow from the
number of rows that fit their declaration.
"""

import logging
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from itertools import accumulate, islice, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.spec import window_of
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import last_row_end, lines_in
from gatehouse.data.sources.catalog import open_source
from gatehouse.data.sources.file_reader import FileReader, parts_of, with_delivered
from gatehouse.data.sources.files import CSV, FileTable, FolderSource
from gatehouse.data.sources.row_runs import regrouped
from gatehouse.errors import SourceError
from gatehouse.pieces.piece import KIND, ROWS, piece, run_pieces
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)
_ROWS, _REJECTED = "rows-{:05d}.parquet", "rejected-{:05d}.parquet"


class CsvRequest(StageModel):
    """A CSV of a table, by its name and the identity of its content, from byte `start` to before `stop`.

    `source` has this table alone, and `columns` the order of its columns, which JSON does not keep.
    """

    source: FolderSource
    table: str
    columns: tuple[str, ...]
    file: str
    identity: str
    start: int = 0
    stop: int = 0
    location: str = operational("")

    @property
    def declared(self) -> FileTable:
        """The declaration of the table, with its columns in order."""
        declared = self.source.tables[self.table]
        return declared.model_copy(update={"columns": {name: declared.columns[name] for name in self.columns}})


class Scan(StageModel):
    """Line ends and quotes of a block, and its last row end with the number of lines before, if quotes close, or not.

    A row end is an index in the block, and -1 where none is. `marked` says that the block begins with UTF-8's mark.
    """

    lines: int
    quotes: int
    ends: tuple[tuple[int, int], tuple[int, int]]
    marked: bool


class BlockRequest(CsvRequest):
    """The rows from one byte to another, which windows up to `border` show; `lines` end before them."""

    border: int
    lines: int


class Block(StageModel):
    """An artifact with the rows of each window and those rejected, their numbers, and the columns of the file."""

    rows: tuple[int, ...]
    rejected: tuple[int, ...]
    names: tuple[str, ...]
    files: str


class RunsRequest(CsvRequest):
    """Parts of a CSV from number `first` on: `count` of them, or all that follow if it is 0.

    Their rows are those of some windows, each with its block and number, without the `skip` first rows of all.
    """

    window: str
    windows: tuple[tuple[str, int, bool], ...]
    skip: int
    first: int
    count: int
    names: tuple[str, ...]


class Runs(StageModel):
    """The parts in order, as records keep them, and the artifact with their files."""

    parts: tuple[dict[str, Any], ...]
    files: str


@piece
def scan_block(request: CsvRequest, store: ArtifactStore) -> Scan:
    """Count the lines and quotes of a block. Raises SourceError if the file is gone."""
    with open_source(request.source, request.location, store) as source:
        assert isinstance(source, FileReader)
        (file,) = source.files_of(request.table, {request.file: request.identity})
        text = file.span(request.start, request.stop + 1)
    block = text[: request.stop - request.start]
    # The line of a carriage return ends with the line feed after it.
    halved = block.endswith(b"\r") and text.endswith(b"\n") and len(text) > len(block)
    quotes, ends = block.count(b'"'), list[tuple[int, int]]()
    for before in (0, 1):
        end = last_row_end(block, quoted=(before + quotes) % 2 == 1)
        ends.append((end, lines_in(block[: max(end, 0)])))
    return Scan(lines=lines_in(block) - halved, quotes=quotes, ends=tuple(ends), marked=block.startswith(BOM_UTF8))


@piece
def read_block(request: BlockRequest, store: ArtifactStore) -> Block:
    """Read the rows of a block. Raises SourceError if they cannot be, or if no row ends at `stop`."""
    spec = request.source.model_copy(update={"tables": {request.table: request.declared}})
    rows, rejected, files, names = list[int](), list[int](), dict[str, bytes](), tuple[str, ...]()
    with open_source(spec, request.location, store) as source:
        assert isinstance(source, FileReader)
        (file,) = source.files_of(request.table, {request.file: request.identity})
        span = (request.start, request.stop, request.border)
        for number, raw in enumerate(source.csv_block(request.table, file, *span, request.lines)):
            names = tuple(raw.columns or ())
            files[_ROWS.format(number)] = _packed(raw.table)
            if raw.rejected is not None:
                files[_REJECTED.format(number)] = _packed(raw.rejected)
            rows.append(raw.table.num_rows)
            rejected.append(raw.rejected.num_rows if raw.rejected is not None else 0)
    artifact = store.publish(KIND, "rows", files)
    return Block(rows=tuple(rows), rejected=tuple(rejected), names=names, files=str(artifact))


@piece
def store_runs(request: RunsRequest, store: ArtifactStore) -> Runs:
    """Store parts whose rows were read."""
    columns, declared = dict.fromkeys(request.names, "text"), request.declared

    def windows() -> Iterator[Raw]:
        skip = request.skip
        for block, number, rejects in request.windows:
            table = pq.read_table(store.path(block, _ROWS.format(number)))
            # The rows that were rejected stand in the part with the first row of their window.
            aside = pq.read_table(store.path(block, _REJECTED.format(number))) if rejects and not skip else None
            yield Raw(table.slice(skip), aside, columns)
            skip = 0

    runs = islice(regrouped(windows(), request.source.rows_per_part), request.count or None)
    parts = parts_of(request.file, request.identity, runs, request.first, ends=not request.count)
    stored = store_parts(with_delivered(parts, declared), declared, window_of(request.window), {}, store)
    return Runs(**published(stored, store))


def published(stored: list[Stored], store: ArtifactStore) -> dict[str, Any]:
    """Parts as records keep them, and the reference of an artifact with their files."""
    blobs = {f"part-{number:05d}.parquet": part.blob for number, part in enumerate(stored)}
    blobs |= {f"rejected-{number:05d}.parquet": part.rejected for number, part in enumerate(stored)}
    files = {path: blob.entry(path) for path, blob in blobs.items() if blob}
    return {"parts": tuple(part.to_json() for part in stored), "files": str(store.publish(KIND, "parts", files))}


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4")
    return bytes(sink.getvalue())


def is_divisible(source: FolderSource, table: str, file: str, size: int, most: int) -> bool:
    """Whether a file has several blocks of `most` bytes, and its bytes are those of the text."""
    return size > most and file.lower().endswith(CSV) and source.tables[table].encoding == "utf-8"


def store_blocks(body: Mapping[str, Any], size: int, most: int, window: str, store: ArtifactStore) -> list[Stored]:
    """Store the parts of a CSV of `size` bytes by blocks of `most` bytes; `body` has the fields of a `CsvRequest`.

    Raises SourceError if a block does not begin where its quotes say, or cannot be read.
    """
    spans = list(pairwise([*range(0, size, most), size]))
    requests = [CsvRequest(**body, start=start, stop=stop) for start, stop in spans]
    scans: list[Scan] = run_pieces(store, [(scan_block, request) for request in requests])
    calls, start, quotes, lines = list[tuple[Any, BlockRequest]](), 0, 0, (0, 0)
    for (begin, border), scan in zip(spans, scans, strict=True):
        end, until = scan.ends[quotes % 2]
        if (scan.marked and not begin) or (end < 0 and border < size):
            raise SourceError(f"{body['file']} cannot be divided: its text begins with a mark, or rows are too long.")
        stop = begin + end if border < size else size
        span = {"start": start, "stop": stop, "border": border, "lines": lines[1]}
        calls.append((read_block, BlockRequest(**body, **span)))
        start, quotes, lines = stop, quotes + scan.quotes, (lines[0] + scan.lines, lines[0] + until)
    read: list[Block] = run_pieces(store, calls)
    windows = [(block.files, number, count > 0) for block in read for number, count in enumerate(block.rejected)]
    # How many rows stand before each window, and before the end.
    before = [0, *accumulate(rows for block in read for rows in block.rows)]
    size_of_part = requests[0].source.rows_per_part
    firsts = range(0, max(1, before[-1] // size_of_part), max(1, ROWS // size_of_part))
    runs = list[tuple[Any, RunsRequest]]()
    for first in firsts:
        ends = first + firsts.step >= firsts.stop
        skipped, until = first * size_of_part, (first + firsts.step) * size_of_part
        # A window without rows belongs to the part that begins behind it.
        begin = bisect_left(before, skipped)
        begin -= before[begin] > skipped
        numbers = {"first": first, "count": 0 if ends else firsts.step, "skip": skipped - before[begin]}
        chosen = windows[begin:] if ends else windows[begin : bisect_left(before, until)]
        names = read[0].names
        runs.append((store_runs, RunsRequest(**body, **numbers, window=window, windows=tuple(chosen), names=names)))
    return [Stored.from_json(part) for result in run_pieces(store, runs) for part in result.parts]
