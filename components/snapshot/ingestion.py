"""Takes every table of an opened source: stores its parts, has the guards judge them, and publishes."""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from gatehouse.components.artifacts.canonical import canonical_json, digest_of
from gatehouse.components.artifacts.manifest import Column, Shard
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.deliveries import Deliveries, Delivery, Table
from gatehouse.components.snapshot.guards import Case, judge, local_path
from gatehouse.components.snapshot.parts import Stored, store_parts
from gatehouse.components.snapshot.sources.base import Source
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.components.snapshot.sources.declared import schema_of
from gatehouse.components.snapshot.spec import TableSpec
from gatehouse.components.snapshot.window import window_of
from gatehouse.errors import SourceError

logger = logging.getLogger(__name__)

ROWS_PER_SHARD = 1_048_576
_FEWEST_ROWS_PER_SHARD = 20
"""With fewer rows a shard, one row more or less would be more than 5 % of it."""


@dataclass
class AtHand:
    """What a delivery is taken with: the opened source, and what is remembered of it.

    Attributes:
        source: The source.
        state: What it told of itself.
        deliveries: The earlier snapshots.
        code: Digest of the code that reads it.
        backfill: The reason for which rows of the earlier snapshot may change; empty for none.
        tables: What was taken, by table; empty where the result was known.
        warnings: What the guards said.
    """

    source: Source
    state: Mapping[str, Any]
    deliveries: Deliveries
    code: str
    backfill: str = ""
    tables: dict[str, Table] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Taken:
    """The references that a delivery was published under: see `SnapshotResult`."""

    snapshot: str
    as_of: str
    rows: dict[str, int]
    rejected: dict[str, str]


def take(spec: SourceSpec, window: str, fingerprint: str, at_hand: AtHand, store: ArtifactStore) -> Taken:
    """Read, judge and publish every table; nothing is published before everything is read and judged.

    Raises:
        SourceError: if the source cannot be read as declared, a table has no rows, or too many were set aside.
        DeliveryError: if a guard refuses what was delivered.
    """
    parts = {name: _stored(name, table, spec, window, at_hand, store) for name, table in spec.tables.items()}
    for name, table in spec.tables.items():
        _require_rows(name, table, parts[name], window)
    if not any(table.event_time for table in spec.tables.values()):
        raise SourceError(f"Source {spec.name}: no table states its event_time, so the snapshot has no watermark.")
    at_hand.warnings += _judged(spec, window, parts, at_hand, store)
    datasets: dict[str, Reference] = {}
    rejected: dict[str, str] = {}
    for name, table in spec.tables.items():
        if aside := _publish_rejected(name, parts[name], store):
            rejected[name] = str(aside)
        datasets[name] = _publish_table(name, table, parts[name], rejected.get(name, ""), store)
        rows = sum(part.rows for part in parts[name])
        reading = reading_of(spec, name, window, at_hand.code)
        at_hand.tables[name] = Table(str(datasets[name]), rows, reading, parts[name])
    as_of = max(watermark(table, parts[name]) for name, table in spec.tables.items())
    described = {"fingerprint": fingerprint, "window": window, "state": dict(at_hand.state)}
    counts = {name: table.rows for name, table in at_hand.tables.items()}
    reference = store.publish(
        "snapshots",
        spec.name,
        {"source.json": canonical_json(described | {"rows": counts})},
        derived_from=datasets,
        details={"as_of": as_of, "window": window, "state": fingerprint},
    )
    return Taken(str(reference), as_of, counts, rejected)


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


def _stored(
    name: str, table: TableSpec, spec: SourceSpec, window: str, at_hand: AtHand, store: ArtifactStore
) -> tuple[Stored, ...]:
    earlier = at_hand.deliveries.newest(window)
    held = earlier.tables.get(name) if earlier else None
    # What a stream dropped cannot be read again: its parts stay, and their fingerprints hold what is declared.
    if held is not None and not spec.forgets and held.reading != reading_of(spec, name, window, at_hand.code):
        held = None
    before = held.parts if held else ()
    known = {part.fingerprint: part for part in before if part.fingerprint}
    told = tuple(part.known() for part in before)
    return tuple(store_parts(at_hand.source.parts(name, told), table, window_of(window), known, store))


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


def _judged(
    spec: SourceSpec, window: str, parts: Mapping[str, tuple[Stored, ...]], at_hand: AtHand, store: ArtifactStore
) -> list[str]:
    earlier = at_hand.deliveries.newest(window)
    warnings = []
    with store.workspace() as workspace:
        for name, table in spec.tables.items():
            held = earlier.tables.get(name) if earlier else None
            path = partial(local_path, store)
            warnings += judge(Case(name, table, parts[name], held, path, workspace), at_hand.backfill)
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


def delivered(snapshot: str, window: str, at_hand: AtHand) -> Delivery:
    """What is to be remembered of a delivery that was taken now."""
    return Delivery(snapshot, window, at_hand.tables, tuple(at_hand.warnings), at_hand.backfill)


def judge_again(snapshot: str, spec: SourceSpec, window: str, at_hand: AtHand, store: ArtifactStore) -> None:
    """Hold content that was ingested before, and is delivered again, against the newest delivery.

    Raises:
        DeliveryError: if a guard refuses it.
    """
    newest = at_hand.deliveries.newest(window)
    if newest is not None and newest.snapshot == snapshot:
        return
    known = at_hand.deliveries.of(snapshot)
    if known is None:
        at_hand.warnings.append(f"The parts of {snapshot} are not on record, so no guard could judge it.")
        return
    at_hand.warnings += _judged(
        spec, window, {name: table.parts for name, table in known.tables.items()}, at_hand, store
    )
    at_hand.tables = dict(known.tables)
