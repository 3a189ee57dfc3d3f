"""Reads files as a source, each as parts of a fixed number of rows.

A file has one identity: the checksum that its store has of it, or a digest of its bytes. If it is that of the earlier
snapshot, the file is not read again.
"""

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from gatehouse.data.sources.base import EarlierPart, Part, Raw
from gatehouse.data.sources.blocks import blocks, header_end, lines_in
from gatehouse.data.sources.csv_rows import CsvRows
from gatehouse.data.sources.declared import TIME, check_columns, declare, schema_of
from gatehouse.data.sources.files import JSON_LINES, KINDS, TYPED, FilesBase, FileTable, FolderSource, SdistSource
from gatehouse.data.sources.json_rows import read_json_lines
from gatehouse.data.sources.raw_file import RawFile, archive_members, find_files
from gatehouse.data.sources.row_runs import regrouped, row_batches, sorted_parts
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.in_turn import in_turn
from gatehouse.store.store import ArtifactStore

WINDOW = 8 * 2**20
"""Bytes of text that are parsed together; they make no difference to the result."""
_LONGEST_ROW = 64 * 2**20
HEADER = 2**20
"""Bytes at the beginning of a CSV in which its header must end, for blocks of it to be read."""
_Rows = TypeVar("_Rows")


class FileReader:
    """A folder, an address or an archive, looked at once: what was seen then is what is read."""

    def __init__(self, spec: FilesBase, location: str, store: ArtifactStore, workspace: Path) -> None:
        self._spec = spec
        self._location = location
        self._store = store
        self._workspace = workspace
        self._listed: dict[str, list[RawFile]] = {}
        self._identities: dict[str, str] = {}

    def state(self) -> Mapping[str, Any]:
        """By table: name, size and identity of its files; of a pinned archive, its digest, without fetching it."""
        if isinstance(self._spec, SdistSource) and not self.place:
            pinned = f"sha256:{self._spec.sha256}"
            return {name: {"archive": pinned, "member": table.member} for name, table in self._spec.tables.items()}

        def facts(file: RawFile) -> dict[str, Any]:
            return {"name": file.name, "bytes": file.size(), "identity": self._identity(file)}

        return {table: {"files": list(map(facts, self._files(table)))} for table in self._spec.tables}

    def parts(
        self, table: str, earlier_parts: tuple[EarlierPart, ...], identities: Mapping[str, str] | None = None
    ) -> Iterator[Part]:
        """The parts of a table's files, in order; with `identities`, only of the files named there, as they were then.

        Raises SourceError if a file is gone, or has another identity.
        """
        spec, files = self._spec.tables[table], self._files(table)
        if identities is not None:
            files = self.files_of(table, identities)
        in_files = spec.in_files()
        read = (part for file in files for part in self._file_parts(table, in_files, file, earlier_parts))
        parts = with_delivered(read, spec)
        rows = self._spec.rows_per_part
        yield from sorted_parts(parts, spec, self._workspace, rows) if spec.sort_on_ingest else parts

    def files_of(self, table: str, identities: Mapping[str, str]) -> list[RawFile]:
        """The files of a table that are named, as they were. Raises SourceError if one is gone."""
        files = [file for file in self._files(table) if file.name in identities]
        self._identities |= {file.path: identities[file.name] for file in files}
        if gone := sorted(identities.keys() - {file.name for file in files}):
            raise SourceError(f"Table {table}: {gone[0]} is gone. Nothing was published; run again when it is there.")
        return files

    def csv_windows(self, table: str, file: RawFile, start: int, stop: int, size: int) -> list[bytes]:
        """The bytes of a file of `size` bytes at an address from `start` to before `stop`, in windows.

        Raises SourceError if they cannot be read, or if the file has another size or identity.
        """
        edges = [start, *range(start - start % WINDOW + WINDOW, stop, WINDOW), stop]
        windows = [file.span(*edge) for edge in itertools.pairwise(edges)]
        if file.size() != size:
            raise _changed(table, file)
        self._require_unchanged(table, file)
        return windows

    def csv_block(
        self, table: str, file: RawFile, beginning: bytes, windows: Sequence[bytes], lines: int, left: int | None
    ) -> Iterator[Raw]:
        """The rows in windows of a CSV, up to the one that ends `left` bytes before their end; None for its last block.

        The windows begin after `lines` lines. `beginning` has the header, and is empty if the first window has it.
        Raises SourceError if no row ends there, or if the rows cannot be read.
        """
        spec = self._spec.tables[table].in_files()
        if not beginning:
            windows = [windows[0].removeprefix(codecs.BOM_UTF8), *windows[1:]]
        texts = self._cut(table, file, windows, spec.delimiter.encode(), lines, left)
        return self._csv_rows(table, spec, file, texts, beginning.removeprefix(codecs.BOM_UTF8))

    @property
    def place(self) -> str:
        """The folder or address of the files; empty for an archive."""
        if isinstance(self._spec, FolderSource):
            return self._location or self._spec.path
        return self._location if "://" in self._location or Path(self._location or "?").is_dir() else ""

    def _files(self, table: str) -> list[RawFile]:
        if table not in self._listed:
            member, encoding = self._spec.tables[table].member, self._spec.tables[table].encoding
            if isinstance(self._spec, SdistSource) and not self.place:
                members = archive_members(self._spec, member, self._location, self._store, self._workspace / table)
                files = [RawFile(name, str(path)) for name, path in members]
            else:
                files = find_files(self.place, member)
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

    def _file_parts(self, table: str, spec: FileTable, file: RawFile, parts: Iterable[EarlierPart]) -> Iterator[Part]:
        """Parts of a file, each with its rows; if all are known, the file is not opened."""
        identity = self._identity(file)
        earlier = {int(part.position["part"]): part for part in parts if part.position.get("identity") == identity}
        if earlier and sorted(earlier) == list(range(len(earlier))) and earlier[len(earlier) - 1].position["last"]:
            for number in sorted(earlier):
                position = {**earlier[number].position, "file": file.name}
                yield Part(f"{identity}#{number}", partial(self._reread, table, spec, file, number), position)
            return
        yield from parts_of(file.name, identity, self._unchanged(table, file, self._reads(table, spec, file)))

    def _reread(self, table: str, spec: FileTable, file: RawFile, number: int) -> Raw:
        for raw in itertools.islice(self._reads(table, spec, file), number, None):
            self._require_unchanged(table, file)
            return raw
        raise _changed(table, file)

    def _unchanged(self, table: str, file: RawFile, rows: Iterator[_Rows]) -> Iterator[_Rows]:
        """What was read of a file. Raises SourceError at the end if the file changed meanwhile."""
        yield from rows
        self._require_unchanged(table, file)

    def _require_unchanged(self, table: str, file: RawFile) -> None:
        if file.identity(anew=True) != self._identity(file):
            raise _changed(table, file)

    def _reads(self, table: str, spec: FileTable, file: RawFile) -> Iterator[Raw]:
        """The rows of a file in runs of `rows_per_part`."""
        read = self._typed if file.suffix in TYPED else self._json if file.suffix in JSON_LINES else self._csv
        return regrouped(read(table, spec, file), self._spec.rows_per_part)

    def _typed(self, table: str, spec: FileTable, file: RawFile) -> Iterator[Raw]:
        before = 0
        for batch in row_batches(table, file):
            delivered = {field.name: str(field.type) for field in batch.schema}
            check_columns(table, list(delivered), spec)
            first = before + 1

            def place(_piece: pa.Table, _row: int, index: int, first: int = first) -> str:
                return f"{file.name}, row {first + index}"

            raw = declare((batch,), spec, name=table, place=place, time_zone=self._spec.time_zone)
            yield replace(raw, columns=delivered)
            before += batch.num_rows

    def _csv(self, table: str, spec: FileTable, file: RawFile) -> Iterator[Raw]:
        texts = self._cut(table, file, file.windows(WINDOW, table), spec.delimiter.encode())
        return self._csv_rows(table, spec, file, texts)

    def _csv_rows(
        self, table: str, spec: FileTable, file: RawFile, texts: Iterator[tuple[int, bytes]], beginning: bytes = b""
    ) -> Iterator[Raw]:
        """The rows of texts, of which the first holds the header if no `beginning` of the file does."""
        if not beginning:
            _, beginning = next(texts, (0, b""))
            start = header_end(beginning, spec.delimiter.encode())
            texts = itertools.chain([(lines_in(beginning[:start]), beginning[start:])], texts)
        elif header_end(beginning, spec.delimiter.encode()) == len(beginning):
            raise SourceError(f"Table {table}: {file.name} has a header of more than {HEADER:,} bytes.")
        rows = CsvRows.open(table, file.name, spec, self._spec, beginning)
        yield from in_turn(lambda block: rows.read(*block), texts)

    def _json(self, table: str, spec: FileTable, file: RawFile) -> Iterator[Raw]:
        for lines, text in self._cut(table, file, file.windows(WINDOW, table)):

            def place(number: int, lines: int = lines) -> str:
                return f"{file.name}, line {lines + number + 1}"

            yield read_json_lines(text.split(b"\n"), spec, name=table, place=place, time_zone=self._spec.time_zone)

    def _cut(
        self,
        table: str,
        file: RawFile,
        windows: Iterable[bytes],
        delimiter: bytes = b"",
        lines: int = 0,
        left: int | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        name = f"Table {table}: {file.name}"
        return blocks(windows, longest=_LONGEST_ROW, name=name, delimiter=delimiter, lines=lines, left=left)


def parts_of(file: str, identity: str, runs: Iterable[Raw], first: int = 0, *, ends: bool = True) -> Iterator[Part]:
    """The parts that runs of rows of a file are, from number `first` on; with the last run the file `ends`."""
    ahead: Part | None = None
    for number, raw in enumerate(runs, first):
        if ahead is not None:
            yield ahead
        position = {"file": file, "identity": identity, "part": number, "last": False}
        ahead = Part(f"{identity}#{number}", partial(_same, raw), position)
    if ahead is not None:
        yield replace(ahead, position={**ahead.position, "last": ends})


def _changed(table: str, file: RawFile) -> SourceError:
    return SourceError(
        f"Table {table}: {file.name} changed while it was read. Nothing was published; run again when it is written."
    )


def _same(raw: Raw) -> Raw:
    return raw


def with_delivered(parts: Iterator[Part], spec: FileTable) -> Iterator[Part]:
    """The parts with the time that a declaration gives to all of their rows, if it gives one."""
    return (replace(part, read=partial(_delivered, part.read, spec)) for part in parts) if spec.delivered else parts


def _delivered(read: Callable[[], Raw], spec: FileTable) -> Raw:
    """The rows, with the time that all of them have."""
    raw, schema = read(), schema_of(spec.columns)
    moment = spec.delivered.replace(tzinfo=spec.delivered.tzinfo or UTC) if spec.delivered else None
    time = pa.repeat(pa.scalar(moment, TIME), raw.table.num_rows)
    table = raw.table.append_column(spec.event_time, time).select(schema.names)
    return replace(raw, table=table, columns=raw.columns and {**raw.columns, spec.event_time: str(TIME)})
