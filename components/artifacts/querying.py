"""SQL over the tables of artifacts, by DuckDB. No value of a sensitive column is there to be selected.

A query reads nothing but the artifacts that it is given: sensitive columns are left out before DuckDB sees a row, and
the connection reaches no file, so no expression, however written, brings a hidden value back.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.components.artifacts.database import connect
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.artifacts.tables import Table, tables_in

if TYPE_CHECKING:
    import duckdb

HIDDEN = "***"
SOURCE = "artifact "
"""What the names of the rows behind the views begin with."""
_SETTINGS = (
    "TimeZone = 'UTC'",
    "enable_external_access = false",
    "python_enable_replacements = false",  # else a query could name variables of this program
    "lock_configuration = true",
)


@contextmanager
def queried(
    store: ArtifactStore,
    named: Mapping[str, Reference],
    plain: Mapping[str, Reference],
    hidden: Callable[[Reference], frozenset[str]],
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A connection in which artifacts are views; that of a snapshot is a schema, with a view for each of its tables.

    Args:
        store: Where they are.
        named: Artifacts by the identifier that a query names them with.
        plain: Artifacts whose tables are views by their own names.
        hidden: Gives the columns of a table of which no value can be selected.

    Raises:
        ConfigurationError: if one has no tables.
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
    """The name of each view, with its schema where it is in one, and its table."""
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
        _quoted(each.name) if each.name in kept else f"'{HIDDEN}' AS {_quoted(each.name)}" for each in table.columns
    ]
    connection.register(source, whole)
    if len(view) > 1:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(view[0])}")
    name = ".".join(map(_quoted, view))
    connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(columns)} FROM {_quoted(source)}")


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
