"""The record of each snapshot of a source: append-only, beside the artifacts, outside their identity.

`sources/<name>/<window>/<n>.json` names the snapshot, its tables and the parts of each with their fingerprints, so that
the next snapshot reads only what is new, and is compared with the earlier one. A record is written before its snapshot
is published, so every snapshot has one. If one was lost, the next snapshot reads everything again and warns that no
guard could compare it; of a source that drops what was read, the next snapshot is refused. An erasure leaves the names
of snapshot and window.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gatehouse.data.snapshot.parts import Stored
from gatehouse.store.canonical import digest_of
from gatehouse.store.records import author, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table:
    """One table of a snapshot; `event_time` is the column that the first and last times of its parts are of.

    `reading` is the digest of all that decides how a part becomes a blob: code, declaration and window.
    """

    dataset: str
    rows: int
    reading: str
    parts: tuple[Stored, ...]
    event_time: str = ""
    rejected: str = ""
    times: Mapping[str, str] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """Newest event time, ISO 8601 in UTC; empty without one."""
        return max((part.last for part in self.parts), default="")

    @property
    def rejected_rows(self) -> int:
        """Number of rows that were rejected."""
        return sum(part.rejected_rows for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        parts = [part.to_json() for part in self.parts]
        return vars(self) | {"parts": parts}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Table":
        """The table that `to_json` wrote."""
        return cls(**{**body, "parts": tuple(map(Stored.from_json, body["parts"]))})


@dataclass(frozen=True)
class Delivery:
    """One snapshot of a source. With a first `look`, from which nothing is trained, no later snapshot is compared."""

    snapshot: str
    tables: Mapping[str, Table]
    state: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    backfill: str = ""
    look: bool = False


class Deliveries:
    """The records of one window of one source."""

    def __init__(self, store: ArtifactStore, source: str, window: str) -> None:
        self._store, self._source, self._window = store, source, window
        self._folder = f"sources/{source}/{digest_of(window)[:16] if window else 'whole'}"

    @cached_property
    def _newest(self) -> Delivery | None:
        return next((delivery for delivery in self._newest_first() if not delivery.look), None)

    def newest(self) -> Delivery | None:
        """The newest snapshot that is still in the store and was no first look; None for none."""
        return self._newest

    def of(self, snapshot: str) -> Delivery | None:
        """The newest record of one snapshot."""
        if self._newest is not None and self._newest.snapshot == snapshot:
            return self._newest
        return next((delivery for delivery in self._newest_first() if delivery.snapshot == snapshot), None)

    def add(self, delivery: Delivery) -> None:
        """Record a snapshot, unless the newest record says the same."""
        newest = self._newest
        if newest is not None and newest.snapshot == delivery.snapshot and newest.tables == delivery.tables:
            return
        body: dict[str, Any] = {
            "snapshot": delivery.snapshot,
            "state": dict(delivery.state),
            "window": self._window,
            "tables": {name: table.to_json() for name, table in delivery.tables.items()},
            "warnings": list(delivery.warnings),
        }
        if delivery.backfill:
            body["backfill"] = {"reason": delivery.backfill, **author()}
        if delivery.look:
            body["look"] = True
        self._store.append(self._folder, body)

    def _newest_first(self) -> Iterator[Delivery]:
        for key in sorted(self._store.objects.list(self._folder), reverse=True):
            body = read_record(self._store.objects, key)
            if body is None or "erased" in body or not self._store.exists(body["snapshot"]):
                continue
            try:
                tables = {name: Table.from_json(table) for name, table in body["tables"].items()}
                warnings, look = tuple(body["warnings"]), body.get("look", False)
                yield Delivery(body["snapshot"], tables, body["state"], warnings, look=look)
            except (KeyError, TypeError) as error:
                logger.warning("%s is passed over: another version wrote it (%s)", key, error)


@dataclass(frozen=True)
class Delivered:
    """How a source delivered a table; pages show it. It is outside every artifact: equal rows are equal snapshots.

    `columns` are in the order of the source, and `times` say how it writes times that are not in ISO 8601, by column.
    """

    columns: tuple[str, ...]
    times: Mapping[str, str] = field(default_factory=dict)


def delivered_tables(store: ArtifactStore, snapshot: Reference | str) -> dict[str, Delivered]:
    """How the tables of a snapshot were delivered, by name."""
    manifest = store.manifest(snapshot)
    window = str(manifest.details.get("window", ""))
    delivery = Deliveries(store, manifest.name, window).of(str(manifest.reference))
    tables = {}
    for name, dataset in sorted(manifest.derived_from.items()):
        stored = [column.name for column in store.manifest(dataset).columns]
        table = delivery.tables.get(name) if delivery else None
        delivered = [column for part in table.parts for column in part.columns] if table else []
        ordered = dict.fromkeys([*(column for column in delivered if column in stored), *stored])
        tables[name] = Delivered(tuple(ordered), table.times if table else {})
    return tables


def written_times(form: str) -> str:
    """How a source writes times, in words: its format, or its unit since 1970."""
    return form if "%" in form else f"numbers: {form} since 1970"
