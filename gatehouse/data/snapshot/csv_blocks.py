"""The pieces of large CSVs at an address: workers read blocks of their bytes, and make the parts of one process.

A row may have quoted line ends, so no block knows alone where its first row begins. The number of quotes before it says
so, unless a value has single quotes as characters. A first round of pieces counts quotes and lines. The second reads
each block from where a row begins by that count, and checks that a row ends where the next block begins. The first
block begins with a row, and each check proves the beginning of the next. A file that fails a check is not divided. The
third round puts the rows together into parts, whose bounds follow from the number of rows that fit their declaration.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.spec import window_of
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import last_row_end, lines_in
from gatehouse.data.sources.catalog import open_source
from gatehouse.data.sources.file_reader import HEADER, FileReader, parts_of, with_delivered
from gatehouse.data.sources.files import CSV, FileTable, FolderSource
from gatehouse.data.sources.row_runs import regrouped
from gatehouse.errors import SourceError
from gatehouse.pieces.piece import KIND, ROWS, Piece, piece, run_pieces
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)
_ROWS, _REJECTED = "rows-{:05d}.parquet", "rejected-{:05d}.parquet"


class TableRequest(StageModel):
    """Some of the files of a table. `source` has this table alone, `columns` their order, which JSON does not keep."""

    source: FolderSource
    table: str
    columns: tuple[str, ...]
    location: str = operational("")

    @property
    def declared(self) -> FileTable:
        """The declaration of the table, with its columns in order."""
        declared = self.source.tables[self.table]
        return declared.model_copy(update={"columns": {name: declared.columns[name] for name in self.columns}})

    @property
    def ordered(self) -> FolderSource:
        """The source, with the columns of the table in order."""
        return self.source.model_copy(update={"tables": {self.table: self.declared}})


class Parts(StageModel):
    """Parts in order, as records keep them, and the artifact with their files."""

    parts: tuple[dict[str, Any], ...]
    files: str


class ScanRequest(TableRequest):
    """A CSV by its name, the identity of its content and its size, from byte `start` to before `stop`."""

    file: str
    identity: str
    size: int
    start: int
    stop: int


class Scan(StageModel):
    """Counts of a block. `ends[0]` is valid if the block begins outside quotes, `ends[1]` if inside.

    Each has the index after the last row that ends in the block, -1 for none, and the number of lines before it.
    """

    lines: int
    quotes: int
    ends: tuple[tuple[int, int], tuple[int, int]]


class BlockRequest(ScanRequest):
    """The rows of a block, from `start` to before `stop`, after so many `lines`.

    `left` bytes of the block follow. They are read too, to see that no row ends in them.
    """

    lines: int
    left: int


class Block(StageModel):
    """The artifact with the rows of each window and those rejected, their numbers, and the columns of the file.

    `whole` is false if rows do not fit, or if the block begins or ends inside a row. A memo keeps this result, so it
    quotes no value.
    """

    rows: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    files: str = ""
    whole: bool = False


class PartsRequest(TableRequest):
    """Parts of a CSV from number `first` on: `count` of them, or all that follow if it is 0.

    Their rows are those of `windows`, without the `skip` first rows of all. A window is the artifact of a block, its
    number there, and whether it has rejected rows. `names` are the columns of the file.
    """

    file: str
    identity: str
    window: str
    windows: tuple[tuple[str, int, bool], ...]
    skip: int
    first: int
    count: int
    names: tuple[str, ...]


@piece
def scan_block(request: ScanRequest, store: ArtifactStore) -> Scan:
    """Count the lines and quotes of a block. Raises SourceError if the file cannot be read, or changed."""
    with open_source(request.source, request.location, store) as source:
        assert isinstance(source, FileReader)
        (file,) = source.files_of(request.table, {request.file: request.identity})
        # One byte more says whether a line feed follows.
        stop = min(request.stop + 1, request.size)
        windows = source.csv_windows(request.table, file, request.start, stop, request.size)
    text = b"".join(windows)
    block = text[: request.stop - request.start]
    splits_line_end = block.endswith(b"\r") and text.endswith(b"\n") and len(text) > len(block)
    quotes, ends = block.count(b'"'), list[tuple[int, int]]()
    for before in (0, 1):
        end = last_row_end(block, quoted=(before + quotes) % 2 == 1)
        ends.append((end, lines_in(block[: max(end, 0)])))
    return Scan(lines=lines_in(block) - splits_line_end, quotes=quotes, ends=(ends[0], ends[1]))


@piece
def read_block(request: BlockRequest, store: ArtifactStore) -> Block:
    """Read the rows of a block. Raises SourceError if the file cannot be read, or changed."""
    rows, rejected, names, files = list[int](), list[int](), tuple[str, ...](), dict[str, bytes]()
    with open_source(request.ordered, request.location, store) as source:
        assert isinstance(source, FileReader)
        (file,) = source.files_of(request.table, {request.file: request.identity})
        end = request.stop + request.left
        beginning = file.span(0, HEADER) if request.start else b""
        windows = source.csv_windows(request.table, file, request.start, end, request.size)
        left = None if end == request.size else request.left
        try:
            for raw in source.csv_block(request.table, file, beginning, windows, request.lines, left):
                number, names = len(rows), tuple(raw.columns or ())
                files[_ROWS.format(number)] = _packed(raw.table)
                if raw.rejected is not None:
                    files[_REJECTED.format(number)] = _packed(raw.rejected)
                rows.append(raw.table.num_rows)
                rejected.append(raw.rejected.num_rows if raw.rejected is not None else 0)
        except SourceError:  # Reading the whole file says if it is an error.
            return Block()
    artifact = str(store.publish(KIND, "rows", files))
    return Block(rows=tuple(rows), rejected=tuple(rejected), names=names, files=artifact, whole=True)


@piece
def assemble_parts(request: PartsRequest, store: ArtifactStore) -> Parts:
    """Store parts whose rows were read."""
    columns, declared = dict.fromkeys(request.names, "text"), request.declared

    def windows() -> Iterator[Raw]:
        skip = request.skip
        for block, number, rejects in request.windows:
            table = pq.read_table(store.path(block, _ROWS.format(number)))
            # The rejected rows of a window belong to the part with its first row.
            rejected = pq.read_table(store.path(block, _REJECTED.format(number))) if rejects and not skip else None
            yield Raw(table.slice(skip), rejected, columns)
            skip = 0

    runs = islice(regrouped(windows(), request.source.rows_per_part), request.count or None)
    parts = parts_of(request.file, request.identity, runs, request.first, ends=not request.count)
    stored = store_parts(with_delivered(parts, declared), declared, window_of(request.window), {}, store)
    return published(stored, store)


def published(stored: Sequence[Stored], store: ArtifactStore) -> Parts:
    """Parts, and an artifact with their files."""
    blobs = {f"part-{number:05d}.parquet": part.blob for number, part in enumerate(stored)}
    blobs |= {f"rejected-{number:05d}.parquet": part.rejected for number, part in enumerate(stored)}
    files = {path: blob.entry(path) for path, blob in blobs.items() if blob}
    return Parts(parts=tuple(part.to_json() for part in stored), files=str(store.publish(KIND, "parts", files)))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4")
    return bytes(sink.getvalue())


def is_divisible(spec: FileTable, file: Mapping[str, Any], block_size: int) -> bool:
    """Whether a file has several blocks, its bytes are those of the text, and the file system has its checksum."""
    is_csv = file["name"].lower().endswith(CSV) and spec.encoding == "utf-8"
    return is_csv and file["bytes"] > block_size and not file["identity"].startswith("xxh3_128:")


def store_blocks(
    body: Mapping[str, Any], files: Sequence[Mapping[str, Any]], block_size: int, window: str, store: ArtifactStore
) -> dict[str, list[Stored]]:
    """The parts of divisible files by name, read in blocks of `block_size` bytes; a file that is not divided is absent.

    `body` has the fields of a `TableRequest`, and `files` have name, identity and size. Raises SourceError if a file
    cannot be read, or changed.
    """
    borders = {file["name"]: [*range(0, file["bytes"], block_size), file["bytes"]] for file in files}
    contents = {file["name"]: {**body, "file": file["name"], "identity": file["identity"]} for file in files}
    scanning = {
        name: [ScanRequest(**contents[name], size=ends[-1], start=start, stop=stop) for start, stop in pairwise(ends)]
        for name, ends in borders.items()
    }
    scans = _round(store, scan_block, scanning)
    reading = {name: _block_requests(contents[name], borders[name], scans[name]) for name in borders}
    blocks = _round(store, read_block, {name: requests for name, requests in reading.items() if requests})
    for name in borders:
        if not all(block.whole for block in blocks.get(name, ())):
            logger.warning("%s is read by one worker: rows do not fit, or single quotes hide where rows begin", name)
            del blocks[name]
    assembling = {name: _parts_requests(contents[name], read, window) for name, read in blocks.items()}
    parts = _round(store, assemble_parts, assembling)
    return {name: [Stored.from_json(part) for result in parts[name] for part in result.parts] for name in parts}


def _round(
    store: ArtifactStore, function: Piece[Any, Any], requests: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """The results of a round of pieces, of all files side by side, by file."""
    results = iter(run_pieces(store, [(function, request) for some in requests.values() for request in some]))
    return {name: list(islice(results, len(some))) for name, some in requests.items()}


def _block_requests(content: Mapping[str, Any], borders: Sequence[int], scans: Sequence[Scan]) -> list[BlockRequest]:
    """The blocks of a file, each from the last row end before it; none if a block has no row end."""
    requests, size = list[BlockRequest](), borders[-1]
    start = quotes = lines = lines_before_block = 0
    for (begin, end), scan in zip(pairwise(borders), scans, strict=True):
        length, lines_in_rows = scan.ends[quotes % 2]
        if length < 0 and end < size:
            logger.warning("%s is read by one worker: no row ends from byte %s to %s", content["file"], begin, end)
            return []
        stop = begin + length if end < size else size
        numbers = {"size": size, "start": start, "stop": stop, "lines": lines, "left": end - stop}
        requests.append(BlockRequest(**content, **numbers))
        start, quotes, lines = stop, quotes + scan.quotes, lines_before_block + lines_in_rows
        lines_before_block += scan.lines
    return requests


def _parts_requests(content: Mapping[str, Any], blocks: Sequence[Block], window: str) -> list[PartsRequest]:
    """The parts of a file, in pieces of about `ROWS` rows."""
    windows = [(block.files, number, count > 0) for block in blocks for number, count in enumerate(block.rejected)]
    rows_before = [0, *accumulate(rows for block in blocks for rows in block.rows)]  # each window, and the end
    requests, part_rows = list[PartsRequest](), content["source"].rows_per_part
    numbers = range(0, max(1, rows_before[-1] // part_rows), max(1, ROWS // part_rows))
    for first in numbers:
        is_last = first + numbers.step >= numbers.stop
        start, stop = first * part_rows, (first + numbers.step) * part_rows
        # A window without rows belongs to the part that begins behind it.
        begin = bisect_left(rows_before, start)
        begin -= rows_before[begin] > start
        end = len(windows) if is_last else bisect_left(rows_before, stop)
        request = PartsRequest(
            **content,
            window=window,
            windows=tuple(windows[begin:end]),
            skip=start - rows_before[begin],
            first=first,
            count=0 if is_last else numbers.step,
            names=blocks[0].names,
        )
        requests.append(request)
    return requests
