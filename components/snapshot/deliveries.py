"""What is remembered of each snapshot of a source: an append-only record beside the artifacts, outside their identity.

`sources/<name>/<n>.json` names the snapshot, its tables and the parts of each with their fingerprints, so that the next
snapshot reads only what is new, and is held against the earlier one. Losing a record loses no data: the next snapshot
reads everything again, and has nothing to be held against.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gatehouse.components.artifacts.records import author, read_record
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.parts import Stored

logger = logging.getLogger(__name__)

_LOOKED_AT = 50
"""Records that are looked at for one of the same window: other windows may have been taken between."""


@dataclass(frozen=True)
class Table:
    """One table of a snapshot.

    Attributes:
        dataset: Reference of its rows.
        rows: Number of rows.
        reading: Digest of all that decides how a part becomes a blob: code, declaration and window.
        parts: Its parts, in order.
    """

    dataset: str
    rows: int
    reading: str
    parts: tuple[Stored, ...]

    @property
    def last(self) -> str:
        """Newest event time, ISO 8601 in UTC; empty without one."""
        return max((part.last for part in self.parts), default="")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        parts = [part.to_json() for part in self.parts]
        return {"dataset": self.dataset, "rows": self.rows, "reading": self.reading, "parts": parts}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Table":
        """The table that `to_json` wrote."""
        parts = tuple(map(Stored.from_json, body["parts"]))
        return cls(body["dataset"], body["rows"], body["reading"], parts)


@dataclass(frozen=True)
class Delivery:
    """One snapshot of a source.

    Attributes:
        snapshot: Its reference.
        window: The window that it was taken of.
        tables: By name.
        warnings: What guards said.
        backfill: The reason for which rows of the earlier snapshot may change; empty for none.
    """

    snapshot: str
    window: str
    tables: Mapping[str, Table]
    warnings: tuple[str, ...] = ()
    backfill: str = ""


@dataclass
class Deliveries:
    """The records of one source."""

    store: ArtifactStore
    source: str
    _read: dict[str, Delivery | None] = field(default_factory=dict)

    def newest(self, window: str) -> Delivery | None:
        """The newest snapshot of the same window that is still in the store; None for the first."""
        if window not in self._read:
            self._read[window] = self._find(window)
        return self._read[window]

    def add(self, delivery: Delivery) -> None:
        """Record a snapshot, unless the newest record says the same."""
        earlier = self.newest(delivery.window)
        if earlier is not None and earlier.snapshot == delivery.snapshot and earlier.tables == delivery.tables:
            return
        body: dict[str, Any] = {
            "snapshot": delivery.snapshot,
            "window": delivery.window,
            "tables": {name: table.to_json() for name, table in delivery.tables.items()},
            "warnings": list(delivery.warnings),
        }
        if delivery.backfill:
            body["backfill"] = {"reason": delivery.backfill, **author()}
        self.store.append(f"sources/{self.source}", body)

    def of(self, snapshot: str) -> Delivery | None:
        """The newest record of one snapshot."""
        return next((found for found in self._newest_first() if found.snapshot == snapshot), None)

    def _find(self, window: str) -> Delivery | None:
        return next((found for found in self._newest_first() if found.window == window), None)

    def _newest_first(self) -> Iterator[Delivery]:
        keys = sorted(self.store.objects.list(f"sources/{self.source}"), reverse=True)
        for key in keys[:_LOOKED_AT]:
            body = read_record(self.store.objects, key)
            if body is None or not self.store.exists(body["snapshot"]):
                continue
            try:
                tables = {name: Table.from_json(table) for name, table in body["tables"].items()}
                yield Delivery(body["snapshot"], body["window"], tables, tuple(body["warnings"]))
            except (KeyError, TypeError) as error:
                logger.warning("%s is passed over: another version wrote it (%s)", key, error)
