"""Turns the parts of a table into blobs: read, typed, digested, written and hashed side by side, a few at a time."""

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.data.snapshot.logical_digest import logical_digest
from gatehouse.data.snapshot.spec import TableSpec
from gatehouse.data.sources.base import KnownPart, Part, Raw
from gatehouse.data.sources.rejects import REPEATED, Reject
from gatehouse.data.sources.times import EPOCH, FIRST_TIME, LAST_TIME
from gatehouse.errors import ConfigurationError, CorruptArtifactError, SourceError
from gatehouse.runtime.limits import processors
from gatehouse.store.manifest import FileEntry
from gatehouse.store.store import ArtifactStore

THREADS = "GATEHOUSE_INGEST_THREADS"
ROWS_PER_GROUP = 131_072
_MOST_THREADS = 4


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
    """A part that was stored, and all that is remembered of it.

    Attributes:
        fingerprint: What identified it before it was read; empty where the source cannot tell.
        position: Where the source goes on after it.
        blob: Its rows; None where it has none.
        digest: Logical digest of its rows.
        first: Oldest event time, ISO 8601 in UTC; empty without one.
        last: Newest event time.
        read: Number of rows that fit their declaration, in the window or not.
        rejected: Rows that were set aside; None where there are none.
        reason: Why the first of them was, without its value: no erasure reaches a record.
        columns: Name and type of the columns as the source delivered them; empty where it does not tell.
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

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return self.blob.rows if self.blob else 0

    @property
    def aside(self) -> int:
        """Number of rows that were set aside."""
        return self.rejected.rows if self.rejected else 0

    def known(self) -> KnownPart:
        """What a source is told of it."""
        return KnownPart(self.fingerprint, self.rows, self.position)

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
    known: Mapping[str, Stored],
    store: ArtifactStore,
    *,
    verify: bool = False,
) -> list[Stored]:
    """Store every part, in order. A part that is known, and whose blobs are in the store, is not read.

    As many parts are in memory as there are threads. The result does not depend on their number.

    Args:
        parts: What the source yields.
        spec: The table.
        window: Only rows whose event time is in it; None for all.
        known: Parts of earlier snapshots of the same source, declaration, window and code, by fingerprint.
        store: Where the blobs go.
        verify: Read the bytes of known blobs rather than believe their length.

    Raises:
        CorruptArtifactError: if the bytes of a known blob were altered.
    """
    threads = thread_count()
    there = _those_there(known, store)
    if verify:
        for held_part in there.values():
            _verify(held_part, store)
    waiting: deque[Future[Stored]] = deque()
    done: list[Stored] = []
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ingest")
    try:
        for part in parts:
            held = there.get(part.fingerprint) if part.fingerprint else None
            if held is not None:
                future: Future[Stored] = Future()
                future.set_result(Stored(**{**vars(held), "position": dict(part.position)}))
            else:
                future = pool.submit(_store, part, spec, window, store)
            waiting.append(future)
            del part
            while sum(not one.done() for one in waiting) >= threads or (waiting and waiting[0].done()):
                done.append(waiting.popleft().result())
        done += [one.result() for one in waiting]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return done


def thread_count() -> int:
    """Threads that read parts: what the environment says, else one a core and at most four.

    Raises:
        ConfigurationError: if the environment says no positive number.
    """
    given = os.environ.get(THREADS, "")
    if not given:
        return min(_MOST_THREADS, processors())
    if not given.isdigit() or int(given) < 1:
        raise ConfigurationError(f"{THREADS}: expected a positive number of threads, found {given!r}.")
    return int(given)


def _those_there(known: Mapping[str, Stored], store: ArtifactStore) -> dict[str, Stored]:
    """The known parts whose blobs the store has, in full length."""
    blobs = {name: [blob for blob in (part.blob, part.rejected) if blob] for name, part in known.items()}
    found = store.objects.stats({blob.key for each in blobs.values() for blob in each})
    held = {key: stat.bytes if stat else None for key, stat in found.items()}
    whole = {name for name, each in blobs.items() if all(held[one.key] == one.bytes for one in each)}
    return {name: part for name, part in known.items() if name in whole}


def _verify(part: Stored, store: ArtifactStore) -> None:
    for blob in (part.blob, part.rejected):
        key = blob.key if blob else ""
        if blob and (found := _sha256(store, key)) != blob.sha256:
            raise CorruptArtifactError(
                f"The store {store.address} holds {key} with other bytes: its SHA-256 is {found}. The source may not "
                "have these rows any more. Restore the blob from a copy."
            )


def _sha256(store: ArtifactStore, key: str) -> str:
    store.objects.forget(key)
    with open(store.objects.local_path(key), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _store(part: Part, spec: TableSpec, window: tuple[datetime, datetime] | None, store: ArtifactStore) -> Stored:
    raw: Raw = part.read()
    table = raw.table
    if window and spec.event_time:
        table = _within(table, spec.event_time, *window)
    first, last = _span(table, spec)
    aside = raw.rejected if raw.rejected is not None and raw.rejected.num_rows else None
    return Stored(
        fingerprint=part.fingerprint,
        position=dict(part.position),
        blob=_blob(table, store) if table.num_rows else None,
        digest=logical_digest(table),
        first=first,
        last=last,
        read=raw.table.num_rows,
        rejected=_blob(aside, store, REPEATED) if aside is not None else None,
        reason=str(Reject(**aside.slice(0, 1).to_pylist()[0])._replace(found="")) if aside is not None else "",
        columns=dict(raw.columns or {}),
    )


def _within(table: pa.Table, event_time: str, start: datetime, end: datetime) -> pa.Table:
    """The rows whose event time is in [start, end)."""
    times = table[event_time]
    chosen = pc.and_(pc.greater_equal(times, pa.scalar(start, times.type)), pc.less(times, pa.scalar(end, times.type)))
    return table.filter(chosen)


def _span(table: pa.Table, spec: TableSpec) -> tuple[str, str]:
    if not spec.event_time or not table.num_rows:
        return "", ""
    found = pc.min_max(table[spec.event_time].cast(pa.int64())).as_py()
    if found["min"] is None:
        return "", ""
    lag = spec.availability_lag // timedelta(microseconds=1)
    for time in (found["min"], found["max"] + lag):
        if not FIRST_TIME <= time <= LAST_TIME:
            raise SourceError(
                f"The event time {spec.event_time} is {time:,} microseconds after 1970 in a row, with the availability "
                "lag: expected the years 1 to 9999. Correct the row, or leave it out."
            )
    return iso(found["min"]), iso(found["max"])


def iso(microseconds: int) -> str:
    """A time since 1970 as ISO 8601 in UTC. Arrow's own conversion of a time with a zone loads pandas for it."""
    return (EPOCH + timedelta(microseconds=microseconds)).isoformat()


def _blob(table: pa.Table, store: ArtifactStore, repeated: Sequence[str] | bool = True) -> Blob:
    """Keep a table; `repeated` are columns whose values occur many times, by default any."""
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
