"""Takes every table of an opened source: stores its parts, has the guards judge them, and publishes."""

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gatehouse.data.snapshot.deliveries import Deliveries, Delivery, Table
from gatehouse.data.snapshot.guards import Case, judge, local_path
from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.spec import Guards, Policy, TableSpec
from gatehouse.data.snapshot.window import window_of
from gatehouse.data.sources.base import Source
from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.data.sources.declared import schema_of
from gatehouse.data.sources.files import FileTable
from gatehouse.data.sources.raw_file import RawFile
from gatehouse.data.sources.rejects import SCHEMA as REJECTED
from gatehouse.errors import DeclarationError, DeliveryError, SourceError
from gatehouse.store import memo
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_of
from gatehouse.store.manifest import Column, FileEntry, Manifest, Shard
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

ROWS_PER_SHARD = 1_048_576
_MEMO = "snapshot"
_AHEAD = timedelta(days=1)
"""More than clocks and zones differ by."""
_FEWEST_ROWS_PER_SHARD = 20
"""With fewer rows a shard, one row more or less would be more than 5 % of it."""


@dataclass(frozen=True)
class Opened:
    """What a delivery is taken with: the opened source, and what is remembered of it.

    Attributes:
        spec: The source.
        source: The source, opened.
        state: What it told of itself.
        deliveries: The earlier snapshots.
        window: The window that is wanted.
        code: Digest of the code that reads it.
        backfill: The reason for which rows of the earlier snapshot may change; empty for none.
        look: Whether it is a first look, which is held against no earlier snapshot.
    """

    spec: SourceSpec
    source: Source
    state: Mapping[str, Any]
    deliveries: Deliveries
    window: str
    code: str
    backfill: str = ""
    look: bool = False

    @property
    def key(self) -> str:
        """The memo key of what the source gives: of its content, its declaration, the window, and the code."""
        wanted = {"source": identity_of(self.spec), "window": self.window, "state": digest_of(dict(self.state))}
        return memo.memo_key(_MEMO, self.code, wanted)

    def origin(self, table: str) -> str:
        """What names the types of a table's columns: the kind of the source, with the database or the files' format.

        Files have the names of their format wherever they are, in an archive too, and whatever they are called.
        """
        state, spec = self.state[table], self.spec.tables[table]
        if isinstance(spec, FileTable):
            names = [file["name"] for file in state.get("files", ())] or [spec.member]
            return f"files ({', '.join(sorted({RawFile(name, '').format for name in names}))})"
        return f"{self.spec.kind} ({state['dialect']})" if "dialect" in state else self.spec.kind


def recalled(opened: Opened, store: ArtifactStore) -> Delivery | None:
    """The delivery that gave the same content before, read in the same way; None where none did, or it is not whole.

    Where it is the newest, what guards said of it then still counts; where another came since, this one is held
    against that, and recorded as the newest.

    Raises:
        DeliveryError: if a guard refuses it.
    """
    found = memo.recall(store, _MEMO, opened.key)
    delivery = opened.deliveries.of(found["snapshot"]) if found else None
    if delivery is None or not _all_intact(delivery, store):
        return None
    newest = opened.deliveries.newest()
    if opened.look or (newest is not None and newest.snapshot == delivery.snapshot):
        return delivery
    warnings = _judged(opened, {name: table.parts for name, table in delivery.tables.items()}, store)
    delivery = replace(delivery, warnings=tuple(warnings), backfill=opened.backfill, look=False)
    opened.deliveries.add(delivery)
    return delivery


def _all_intact(delivery: Delivery, store: ArtifactStore) -> bool:
    """Whether the tables of a delivery are. Each is looked at, so that all damage is put aside at once."""
    found = [store.intact(table.dataset, logger.warning) for table in delivery.tables.values()]
    return all(found)


def take(opened: Opened, store: ArtifactStore, *, anew: bool = False) -> Delivery:
    """Read, judge and publish every table; nothing is published before everything is read and judged.

    Args:
        opened: The source.
        store: Where it is published.
        anew: Read everything again that the source still has, and verify the blobs of what it has not.

    Raises:
        SourceError: if the source cannot be read as declared, a table has no rows, or too many were set aside.
        DeliveryError: if a guard refuses what was delivered.
    """
    spec, window = opened.spec, opened.window
    warnings = _lost(opened)
    parts = {name: _stored(name, table, opened, store, anew) for name, table in spec.tables.items()}
    for name, table in spec.tables.items():
        _require_rows(name, table, parts[name], window)
    if not any(table.event_time for table in spec.tables.values()):
        raise SourceError(f"Source {spec.name}: no table states its event_time, so the snapshot has no watermark.")
    warnings += _judged(opened, parts, store)
    tables: dict[str, Table] = {}
    for name, table in spec.tables.items():
        dataset = _publish_table(name, table, parts[name], store)
        rejected = _publish_rejected(name, parts[name], dataset, store)
        rows, reading = sum(part.rows for part in parts[name]), reading_of(spec, name, window, opened.code)
        origin = opened.origin(name)
        tables[name] = Table(str(dataset), rows, reading, parts[name], table.event_time, rejected, origin, table.times)
    manifest = Manifest(
        "snapshots",
        spec.name,
        files=(),
        derived_from={name: table.dataset for name, table in tables.items()},
        details={"as_of": as_of(spec, tables), "window": window},
    )
    delivery = Delivery(str(manifest.reference), tables, opened.state, tuple(warnings), opened.backfill, opened.look)
    # The record comes first, so that a run that is killed here leaves no snapshot without one.
    opened.deliveries.add(delivery)
    store.adopt(manifest, _no_file)
    aside = [table.rejected for table in tables.values() if table.rejected]
    if memo.remember(store, _MEMO, opened.key, {"snapshot": delivery.snapshot, "rejected": aside}):
        return delivery
    warning = (
        f"Source {spec.name} says that it is as it was, and gave other rows than then: {delivery.snapshot}. "
        "Have it tell another state when its rows change."
    )
    logger.warning("%s", warning)
    return replace(delivery, warnings=(*warnings, warning))


def _no_file(entry: FileEntry) -> bytes:
    raise AssertionError(f"a snapshot holds no files of its own, found {entry.path}")


def _lost(opened: Opened) -> list[str]:
    """A warning where the store holds an earlier snapshot, but no record of what it was read from.

    Raises:
        SourceError: if what was read of a source that forgets is not known, and no reason for going on is given.
    """
    snapshot = opened.deliveries.unrecorded()
    if not snapshot:
        return []
    if opened.spec.forgets and not opened.backfill:
        raise SourceError(
            f"Source {opened.spec.name}: the store holds {snapshot}, but no usable record of what it was read from. "
            "Rows that the source dropped since then would be missing in the next snapshot. Restore "
            f"sources/{opened.spec.name} in the store from a copy, or run again with a reason as `backfill` to start "
            "over with what the source still has."
        )
    warning = (
        f"The parts of {snapshot} are not on record, so no guard could hold this delivery against it. "
        "Compare the rows yourself."
    )
    logger.warning("%s", warning)
    return [warning]


def reading_of(spec: SourceSpec, table: str, window: str, code: str) -> str:
    """Digest of all that decides how a part becomes a blob, beside its content."""
    own = _without(identity_of(spec.tables[table]), "guards", "shards", "member")
    return digest_of([own, _without(identity_of(spec), "tables", "name"), window, code])


def _without(identity: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name not in names}


def as_of(spec: SourceSpec, tables: Mapping[str, Table]) -> str:
    """When the newest row of any table is known, ISO 8601 in UTC; tables without event times do not count."""
    moments = (
        datetime.fromisoformat(tables[name].last) + table.availability_lag
        for name, table in spec.tables.items()
        if table.event_time
    )
    return max(moments).isoformat()


def by_the_clock(spec: SourceSpec, delivery: Delivery, now: datetime) -> tuple[str, ...]:
    """Warnings for tables whose newest row is older than it may be, or of the future.

    The clock is read at every look, as a source that does not change grows old too.

    Raises:
        DeliveryError: if there is such a table, and its guard says `fail`.
    """
    failed: list[str] = []
    warned: list[str] = []
    for name, table in spec.tables.items():
        if last := delivery.tables[name].last:
            for guard, policy, found in _by_the_clock(table.guards, datetime.fromisoformat(last), now):
                (failed if policy == "fail" else warned).append(f"Table {name}: {guard}: {found}")
    if failed:
        raise DeliveryError(" ".join(failed))
    return tuple(warned)


def _by_the_clock(guards: Guards, newest: datetime, now: datetime) -> Iterator[tuple[str, Policy, str]]:
    """Guard, policy and finding for a table whose newest row is of `newest`."""
    limit = guards.stale_after
    if limit is not None and guards.stale != "accept" and now - newest > limit:
        age, most = (round(span.total_seconds() / 3600, 1) for span in (now - newest, limit))
        old = f"the newest row, of {newest.isoformat()}, is {age:g} hours old, expected {most:g} at most"
        yield "stale", guards.stale, f"{old}. Look why the source stands still."
    if guards.future != "accept" and newest - now > _AHEAD:
        ahead = f"the newest row is of {newest.isoformat()}, expected none after today, {now.date()}"
        yield (
            "future",
            guards.future,
            f"{ahead}: it decides the snapshot's time, and where a split cuts. Correct the times, or set "
            "guards.future: accept if they are meant.",
        )


def _stored(name: str, table: TableSpec, opened: Opened, store: ArtifactStore, anew: bool) -> tuple[Stored, ...]:
    spec = opened.spec
    earlier = opened.deliveries.newest()
    known_table = earlier.tables.get(name) if earlier else None
    # What a stream dropped cannot be read again: its parts stay, and their fingerprints hold what is declared.
    reading = reading_of(spec, name, opened.window, opened.code)
    same = known_table is not None and known_table.reading == reading
    if not spec.forgets and (anew or not same):
        known_table = None
    before = known_table.parts if known_table else ()
    known = {part.fingerprint: part for part in before if part.fingerprint}
    told = tuple(part.known() for part in before)
    parts = opened.source.parts(name, told)
    return tuple(store_parts(parts, table, window_of(opened.window), known, store, verify=anew))


def _require_rows(name: str, spec: TableSpec, parts: tuple[Stored, ...], window: str) -> None:
    read, aside = sum(part.read for part in parts), sum(part.aside for part in parts)
    reason = next((part.reason for part in parts if part.aside), "")
    if not read and aside:
        raise DeclarationError(
            f"Table {name}: all {aside:,} rows were rejected, so nothing is left. "
            f"{reason}. Correct the declaration; `on_invalid: fail` shows "
            "the first value."
        )
    if aside > spec.reject_limit * (read + aside):
        raise DeclarationError(
            f"Table {name}: {aside:,} of {read + aside:,} rows do not fit their declaration, expected at most a share "
            f"of {spec.reject_limit:g}. {reason}. Correct the delivery or "
            "the declaration, or raise reject_limit."
        )
    if not read:
        raise SourceError(f"Table {name}: the source has no rows. Check the source.")
    if window and spec.event_time and not any(part.rows for part in parts):
        raise SourceError(f"Table {name}: no row has its {spec.event_time} within {window}. Widen the window.")
    if spec.event_time and not any(part.last for part in parts):
        raise SourceError(f"Table {name}: column {spec.event_time} is null in every row, so it states no event time.")


def _judged(opened: Opened, parts: Mapping[str, tuple[Stored, ...]], store: ArtifactStore) -> list[str]:
    earlier = None if opened.look else opened.deliveries.newest()
    warnings = []
    with store.workspace() as workspace:
        for name, table in opened.spec.tables.items():
            before = earlier.tables.get(name) if earlier else None
            path = partial(local_path, store)
            same = earlier is not None and earlier.state.get(name) == opened.state[name]
            case = Case(name, table, parts[name], opened.origin(name), before, path, workspace, same)
            warnings += judge(case, opened.backfill)
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def _publish_table(name: str, spec: TableSpec, parts: tuple[Stored, ...], store: ArtifactStore) -> Reference:
    blobs = [part.blob for part in parts if part.blob]
    rows = sum(blob.rows for blob in blobs)
    return store.publish(
        "datasets",
        name,
        {path: blob.entry(path) for path, blob in zip(file_names(len(blobs)), blobs, strict=True)},
        columns=[Column(each.name, str(each.type), each.nullable) for each in schema_of(spec.columns)],
        rows=rows,
        shards=shards(rows, spec.shards),
        details={"sensitive": sorted(spec.sensitive)} if spec.sensitive else {},
    )


def _publish_rejected(name: str, parts: tuple[Stored, ...], dataset: Reference, store: ArtifactStore) -> str:
    """Publish the rows of a table that were set aside; gives their reference, empty where there are none."""
    blobs = [part.rejected for part in parts if part.rejected]
    if not blobs:
        return ""
    return str(
        store.publish(
            "rejected",
            name,
            {path: blob.entry(path) for path, blob in zip(file_names(len(blobs)), blobs, strict=True)},
            columns=[Column(column.name, str(column.type)) for column in REJECTED],
            rows=sum(blob.rows for blob in blobs),
            derived_from={"dataset": dataset},
        )
    )


def file_names(count: int) -> list[str]:
    """Names of so many files that sort in their order."""
    width = max(5, len(str(count - 1)))
    return [f"part-{index:0{width}d}.parquet" for index in range(count)]


def shards(rows: int, count: int = 0) -> list[Shard]:
    """Row ranges over all files of a table, of sizes that differ by one row at most.

    Args:
        rows: Rows of the table.
        count: How many; 0 for one every `ROWS_PER_SHARD` rows. Never so many that one row is over 5 % of a shard.
    """
    wanted = count or -(-rows // ROWS_PER_SHARD)
    chosen = max(1, min(wanted, rows // _FEWEST_ROWS_PER_SHARD))
    bounds = [index * rows // chosen for index in range(chosen + 1)]
    return [Shard("", start, stop - start) for start, stop in itertools.pairwise(bounds)]
