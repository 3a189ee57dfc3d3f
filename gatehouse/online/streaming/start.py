"""The start of pushing: published feature tables, and the snapshot from which they were computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gatehouse.features.table_files import Files, feature_files, raw_tables
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Start:
    """The feature tables from which pushing starts.

    Attributes:
        reference: Their reference.
        as_of: Time up to which they know everything.
        raw: Files of the raw tables from which they were computed, by table.
        tables: Files of the feature tables, by view.
    """

    reference: str
    as_of: datetime
    raw: Mapping[str, Sequence[Path]]
    tables: Mapping[str, Files]

    @property
    def group(self) -> str:
        """Name of the consumer group of these tables: each set of tables reads a stream at its own position."""
        reference = Reference.parse(self.reference)
        return f"gatehouse-{reference.name}-{reference.digest[:12]}"


def start_from(store: ArtifactStore, feature_tables: str) -> Start:
    """Start from the feature tables of a reference; their files and those of their snapshot are verified."""
    manifest = store.manifest(feature_tables)
    snapshot = store.manifest(manifest.derived_from["snapshot"])
    return Start(
        reference=feature_tables,
        as_of=datetime.fromisoformat(str(snapshot.details["as_of"])),
        raw=raw_tables(store, manifest.derived_from["snapshot"]),
        tables=feature_files(store, feature_tables),
    )
