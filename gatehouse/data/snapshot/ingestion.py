"""Takes every table of an opened source: stores its parts, has the guards judge them, and publishes."""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gatehouse.data.snapshot.deliveries import Deliveries, Delivery, Table
from gatehouse.data.snapshot.file_pieces import store_table
from gatehouse.data.snapshot.guards import TableDelivery, guard_warnings
from gatehouse.data.snapshot.parts import Blob, Stored
from gatehouse.data.snapshot.spec import Policy, TableSpec
from gatehouse.data.sources.base import Source
from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.data.sources.declared import SCHEMA as REJECTED
from gatehouse.data.sources.declared import schema_of
from gatehouse.errors import DeclarationError, DeliveryError, SourceError
from gatehouse.store import memo
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_of
from gatehouse.store.manifest import Column, FileEntry, Manifest, Shard
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
    """An opened source with its history. With a reason as `backfill`, rows of the earlier snapshot may change."""

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
        """The memo key: of the source's content, its declaration, the window, and the code."""
        inputs = {"source": identity_of(self.spec), "window": self.window, "state": digest_of(dict(self.state))}
        return memo.memo_key(_MEMO, self.code, inputs)

    def reading(self, table: str) -> str:
        """Digest of all that decides how a part becomes a blob, beside its content."""

        def without(identity: Mapping[str, Any], *names: str) -> dict[str, Any]:
            return {name: value for name, value in identity.items() if name not in names}

        declared = without(identity_of(self.spec.tables[table]), "guards", "shards", "member")
        return digest_of([declared, without(identity_of(self.spec), "tables", "name"), self.window, self.code])


def recalled(opened: Opened, store: ArtifactStore) -> Delivery | None:
    """The earlier delivery of the same content, read in the same way; None for none, or if it is not whole.

    If another delivery came since, this one is compared with that, and recorded as the newest. Raises DeliveryError if
    a guard refuses it.
    """
    entry = memo.recall(store, _MEMO, opened.key)
    delivery = opened.deliveries.of(entry["snapshot"]) if entry else None
    if delivery is None:
        return None
    # Every table is checked, so that all damage is put aside at once.
    damaged = [name for name, table in delivery.tables.items() if not store.intact(table.dataset, logger.warning)]
    if damaged:
        return None
    newest = opened.deliveries.newest()
    if opened.look or (newest is not None and newest.snapshot == delivery.snapshot):
        return delivery
    warnings = _judged(opened, {name: table.parts for name, table in delivery.tables.items()}, store)
    delivery = replace(delivery, warnings=tuple(warnings), backfill=opened.backfill, look=False)
    opened.deliveries.add(delivery)
    return delivery


def take(opened: Opened, store: ArtifactStore, *, anew: bool = False) -> Delivery:
    """Read, judge and publish every table; nothing is published before everything is read and judged.

    With `anew` everything is read again. Raises SourceError if the source cannot be read as declared, and DeliveryError
    if a guard refuses what was delivered.
    """
    spec, window = opened.spec, opened.window
    newest, parts = opened.deliveries.newest(), dict[str, tuple[Stored, ...]]()
    for name in spec.tables:
        earlier = newest.tables.get(name) if newest else None
        before = earlier.parts if earlier and not anew and earlier.reading == opened.reading(name) else ()
        parts[name] = tuple(store_table(opened.source, spec, name, window, opened.state[name], before, store))
    for name, table in spec.tables.items():
        _require_rows(name, table, parts[name], window)
    warnings = _judged(opened, parts, store)
    tables: dict[str, Table] = {}
    for name, table in spec.tables.items():
        dataset, rows, rejected = _publish(name, table, parts[name], store)
        reading = opened.reading(name)
        tables[name] = Table(dataset, rows, reading, parts[name], table.event_time, rejected, table.times)
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
    rejected_rows = [table.rejected for table in tables.values() if table.rejected]
    if memo.remember(store, _MEMO, opened.key, {"snapshot": delivery.snapshot, "rejected": rejected_rows}):
        return delivery
    warning = f"Source {spec.name} has the same state as for {delivery.snapshot}, and gave other rows."
    logger.warning("%s", warning)
    return replace(delivery, warnings=(*warnings, warning))


def _no_file(entry: FileEntry) -> bytes:
    raise AssertionError(f"a snapshot holds no files of its own, found {entry.path}")


def as_of(spec: SourceSpec, tables: Mapping[str, Table]) -> str:
    """When the newest row of any table is known, ISO 8601 in UTC; empty where no table has event times."""
    moments = [
        datetime.fromisoformat(tables[name].last) + table.availability_lag
        for name, table in spec.tables.items()
        if table.event_time
    ]
    return max(moments).isoformat() if moments else ""


def by_the_clock(spec: SourceSpec, delivery: Delivery, now: datetime) -> tuple[str, ...]:
    """Warnings for tables whose newest row is too old, or of the future; judged at every look.

    Raises DeliveryError if there is such a table, and its guard says `fail`.
    """
    messages: dict[Policy, list[str]] = {"fail": [], "warn": [], "accept": []}
    for name, table in spec.tables.items():
        if not delivery.tables[name].last:
            continue
        guards, newest = table.guards, datetime.fromisoformat(delivery.tables[name].last)
        row = f"the newest row is of {newest.isoformat()}"
        if guards.stale_after is not None and now - newest > guards.stale_after:
            text = f"Table {name}: stale: {row}, expected one of the last {guards.stale_after}."
            messages[guards.stale].append(text)
        if newest - now > _AHEAD:
            expected = f"expected none after today, {now.date()} (or guards.future: accept)"
            messages[guards.future].append(f"Table {name}: future: {row}, {expected}.")
    if messages["fail"]:
        raise DeliveryError(" ".join(messages["fail"]))
    return tuple(messages["warn"])


def _require_rows(name: str, spec: TableSpec, parts: tuple[Stored, ...], window: str) -> None:
    read, rejected = sum(part.read for part in parts), sum(part.rejected_rows for part in parts)
    reason = next((part.reason for part in parts if part.rejected), "")
    if rejected and (not read or rejected > spec.reject_limit * (read + rejected)):
        raise DeclarationError(
            f"Table {name}: {rejected:,} of {read + rejected:,} rows do not fit their declaration, expected at most a "
            f"share of {spec.reject_limit:g}, and some that fit. {reason}. Correct the delivery or the declaration, or "
            "raise reject_limit."
        )
    if not read:
        raise SourceError(f"Table {name}: the source has no rows. Check the source.")
    if window and spec.event_time and not any(part.rows for part in parts):
        raise SourceError(f"Table {name}: no row has its {spec.event_time} within {window}. Widen the window.")
    if spec.event_time and not any(part.last for part in parts):
        raise SourceError(f"Table {name}: column {spec.event_time} is null in every row, so it states no event time.")


def _judged(opened: Opened, parts: Mapping[str, tuple[Stored, ...]], store: ArtifactStore) -> list[str]:
    def path(part: Stored) -> Path:
        assert part.blob is not None
        return store.objects.local_path(part.blob.key)

    newest = None if opened.look else opened.deliveries.newest()
    warnings = []
    with store.workspace() as workspace:
        for name, table in opened.spec.tables.items():
            earlier = newest.tables.get(name) if newest else None
            same = newest is not None and newest.state.get(name) == opened.state[name]
            delivery = TableDelivery(name, table, parts[name], earlier, path, workspace, same)
            warnings += guard_warnings(delivery, opened.backfill)
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def _publish(name: str, spec: TableSpec, parts: tuple[Stored, ...], store: ArtifactStore) -> tuple[str, int, str]:
    """Publish a table: the reference and rows of the dataset, and the reference of its rejected rows."""

    def files(blobs: list[Blob]) -> dict[str, FileEntry]:
        width = max(5, len(str(len(blobs) - 1)))  # so that their names sort in their order
        paths = [f"part-{index:0{width}d}.parquet" for index in range(len(blobs))]
        return {path: blob.entry(path) for path, blob in zip(paths, blobs, strict=True)}

    blobs, rejected = [part.blob for part in parts if part.blob], [part.rejected for part in parts if part.rejected]
    rows = sum(blob.rows for blob in blobs)
    dataset = store.publish(
        "datasets",
        name,
        files(blobs),
        columns=[Column(column.name, str(column.type), column.nullable) for column in schema_of(spec.columns)],
        rows=rows,
        shards=shards(rows, spec.shards),
        details={"sensitive": sorted(spec.sensitive)} if spec.sensitive else {},
    )
    if not rejected:
        return str(dataset), rows, ""
    reference = store.publish(
        "rejected",
        name,
        files(rejected),
        columns=[Column(column.name, str(column.type)) for column in REJECTED],
        rows=sum(blob.rows for blob in rejected),
        derived_from={"dataset": dataset},
    )
    return str(dataset), rows, str(reference)


def shards(rows: int, count: int = 0) -> list[Shard]:
    """Row ranges over all files of a table, of nearly equal sizes; by default one per `ROWS_PER_SHARD` rows.

    There are never so many that one row is over 5 % of a shard.
    """
    most = rows // _FEWEST_ROWS_PER_SHARD
    chosen = max(1, min(count or -(-rows // ROWS_PER_SHARD), most))
    bounds = [index * rows // chosen for index in range(chosen + 1)]
    return [Shard("", start, stop - start) for start, stop in itertools.pairwise(bounds)]
