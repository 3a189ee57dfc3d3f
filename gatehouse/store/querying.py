"""SQL over the tables of artifacts with DuckDB; values of sensitive columns cannot be selected.

A query can read only the artifacts that it is given. Sensitive columns are removed before DuckDB sees a row, and the
connection cannot read files, so no expression can return a hidden value.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.store.database import connect, quoted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.tables import Table, tables_in

if TYPE_CHECKING:
    import duckdb

HIDDEN = "***"
SOURCE = "artifact "
"""Prefix of the names of the rows behind the views."""
_SETTINGS = (
    "TimeZone = 'UTC'",
    "enable_external_access = false",
    "python_enable_replacements = false",  # otherwise a query could read variables of this program
    "lock_configuration = true",
)


@contextmanager
def queried(
    store: ArtifactStore,
    named: Mapping[str, Reference],
    plain: Mapping[str, Reference],
    hidden: Callable[[Reference], frozenset[str]],
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a connection in which artifacts are views; a snapshot is a schema with one view per table.

    Args:
        store: The artifact store.
        named: Artifacts by their identifier in the query.
        plain: Artifacts whose tables are views under their own names.
        hidden: Gives the columns of a table whose values cannot be selected.

    Raises:
        ConfigurationError: if an artifact has no tables.
        GatehouseError: if one cannot be read.
    """
    with store.workspace() as workspace:
        connection = connect(spill=workspace / "spill")
        try:
            for setting in _SETTINGS:
                connection.execute(f"SET {setting}")
            for number, (view, table) in enumerate(_views(store, named, plain)):
                _add(connection, store, view, table, hidden(table.reference), f"{SOURCE}{number}")
            yield connection
        finally:
            connection.close()


def _views(
    store: ArtifactStore, named: Mapping[str, Reference], plain: Mapping[str, Reference]
) -> Iterator[tuple[tuple[str, ...], Table]]:
    """The name of each view, with its schema if it has one, and its table."""
    for identifier, reference in named.items():
        for name, table in tables_in(store, reference).items():
            yield ((identifier, name) if name else (identifier,)), table
    for identifier, reference in plain.items():
        for name, table in tables_in(store, reference).items():
            yield (name or identifier,), table


def _add(
    connection: "duckdb.DuckDBPyConnection",
    store: ArtifactStore,
    view: tuple[str, ...],
    table: Table,
    hidden: frozenset[str],
    source: str,
) -> None:
    import pyarrow.dataset as ds

    files = [
        Path(path)
        for path in ([store.path(table.reference, table.file)] if table.file else store.paths(table.reference))
    ]
    whole = ds.dataset([str(path) for path in files], format="parquet")
    kept = [column.name for column in table.columns if column.name not in hidden]
    for name in hidden & set(whole.schema.names):
        whole = whole.replace_schema(whole.schema.remove(whole.schema.get_field_index(name)))
    columns = [
        quoted(each.name) if each.name in kept else f"'{HIDDEN}' AS {quoted(each.name)}" for each in table.columns
    ]
    connection.register(source, whole)
    if len(view) > 1:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(view[0])}")
    name = ".".join(map(quoted, view))
    connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(columns)} FROM {quoted(source)}")
