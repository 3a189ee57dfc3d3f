"""The files of published tables: the raw tables of a snapshot, and feature tables, whose files say what they hold.

A feature table is stored in Parquet files by the week from which rows are known, named by its Monday. `known-*` holds
rows as they became known by their declared availability, `corrected-*` the versions that later source rows added.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from gatehouse.components.artifacts.store import ArtifactStore

KNOWN, CORRECTED = "known-", "corrected-"
VIEW = "view:"
"""The role of a view's table among what feature tables are derived from is this and the name of the view."""
Files = Mapping[str, Path]
"""The files of one table: where each can be read, by its name."""


def raw_tables(store: ArtifactStore, snapshot: str) -> dict[str, list[Path]]:
    """The verified Parquet files of every table of a snapshot."""
    datasets = store.manifest(snapshot).derived_from
    return {table: store.paths(reference) for table, reference in datasets.items()}


def view_tables(store: ArtifactStore, feature_tables: str) -> dict[str, str]:
    """Reference of the table of every view of the feature tables."""
    inputs = store.manifest(feature_tables).derived_from
    return {role.removeprefix(VIEW): reference for role, reference in inputs.items() if role.startswith(VIEW)}


def feature_files(store: ArtifactStore, feature_tables: str) -> dict[str, Files]:
    """The verified Parquet files of every view of the feature tables."""
    found: dict[str, Files] = {}
    for name, reference in view_tables(store, feature_tables).items():
        entries = store.manifest(reference).files
        found[name] = dict(zip((entry.path for entry in entries), store.paths(reference), strict=True))
    return found


def settled_times(store: ArtifactStore, feature_tables: str) -> dict[str, datetime]:
    """Until when the rows of every view are settled: those known from then on are replaced by the next tables."""
    settled = store.manifest(feature_tables).details["settled"]
    return {name: datetime.fromisoformat(moment) for name, moment in settled.items()}
