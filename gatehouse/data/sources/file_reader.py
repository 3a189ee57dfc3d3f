"""Reads files as a source: text in blocks of bytes, typed files in runs of rows, each as one part.

A plain text on this machine has a digest for each block, so only what was appended is read again. Any other file has
one identity as a whole: packed, typed, or elsewhere.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import xxhash

from gatehouse.data.sources.base import EarlierPart, Part, Raw
from gatehouse.data.sources.blocks import Block, Cut, blocks, unquoted_cuts
from gatehouse.data.sources.csv_rows import CsvRows, header_end, lines_in
from gatehouse.data.sources.declared import TIME, check_columns, declare, schema_of
from gatehouse.data.sources.files import JSON_LINES, KINDS, TYPED, FilesBase, FileTable, FolderSource, SdistSource
from gatehouse.data.sources.json_rows import JsonRows
from gatehouse.data.sources.raw_file import RawFile, archive_members, find_files
from gatehouse.data.sources.row_runs import ROWS_PER_PART, row_runs, sorted_parts
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.store.canonical import digest_of
from gatehouse.store.store import ArtifactStore

_AHEAD = 2
LONGEST_ROW = 64 * 2**20
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class FileReader:
    """A folder, an address or an archive, looked at once: what was seen then is what is read."""

    def __init__(self, spec: FilesBase, location: str, store: ArtifactStore, workspace: Path) -> None:
        self._spec = spec
        self._location = location
        self._store = store
        self._workspace = workspace
        self._listed: dict[str, list[RawFile]] = {}
        self._cuts: dict[str, list[Cut]] = {}
        self._identities: dict[str, str] = {}

    def state(self) -> Mapping[str, Any]:
        """By table: name, size and identity of its files; of a pinned archive, its digest, without fetching it."""
        if isinstance(self._spec, SdistSource) and not self._folder():
            pinned = f"sha256:{self._spec.sha256}"
            return {name: {"archive": pinned, "member": table.member} for name, table in self._spec.tables.items()}
        state: dict[str, dict[str, Any]] = {table: {"files": []} for table in self._spec.tables}
        for table, file in ((name, file) for name in state for file in self._files(name)):
            facts: dict[str, Any] = {"name": file.name}
            if file.plain and file.suffix not in TYPED:
                cuts = self._cuts_of(table, file)
                facts |= {"bytes": cuts[-1].stop if cuts else 0, "blocks": digest_of([cut.fingerprint for cut in cuts])}
            else:
                facts |= {"bytes": file.size(), "identity": self._identity(file)}
            state[table]["files"].append(facts)
        return state

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...]) -> Iterator[Part]:
        """The blocks and runs of a table's files, in order."""
        spec = self._spec.tables[table]
        in_files = spec.in_files()
        parts = (part for file in self._files(table) for part in self._file_parts(table, in_files, file, earlier_parts))
        if spec.delivered:
            parts = (replace(part, read=partial(_delivered, part.read, spec)) for part in parts)
        yield from sorted_parts(parts, spec, self._workspace, ROWS_PER_PART) if spec.sort_on_ingest else parts

    def _folder(self) -> str:
        if isinstance(self._spec, FolderSource):
            return self._location or self._spec.path
        return self._location if "://" in self._location or Path(self._location or "?").is_dir() else ""

    def _files(self, table: str) -> list[RawFile]:
        if table not in self._listed:
            member, encoding = self._spec.tables[table].member, self._spec.tables[table].encoding
            if isinstance(self._spec, SdistSource) and not self._folder():
                members = archive_members(self._spec, member, self._location, self._store, self._workspace / table)
                files = [RawFile(name, str(path)) for name, path in members]
            else:
                files = find_files(self._folder(), member)
            for file in files:
                if file.suffix not in KINDS or (file.packed and file.suffix in TYPED):
                    raise DeclarationError(
                        f"Table {table}: expected files of {', '.join(KINDS)}, of which CSV and JSON lines may be "
                        f"packed (.gz, .zip), found {file.name}. Rename or unpack it, or correct the table's member."
                    )
            self._listed[table] = [replace(file, encoding="" if encoding == "utf-8" else encoding) for file in files]
        return self._listed[table]

    def _identity(self, file: RawFile) -> str:
        if file.path not in self._identities:
            self._identities[file.path] = file.identity()
        return self._identities[file.path]

    def _cuts_of(self, table: str, file: RawFile) -> list[Cut]:
        if file.path not in self._cuts:
            size = self._spec.block_bytes
            with ThreadPoolExecutor(_AHEAD, thread_name_prefix="look") as pool:
                cuts = unquoted_cuts(file, size, pool, quotes=file.suffix not in JSON_LINES)
                if cuts is None:
                    starts = iter(range(0, file.size(), size))
                    windows = _few_at_once(pool, lambda start: file.read(start, start + size), starts)
                    cuts = list(_few_at_once(pool, Block.cut, self._blocks(table, file, windows)))
                self._cuts[file.path] = cuts
        return self._cuts[file.path]

    def _blocks(self, table: str, file: RawFile, windows: Iterator[bytes]) -> Iterator[Block]:
        name = f"Table {table}: {file.name}"
        longest = max(LONGEST_ROW, 4 * self._spec.block_bytes)
        delimiter = self._spec.tables[table].delimiter.encode()
        return blocks(windows, quotes=file.suffix not in JSON_LINES, longest=longest, name=name, delimiter=delimiter)

    def _file_parts(self, table: str, spec: FileTable, file: RawFile, parts: Iterable[EarlierPart]) -> Iterator[Part]:
        if not file.plain or file.suffix in TYPED:
            yield from self._whole_parts(table, spec, file, parts)
            return
        cuts = self._cuts_of(table, file)
        rows = self._rows(table, spec, file, file.read(0, cuts[0].stop) if cuts else b"")
        columns = digest_of(rows.header) if isinstance(rows, CsvRows) else ""
        for cut in cuts:
            read = partial(self._read_cut, table, file, rows, cut)
            yield Part(f"{cut.fingerprint}{columns[:16]}{'^' if not cut.start else ''}", read, {"file": file.name})

    def _read_cut(self, table: str, file: RawFile, rows: CsvRows | JsonRows, cut: Cut) -> Raw:
        data = file.read(cut.start, cut.stop)
        if xxhash.xxh3_128_hexdigest(data) != cut.fingerprint:
            raise _changed(table, file)

        def lines_before() -> int:
            step = 2**24
            return lines_in(file.read(start, min(cut.start, start + step)) for start in range(0, cut.start, step))

        return _read_block(rows, data, cut.start == 0, lines_before)

    def _rows(self, table: str, spec: FileTable, file: RawFile, beginning: bytes) -> CsvRows | JsonRows:
        if file.suffix in JSON_LINES:
            return JsonRows(table, file.name, spec, self._spec.time_zone)
        return CsvRows.open(table, file.name, spec, self._spec, beginning)

    def _whole_parts(self, table: str, spec: FileTable, file: RawFile, parts: Iterable[EarlierPart]) -> Iterator[Part]:
        """Parts of a file with one identity, each with its rows; if all are known, the file is not opened."""
        identity = self._identity(file)
        earlier = {int(part.position["part"]): part for part in parts if part.position.get("identity") == identity}
        if earlier and sorted(earlier) == list(range(len(earlier))) and earlier[len(earlier) - 1].position["last"]:
            for number in sorted(earlier):
                position = {**earlier[number].position, "file": file.name}
                yield Part(f"{identity}#{number}", partial(self._reread, table, spec, file, number), position)
            return
        ahead: Part | None = None
        for number, read in enumerate(self._reads(table, spec, file)):
            if ahead is not None:
                yield ahead
            position = {"file": file.name, "identity": identity, "part": number, "last": False}
            ahead = Part(f"{identity}#{number}", read, position)
        self._require_unchanged(table, file)
        if ahead is not None:
            yield Part(ahead.fingerprint, ahead.read, {**ahead.position, "last": True})

    def _reread(self, table: str, spec: FileTable, file: RawFile, number: int) -> Raw:
        for index, read in enumerate(self._reads(table, spec, file)):
            if index == number:
                self._require_unchanged(table, file)
                return read()
        raise _changed(table, file)

    def _require_unchanged(self, table: str, file: RawFile) -> None:
        if file.identity(anew=True) != self._identity(file):
            raise _changed(table, file)

    def _reads(self, table: str, spec: FileTable, file: RawFile) -> Iterator[Callable[[], Raw]]:
        if file.suffix in TYPED:
            for index, run in enumerate(row_runs(table, file)):
                yield partial(_read_run, table, spec, file, run, index * ROWS_PER_PART, self._spec.time_zone)
            return
        rows = None
        lines = 0
        for block in self._blocks(table, file, file.windows(self._spec.block_bytes, table)):
            data = b"".join(block.pieces)
            rows = rows or self._rows(table, spec, file, data)
            yield partial(_read_block, rows, data, block.start == 0, partial(int, lines))
            lines += lines_in((data,))
        if rows is None:
            self._rows(table, spec, file, b"")


def _changed(table: str, file: RawFile) -> SourceError:
    return SourceError(
        f"Table {table}: {file.name} changed while it was read. Nothing was published; run again when it is written."
    )


def _few_at_once(pool: ThreadPoolExecutor, function: Callable[[_In], _Out], over: Iterator[_In]) -> Iterator[_Out]:
    """As `map`, with so few under way that memory stays bounded."""
    waiting: deque[Future[_Out]] = deque()
    for item in over:
        waiting.append(pool.submit(function, item))
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _read_block(rows: CsvRows | JsonRows, data: bytes, first: bool, lines_before: Callable[[], int]) -> Raw:
    if isinstance(rows, JsonRows) or not first:
        return rows.read(data, lines_before)
    end = header_end(data, rows.spec.delimiter.encode())
    return rows.read(data[end:], lambda: lines_in((data[:end],)))


def _delivered(read: Callable[[], Raw], spec: FileTable) -> Raw:
    """The rows, with the time that all of them have."""
    raw, schema = read(), schema_of(spec.columns)
    moment = spec.delivered.replace(tzinfo=spec.delivered.tzinfo or UTC) if spec.delivered else None
    time = pa.repeat(pa.scalar(moment, TIME), raw.table.num_rows)
    table = raw.table.append_column(spec.event_time, time).select(schema.names)
    return replace(raw, table=table, columns=raw.columns and {**raw.columns, spec.event_time: str(TIME)})


def _read_run(table: str, spec: FileTable, file: RawFile, run: pa.Table, before: int, time_zone: str) -> Raw:
    delivered = {field.name: str(field.type) for field in run.schema}
    check_columns(table, list(delivered), spec)

    def place(_piece: pa.Table, _row: int, index: int) -> str:
        return f"{file.name}, row {before + index + 1}"

    raw = declare((run,), spec, name=table, place=place, time_zone=time_zone)
    return replace(raw, columns=delivered)
