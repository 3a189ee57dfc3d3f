"""Takes every table of an opened source: stores its parts, has the guards judge them, and publishes."""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from gatehouse.components.artifacts.canonical import canonical_json, digest_of
from gatehouse.components.artifacts.manifest import Column, Manifest, Shard
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore, manifest_of
from gatehouse.components.snapshot.deliveries import Deliveries, Delivery, Table
from gatehouse.components.snapshot.guards import Case, judge, local_path
from gatehouse.components.snapshot.parts import Stored, store_parts
from gatehouse.components.snapshot.sources.base import Source
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.components.snapshot.sources.declared import schema_of
from gatehouse.components.snapshot.spec import TableSpec
from gatehouse.components.snapshot.window import window_of
from gatehouse.errors import DeliveryError, SourceError

logger = logging.getLogger(__name__)

ROWS_PER_SHARD = 1_048_576
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
    """

    spec: SourceSpec
    source: Source
    state: Mapping[str, Any]
    deliveries: Deliveries
    window: str
    code: str
    backfill: str = ""


@dataclass(frozen=True)
class Taken:
    """The references that a delivery was published under, and what the guards said: see `SnapshotResult`."""

    snapshot: str
    as_of: str
    rows: dict[str, int]
    rejected: dict[str, str]
    warnings: tuple[str, ...]


def take(opened: Opened, store: ArtifactStore, *, anew: bool = False) -> Taken:
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
    rejected: dict[str, str] = {}
    for name, table in spec.tables.items():
        if aside := _publish_rejected(name, parts[name], store):
            rejected[name] = str(aside)
        dataset = _publish_table(name, table, parts[name], rejected.get(name, ""), store)
        rows, reading = sum(part.rows for part in parts[name]), reading_of(spec, name, window, opened.code)
        tables[name] = Table(str(dataset), rows, reading, parts[name], table.event_time)
    as_of = max(watermark(table, parts[name]) for name, table in spec.tables.items())
    manifest, content = _snapshot(opened, as_of, tables)
    snapshot = str(manifest.reference)
    # The record comes first, so that a run that is killed here leaves no snapshot without one.
    opened.deliveries.add(Delivery(snapshot, tables, tuple(warnings), opened.backfill))
    store.adopt(manifest, lambda entry: content[entry.path])
    counts = {name: table.rows for name, table in tables.items()}
    return Taken(snapshot, as_of, counts, rejected, tuple(warnings))


def _snapshot(opened: Opened, as_of: str, tables: Mapping[str, Table]) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest of a snapshot and its files."""
    fingerprint = digest_of(dict(opened.state))
    described = {"fingerprint": fingerprint, "window": opened.window, "state": dict(opened.state)}
    counts = {name: table.rows for name, table in tables.items()}
    content = {"source.json": canonical_json(described | {"rows": counts}).encode()}
    manifest = replace(
        manifest_of("snapshots", opened.spec.name, content),
        derived_from={name: table.dataset for name, table in tables.items()},
        details={"as_of": as_of, "window": opened.window, "state": fingerprint},
    )
    return manifest, content


def _lost(opened: Opened) -> list[str]:
    """A warning where earlier snapshots are not on record; of a source that forgets, what they hold would be lost.

    Raises:
        SourceError: if what was read of a source that forgets is not known, and no reason for going on is given.
    """
    snapshot = opened.deliveries.unrecorded()
    if not snapshot:
        return []
    if opened.spec.forgets and not opened.backfill:
        raise SourceError(
            f"Source {opened.spec.name}: the store holds {snapshot}, but no record of use says what it was read from, "
            "so what the source dropped since would be missing from now on. Restore "
            f"sources/{opened.spec.name} in the store from a copy, or run again with --backfill "
            '"reason" to begin with what the source still has.'
        )
    warning = f"The parts of {snapshot} are not on record, so no guard could hold this delivery against it."
    logger.warning("%s", warning)
    return [warning]


def reading_of(spec: SourceSpec, table: str, window: str, code: str) -> str:
    """Digest of all that decides how a part becomes a blob, beside its content."""
    own = spec.tables[table].model_dump(mode="json", exclude={"guards", "shards", "member"})
    shared = spec.model_dump(mode="json", exclude={"tables", "name", "path"})
    return digest_of([own, shared, window, code])


def watermark(spec: TableSpec, parts: tuple[Stored, ...]) -> str:
    """When the newest row is known, ISO 8601 in UTC; empty for a static table."""
    if not spec.event_time:
        return ""
    newest = max(part.last for part in parts)
    return (datetime.fromisoformat(newest) + spec.availability_lag).isoformat()


def stale(opened: Opened, snapshot: str, now: datetime) -> tuple[str, ...]:
    """What the clock says of the newest rows. It is asked at every look, as an unchanged source grows old as well.

    Raises:
        DeliveryError: if a table is older than it may be, and that is a `fail`.
    """
    delivery = opened.deliveries.of(snapshot)
    failed: list[str] = []
    warned: list[str] = []
    for name, spec in opened.spec.tables.items():
        limit, policy = spec.guards.stale_after, spec.guards.stale
        if limit is None or delivery is None or not spec.event_time or policy == "accept":
            continue
        newest = max(datetime.fromisoformat(part.last) for part in delivery.tables[name].parts)
        if now - newest > limit:
            age, most = (round(span.total_seconds() / 3600, 1) for span in (now - newest, limit))
            old = f"the newest row, of {newest.isoformat()}, is {age:g} hours old, expected {most:g} at most"
            text = f"Table {name}: stale: {old}."
            (failed if policy == "fail" else warned).append(text)
    if failed:
        raise DeliveryError(f"{' '.join(failed)} Look why the source stands still.")
    return tuple(warned)


def _stored(name: str, table: TableSpec, opened: Opened, store: ArtifactStore, anew: bool) -> tuple[Stored, ...]:
    spec = opened.spec
    earlier = opened.deliveries.newest()
    held = earlier.tables.get(name) if earlier else None
    # What a stream dropped cannot be read again: its parts stay, and their fingerprints hold what is declared.
    same = held is not None and held.reading == reading_of(spec, name, opened.window, opened.code)
    if not spec.forgets and (anew or not same):
        held = None
    before = held.parts if held else ()
    known = {part.fingerprint: part for part in before if part.fingerprint}
    told = tuple(part.known() for part in before)
    parts = opened.source.parts(name, told)
    return tuple(store_parts(parts, table, window_of(opened.window), known, store, verify=anew))


def _require_rows(name: str, spec: TableSpec, parts: tuple[Stored, ...], window: str) -> None:
    read, aside = sum(part.read for part in parts), sum(part.aside for part in parts)
    if aside > spec.reject_limit * (read + aside):
        raise SourceError(
            f"Table {name}: {aside:,} of {read + aside:,} rows do not fit their declaration, expected at most a share "
            f"of {spec.reject_limit:g}. {next(part.reason for part in parts if part.aside)} Correct the delivery or "
            "the declaration, or raise reject_limit."
        )
    if not read:
        raise SourceError(f"Table {name}: the source has no rows. Check the source.")
    if window and spec.event_time and not any(part.rows for part in parts):
        raise SourceError(f"Table {name}: no row has its {spec.event_time} within {window}. Widen the window.")
    if spec.event_time and not any(part.last for part in parts):
        raise SourceError(f"Table {name}: column {spec.event_time} is null in every row, so it states no event time.")


def _judged(opened: Opened, parts: Mapping[str, tuple[Stored, ...]], store: ArtifactStore) -> list[str]:
    earlier = opened.deliveries.newest()
    warnings = []
    with store.workspace() as workspace:
        for name, table in opened.spec.tables.items():
            held = earlier.tables.get(name) if earlier else None
            path = partial(local_path, store)
            warnings += judge(Case(name, table, parts[name], held, path, workspace), opened.backfill)
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def _publish_table(
    name: str, spec: TableSpec, parts: tuple[Stored, ...], rejected: str, store: ArtifactStore
) -> Reference:
    blobs = [(part, part.blob) for part in parts if part.blob]
    names = file_names(len(blobs))
    digests = [part.digest for part, _ in blobs]
    rows = sum(blob.rows for _, blob in blobs)
    details: dict[str, Any] = {"watermark": watermark(spec, parts), "digest": digest_of(digests), "digests": digests}
    if spec.sensitive:
        details["sensitive"] = sorted(spec.sensitive)
    return store.publish(
        "datasets",
        name,
        {path: blob.entry(path) for path, (_, blob) in zip(names, blobs, strict=True)},
        columns=[Column(each.name, str(each.type), each.nullable) for each in schema_of(spec.columns)],
        rows=rows,
        shards=shards(rows, spec.shards),
        details=details | ({"rejected": rejected} if rejected else {}),
    )


def _publish_rejected(name: str, parts: tuple[Stored, ...], store: ArtifactStore) -> Reference | None:
    blobs = [part.rejected for part in parts if part.rejected]
    if not blobs:
        return None
    return store.publish(
        "rejected",
        name,
        {path: blob.entry(path) for path, blob in zip(file_names(len(blobs)), blobs, strict=True)},
        columns=[Column("row", "int64"), Column("reason", "string"), Column("raw", "string")],
        rows=sum(blob.rows for blob in blobs),
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


def whole(known: Delivery | None, store: ArtifactStore) -> bool:
    """Whether the parts of a snapshot are on record, and its tables in the store."""
    return known is not None and all(store.exists(table.dataset) for table in known.tables.values())


def judged_again(snapshot: str, opened: Opened, store: ArtifactStore) -> tuple[str, ...]:
    """Hold content that was ingested before against the newest delivery, and record it as the newest where it is not.

    Returns:
        What the guards said.

    Raises:
        DeliveryError: if a guard refuses it.
    """
    newest, known = opened.deliveries.newest(), opened.deliveries.of(snapshot)
    if known is None or (newest is not None and newest.snapshot == snapshot):
        return ()
    warnings = tuple(_judged(opened, {name: table.parts for name, table in known.tables.items()}, store))
    opened.deliveries.add(replace(known, warnings=warnings, backfill=opened.backfill))
    return warnings
