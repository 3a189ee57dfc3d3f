"""The files of published tables: raw tables of a snapshot, and feature tables.

A feature table has one Parquet file per week in which rows became known, named by its Monday. `known-*` holds rows that
became known at their declared availability; `corrected-*` holds versions that later source rows added.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from gatehouse.store.store import ArtifactStore

KNOWN, CORRECTED = "known-", "corrected-"
VIEW = "view:"
"""Prefix of the role under which feature tables name the table of a view; the view's name follows."""
Files = Mapping[str, Path]
"""The files of one table: path by name."""


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
    files: dict[str, Files] = {}
    for name, reference in view_tables(store, feature_tables).items():
        entries = store.manifest(reference).files
        files[name] = dict(zip((entry.path for entry in entries), store.paths(reference), strict=True))
    return files


def settled_times(store: ArtifactStore, feature_tables: str) -> dict[str, datetime]:
    """For each view, the time up to which its rows are settled: the next tables replace rows known from then on."""
    settled = store.manifest(feature_tables).details["settled"]
    return {name: datetime.fromisoformat(moment) for name, moment in settled.items()}
