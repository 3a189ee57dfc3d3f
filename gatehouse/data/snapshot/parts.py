"""Turns the parts of a table into blobs: read, typed, digested, written and hashed side by side, a few at a time.

The logical digest of a part is one of its rows: equal for equal rows, whatever wrote them and however Arrow holds them.
It covers for each column its type, which rows are null, the lengths of its texts, and its values with zero where a row
is null. So neither the Parquet writer, nor the borders of batches, nor the bytes under a null make a difference. Values
count by their bits: 0.0 and -0.0 differ, and so do two kinds of NaN. xxHash (XXH3, 128 bits) finds accidental changes;
against somebody who forges rows the SHA-256 of the blobs stands beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from gatehouse.data.snapshot.spec import TableSpec
from gatehouse.data.sources.base import Part, Raw
from gatehouse.data.sources.declared import EPOCH, FIRST_TIME, LAST_TIME, REPEATED, Reject
from gatehouse.errors import SourceError
from gatehouse.runtime.in_turn import in_turn
from gatehouse.store.canonical import digest_of
from gatehouse.store.manifest import FileEntry
from gatehouse.store.store import ArtifactStore

ROWS_PER_GROUP = 131_072


@dataclass(frozen=True)
class Blob:
    """Where the rows of a part lie in the store."""

    sha256: str
    bytes: int
    rows: int

    def entry(self, path: str) -> FileEntry:
        """The blob as a file of an artifact."""
        return FileEntry(path, self.sha256, self.bytes, self.rows, ".parquet")

    @property
    def key(self) -> str:
        """The key of its bytes in the store."""
        return self.entry("rows.parquet").blob


@dataclass(frozen=True)
class Stored:
    """A part that was stored, as its record keeps it.

    The fingerprint identifies its content before it is read, and is empty if the source cannot tell; `position` is
    where the source goes on after it. `first` and `last` are event times, ISO 8601 in UTC. `reason` says why the first
    row was rejected, without its value: no erasure reaches a record. `columns` are those of the source. `nan` counts
    values that are NaN and were read as missing, by column.
    """

    fingerprint: str = ""
    position: Mapping[str, Any] = field(default_factory=dict)
    blob: Blob | None = None
    digest: str = ""
    first: str = ""
    last: str = ""
    read: int = 0
    rejected: Blob | None = None
    reason: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    nan: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return self.blob.rows if self.blob else 0

    @property
    def rejected_rows(self) -> int:
        """Number of rows that were rejected."""
        return self.rejected.rows if self.rejected else 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without what is empty."""
        # `asdict` copies every value of every part, which is most of what a record of many parts costs.
        body = {key: vars(value) if isinstance(value, Blob) else value for key, value in vars(self).items() if value}
        # Records sort their keys, and the order of columns is the source's.
        return body | {"columns": list(self.columns.items())} if self.columns else body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Stored":
        """The part that `to_json` wrote."""
        blobs = {key: Blob(**body[key]) for key in ("blob", "rejected") if key in body}
        return cls(**{**body, **blobs, "columns": dict(body.get("columns", ()))})


def store_parts(
    parts: Iterator[Part],
    spec: TableSpec,
    window: tuple[datetime, datetime] | None,
    earlier_parts: Mapping[str, Stored],
    store: ArtifactStore,
) -> list[Stored]:
    """Store every part, in order. A part that is known, and whose blobs are in the store, is not read.

    A few parts are in memory at a time. `earlier_parts` are those of earlier snapshots of the same source, declaration,
    window and code, by fingerprint.
    """
    blobs = {name: [blob for blob in (part.blob, part.rejected) if blob] for name, part in earlier_parts.items()}
    stats = store.objects.stats({blob.key for pair in blobs.values() for blob in pair})
    sizes = {key: stat.bytes if stat else None for key, stat in stats.items()}
    present = {name for name, pair in blobs.items() if all(sizes[blob.key] == blob.bytes for blob in pair)}

    def stored(part: Part) -> Stored:
        if part.fingerprint in present:
            return replace(earlier_parts[part.fingerprint], position=dict(part.position))
        return _store(part, spec, window, store)

    return list(in_turn(stored, parts))


def _store(part: Part, spec: TableSpec, window: tuple[datetime, datetime] | None, store: ArtifactStore) -> Stored:
    raw: Raw = part.read()
    table, nan = raw.table, dict[str, int]()
    for place, column in enumerate(table.column_names):
        if spec.takes_nan_for_missing(column) and pc.any(missing := pc.is_nan(table[column])).as_py():
            nan[column] = pc.sum(missing).as_py()
            table = table.set_column(place, table.field(place), pc.if_else(missing, None, table[column]))
    if window and spec.event_time:
        times = table[spec.event_time]
        start, end = (pa.scalar(bound, times.type) for bound in window)
        table = table.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
    first, last = _span(table, spec)
    rejected = raw.rejected if raw.rejected is not None and raw.rejected.num_rows else None
    return Stored(
        fingerprint=part.fingerprint,
        position=dict(part.position),
        blob=_blob(table, store) if table.num_rows else None,
        digest=logical_digest(table),
        first=first,
        last=last,
        read=raw.table.num_rows,
        rejected=_blob(rejected, store, REPEATED) if rejected is not None else None,
        reason=str(Reject(**rejected.slice(0, 1).to_pylist()[0])._replace(observed="")) if rejected is not None else "",
        columns=dict(raw.columns or {}),
        nan=nan,
    )


def _span(table: pa.Table, spec: TableSpec) -> tuple[str, str]:
    """Oldest and newest event time, ISO 8601 in UTC; empty without one."""
    if not spec.event_time or not table.num_rows:
        return "", ""
    # Arrow's own conversion of a time with a zone loads pandas.
    span = pc.min_max(table[spec.event_time].cast(pa.int64())).as_py()
    if span["min"] is None:
        return "", ""
    lag = spec.availability_lag // timedelta(microseconds=1)
    for time in (span["min"], span["max"] + lag):
        if not FIRST_TIME <= time <= LAST_TIME:
            raise SourceError(
                f"The event time {spec.event_time} is {time:,} microseconds after 1970 in a row, with the availability "
                "lag: expected the years 1 to 9999. Correct the row, or leave it out."
            )
    first, last = (EPOCH + timedelta(microseconds=span[end]) for end in ("min", "max"))
    return first.isoformat(), last.isoformat()


def _blob(table: pa.Table, store: ArtifactStore, repeated: Sequence[str] | bool = True) -> Blob:
    """Store a table; `repeated` are columns whose values occur many times, by default any."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(None),
        sink,
        compression="zstd",
        use_dictionary=repeated,
        row_group_size=ROWS_PER_GROUP,
        version="2.6",
    )
    entry = store.keep("part.parquet", sink.getvalue().to_pybytes(), table.num_rows)
    return Blob(entry.sha256, entry.bytes, table.num_rows)


def logical_digest(table: pa.Table) -> str:
    """The digest of a table's rows in their order, as 64 hexadecimal digits; string, bool, number and time columns."""
    columns = [[field.name, str(field.type), _column(table[field.name])] for field in table.schema]
    return digest_of({"rows": table.num_rows, "columns": columns})


def _column(column: pa.ChunkedArray) -> list[str]:
    """Digests of which rows are null, of the lengths of texts, and of the values."""
    nulls, lengths, values = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()
    for array in column.chunks:
        if column.null_count:
            nulls.update(_values(pc.cast(array.is_valid(), pa.uint8()), 1))
        if pa.types.is_boolean(array.type):
            array = pc.cast(array, pa.uint8())
        elif pa.types.is_timestamp(array.type):
            array = array.view(pa.int64())
        filled = array
        if array.null_count:
            # Zero, or the empty text. `pa.scalar` loads pandas for it, which takes longer than a digest.
            zeros = [pa.py_buffer(bytes(16))] * (2 if pa.types.is_string(array.type) else 1)
            filled = pc.fill_null(array, pa.Array.from_buffers(array.type, 1, [None, *zeros])[0])
        if not pa.types.is_string(array.type):
            values.update(_values(filled, array.type.bit_width // 8))
            continue
        lengths.update(_values(pc.binary_length(filled), 4))
        _, offsets, data = filled.buffers()
        if len(filled) and data is not None:
            ends = memoryview(offsets).cast("i")
            values.update(memoryview(data)[ends[filled.offset] : ends[filled.offset + len(filled)]])
    return [nulls.hexdigest(), lengths.hexdigest(), values.hexdigest()]


def _values(array: pa.Array, width: int) -> memoryview:
    buffer = array.buffers()[1]
    start = array.offset * width
    return memoryview(buffer)[start : start + len(array) * width] if buffer is not None else memoryview(b"")
