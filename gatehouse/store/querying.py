"""SQL over the tables of artifacts with DuckDB; values of sensitive columns cannot be selected.

A query can read only the artifacts that it is given. Sensitive columns are removed before DuckDB sees a row, and the
connection cannot read files, so no expression can return a hidden value.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gatehouse.errors import ConfigurationError
from gatehouse.store.database import connect, quoted
from gatehouse.store.manifest import Column
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import duckdb

HIDDEN = "***"
SOURCE = "artifact "
"""Prefix of the names of the rows behind the views."""
_TABLE_A_FILE = ("folds", "splits")
"""Kinds of artifacts in which every file is a separate table."""
_SETTINGS = (
    "TimeZone = 'UTC'",
    "enable_external_access = false",
    "python_enable_replacements = false",  # otherwise a query could read variables of this program
    "lock_configuration = true",
)


@dataclass(frozen=True)
class Table:
    """A table: all files of an artifact, or the one named by `file`."""

    reference: Reference
    columns: tuple[Column, ...]
    rows: int
    file: str = ""


def tables_in(store: ArtifactStore, reference: Reference) -> dict[str, Table]:
    """The tables of an artifact: those of a snapshot by name, separate files by path, a single table under "".

    Raises ConfigurationError if it has no table; GatehouseError if it cannot be read.
    """
    manifest = store.manifest(reference)
    store.require_readable(reference)
    if manifest.columns and manifest.kind in _TABLE_A_FILE:
        return {
            entry.path: Table(manifest.reference, manifest.columns, entry.rows or 0, entry.path)
            for entry in manifest.files
        }
    parts = (
        {"": manifest} if manifest.columns else {role: store.manifest(p) for role, p in manifest.derived_from.items()}
    )
    tables = {role: Table(part.reference, part.columns, part.rows or 0) for role, part in parts.items() if part.columns}
    if not tables:
        raise ConfigurationError(f"{reference}: expected a table, or an artifact made of tables; it has none.")
    return tables


@contextmanager
def queried(
    store: ArtifactStore,
    named: Mapping[str, Reference],
    plain: Mapping[str, Reference],
    hidden: Callable[[Reference], frozenset[str]],
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a connection in which artifacts are views; a snapshot is a schema with one view per table.

    `named` artifacts have their identifier in the query as name; the tables of `plain` artifacts have their own names.
    `hidden` gives the columns of a table whose values cannot be selected. Raises ConfigurationError if an artifact has
    no tables; GatehouseError if one cannot be read.
    """
    import pyarrow.dataset as ds

    views: list[tuple[tuple[str, ...], Table]] = []
    for identifier, reference in named.items():
        for name, table in tables_in(store, reference).items():
            views.append(((identifier, name) if name else (identifier,), table))
    for identifier, reference in plain.items():
        views += [((name or identifier,), table) for name, table in tables_in(store, reference).items()]
    with store.workspace() as workspace:
        connection = connect(spill=workspace / "spill")
        try:
            for setting in _SETTINGS:
                connection.execute(f"SET {setting}")
            for number, (view, table) in enumerate(views):
                secret = hidden(table.reference)
                files = [store.path(table.reference, table.file)] if table.file else store.paths(table.reference)
                rows = ds.dataset([str(path) for path in files], format="parquet")
                for name in secret & set(rows.schema.names):
                    rows = rows.replace_schema(rows.schema.remove(rows.schema.get_field_index(name)))
                connection.register(f"{SOURCE}{number}", rows)
                columns = [
                    f"'{HIDDEN}' AS {quoted(column.name)}" if column.name in secret else quoted(column.name)
                    for column in table.columns
                ]
                if len(view) > 1:
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(view[0])}")
                selected = f"SELECT {', '.join(columns)} FROM {quoted(f'{SOURCE}{number}')}"
                connection.execute(f"CREATE VIEW {'.'.join(map(quoted, view))} AS {selected}")
            yield connection
        finally:
            connection.close()
