"""The raw columns from which the label is computed, and the views that read them."""

from collections.abc import Mapping

import duckdb

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import quoted
from gatehouse.features.definitions.repository import Repository, tables_of
from gatehouse.features.lineage.columns import lineage_of, lineage_of_label
from gatehouse.features.lineage.graph import RAW, VALUE

RawColumns = frozenset[tuple[str, str]]
"""Columns of raw tables, each with its table."""


def label_columns(connection: duckdb.DuckDBPyConnection, repository: Repository) -> RawColumns | None:
    """The columns from which the label is computed; None if its SQL cannot be followed.

    The raw tables are in the schema `source`.
    """
    try:
        sources = lineage_of_label(repository, columns_of(connection, repository, repository.entity_rows)).sources()
    except ConfigurationError:
        return None
    valued = [column for column, by in sources if by == VALUE] or [column for column, _ in sources]
    return frozenset((column.table.removeprefix(f"{RAW}."), column.name) for column in valued)


def columns_read(
    connection: duckdb.DuckDBPyConnection, repository: Repository, view: str, among: RawColumns
) -> RawColumns:
    """Those of some columns on which a view's features depend: all of its tables' if its SQL cannot be followed."""
    query = repository.views[view].query
    columns = columns_of(connection, repository, query)
    among = frozenset((table, name) for table, name in among if table in columns)
    if not among:
        return among
    features = repository.views[view].spec.features
    try:
        sources = lineage_of(repository, repository.views[view], features, columns).sources()
    except ConfigurationError:
        return among
    return among & {(column.table.removeprefix(f"{RAW}."), column.name) for column, _ in sources}


def columns_of(connection: duckdb.DuckDBPyConnection, repository: Repository, query: str) -> Mapping[str, list[str]]:
    """The columns of every raw table that a query reads, by table."""
    return {
        table: [str(row[0]) for row in connection.sql(f"DESCRIBE source.{quoted(table)}").fetchall()]
        for table in tables_of(repository, [query])
    }
