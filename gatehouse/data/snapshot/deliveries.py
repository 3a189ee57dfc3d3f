"""What is remembered of each snapshot of a source: an append-only record beside the artifacts, outside their identity.

`sources/<name>/<window>/<n>.json` names the snapshot, its tables and the parts of each with their fingerprints, so that
the next snapshot reads only what is new, and is held against the earlier one. A record is written before its snapshot
is published, so every snapshot has one. Where one was lost, the next snapshot reads everything again and warns that
no guard could compare it with an earlier one; of a source that drops what was read, the next snapshot is refused. An
erasure leaves the names of snapshot and window.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from gatehouse.data.snapshot.parts import Stored
from gatehouse.store.canonical import digest_of
from gatehouse.store.records import author, read_record
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_READERS = 16


@dataclass(frozen=True)
class Table:
    """One table of a snapshot.

    Attributes:
        dataset: Reference of its rows.
        rows: Number of rows.
        reading: Digest of all that decides how a part becomes a blob: code, declaration and window.
        parts: Its parts, in order.
        event_time: The column that its parts' first and last event time are of.
        rejected: Reference of the rows that were set aside; empty where there are none.
        origin: What names the types of its columns, as `files (.csv)`.
        times: How the source writes times that are not in ISO 8601, by column.
    """

    dataset: str
    rows: int
    reading: str
    parts: tuple[Stored, ...]
    event_time: str = ""
    rejected: str = ""
    origin: str = ""
    times: Mapping[str, str] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """Newest event time, ISO 8601 in UTC; empty without one."""
        return max((part.last for part in self.parts), default="")

    @property
    def rejected_rows(self) -> int:
        """Number of rows that were set aside."""
        return sum(part.aside for part in self.parts)

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
    """One snapshot of a source.

    Attributes:
        snapshot: Its reference.
        tables: By name.
        state: What the source told of its content, which makes the read repeatable.
        warnings: What guards said.
        backfill: The reason for which rows of the earlier snapshot may change; empty for none.
        look: Whether it was a first look, from which nothing is trained: no later snapshot is held against it.
    """

    snapshot: str
    tables: Mapping[str, Table]
    state: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    backfill: str = ""
    look: bool = False


@dataclass
class Deliveries:
    """The records of one window of one source."""

    store: ArtifactStore
    source: str
    window: str
    _read: list[Delivery | None] = field(default_factory=list)

    @property
    def _folder(self) -> str:
        return f"sources/{self.source}/{digest_of(self.window)[:16] if self.window else 'whole'}"

    def newest(self) -> Delivery | None:
        """The newest snapshot that is still in the store and was no first look; None for the first."""
        if not self._read:
            self._read.append(next((found for found in self._newest_first() if not found.look), None))
        return self._read[0]

    def of(self, snapshot: str) -> Delivery | None:
        """The newest record of one snapshot."""
        newest = self.newest()
        if newest is not None and newest.snapshot == snapshot:
            return newest
        return next((found for found in self._newest_first() if found.snapshot == snapshot), None)

    def unrecorded(self) -> str:
        """A snapshot of this source and window that the store holds though no record of any is left; empty for none."""
        if self._any() is not None:
            return ""
        references = list(self.store.references("snapshots", self.source))
        with ThreadPoolExecutor(_READERS) as readers:
            manifests = readers.map(self.store.manifest, references)
            found = [str(each.reference) for each in manifests if each.details.get("window") == self.window]
        if found:
            # Another run may have recorded and published it since the first look.
            self._read.clear()
        return found[0] if found and self._any() is None else ""

    def _any(self) -> Delivery | None:
        return self.newest() or next(self._newest_first(), None)

    def add(self, delivery: Delivery) -> None:
        """Record a snapshot, unless the newest record says the same."""
        earlier = self.newest()
        if earlier is not None and earlier.snapshot == delivery.snapshot and earlier.tables == delivery.tables:
            return
        body: dict[str, Any] = {
            "snapshot": delivery.snapshot,
            "state": dict(delivery.state),
            "window": self.window,
            "tables": {name: table.to_json() for name, table in delivery.tables.items()},
            "warnings": list(delivery.warnings),
        }
        if delivery.backfill:
            body["backfill"] = {"reason": delivery.backfill, **author()}
        if delivery.look:
            body["look"] = True
        self.store.append(self._folder, body)

    def _newest_first(self) -> Iterator[Delivery]:
        for key in sorted(self.store.objects.list(self._folder), reverse=True):
            body = read_record(self.store.objects, key)
            if body is None or "erased" in body or not self.store.exists(body["snapshot"]):
                continue
            try:
                tables = {name: Table.from_json(table) for name, table in body["tables"].items()}
                warnings, look = tuple(body["warnings"]), body.get("look", False)
                yield Delivery(body["snapshot"], tables, body["state"], warnings, look=look)
            except (KeyError, TypeError) as error:
                logger.warning("%s is passed over: another version wrote it (%s)", key, error)
