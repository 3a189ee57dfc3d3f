"""The tables of an artifact: itself, the tables of a snapshot, or one table per file."""

from dataclasses import dataclass

from gatehouse.errors import ConfigurationError
from gatehouse.store.manifest import Column, Manifest
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_TABLE_A_FILE = ("folds", "splits")
"""Kinds of artifacts in which every file is a separate table."""


@dataclass(frozen=True)
class Table:
    """A table: all files of an artifact, or one of them.

    Attributes:
        reference: The artifact.
        columns: Names and types of its columns.
        rows: Number of rows.
        file: Its file; empty if all files of the artifact form one table.
    """

    reference: Reference
    columns: tuple[Column, ...]
    rows: int
    file: str = ""


def tables_in(store: ArtifactStore, reference: Reference) -> dict[str, Table]:
    """The tables of an artifact: those of a snapshot by name, a single table under the name "".

    Raises:
        ConfigurationError: if it has no table.
        GatehouseError: if it cannot be read.
    """
    manifest = store.manifest(reference)
    store.require_readable(reference)
    if manifest.columns:
        return _in_one(manifest)
    parts = {role: store.manifest(each) for role, each in manifest.derived_from.items()}
    tables = {role: Table(each.reference, each.columns, each.rows or 0) for role, each in parts.items() if each.columns}
    if not tables:
        raise ConfigurationError(f"{reference}: expected a table, or an artifact made of tables; it has none.")
    return tables


def _in_one(manifest: Manifest) -> dict[str, Table]:
    """The tables of one artifact by path of their file; under "" if all files form one table."""
    if manifest.kind not in _TABLE_A_FILE:
        return {"": Table(manifest.reference, manifest.columns, manifest.rows or 0)}
    return {
        each.path: Table(manifest.reference, manifest.columns, each.rows or 0, each.path) for each in manifest.files
    }
