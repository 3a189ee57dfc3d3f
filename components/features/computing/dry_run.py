"""Runs every query of the repository on tables without rows: what cannot run is found before there is any data."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

import duckdb
import pyarrow as pa

from gatehouse.components.features.computing.compute import SQL_TYPES, compute_view, go_back, run_macros, stage_table
from gatehouse.components.features.computing.labels import labelled_rows
from gatehouse.components.features.computing.on_demand import on_demand_features
from gatehouse.components.features.database import connect, quoted, set_time
from gatehouse.components.features.definitions.repository import OnDemand, Repository
from gatehouse.components.features.definitions.sql_text import KNOWN_PARAMETERS, PARAMETERS, names_read
from gatehouse.errors import ConfigurationError

_RAW_TYPES = {"int64": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN", "timestamp": "TIMESTAMPTZ"}
_ARROW_TYPES = {"FLOAT": pa.float32(), "VARCHAR": pa.string()}
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def dry_run(repository: Repository, tables: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What is wrong with the queries of a repository, in the order in which they run.

    A query that reads a staging table that cannot be made is not run, and so not blamed; none is without the macros.

    Args:
        repository: The feature definitions.
        tables: The declared type of every column (`int64`, `double`, `string`, `bool`, `timestamp`), by raw table.
    """
    problems: list[str] = []
    broken: set[str] = set()
    with connect() as connection:
        for variable in {*PARAMETERS, *KNOWN_PARAMETERS}:
            set_time(connection, variable, _SOME_TIME)
        for schema in ("raw", "source"):
            for name, columns in tables.items():
                declared = ", ".join(f"{quoted(column)} {_RAW_TYPES[kind]}" for column, kind in columns.items())
                connection.execute(f"CREATE TABLE {schema}.{quoted(name)} ({declared})")
        try:
            run_macros(connection, repository)
        except ConfigurationError as error:
            return [str(error)]  # Any query may read a macro.
        for name, query, attempt in _attempts(repository, connection):
            if broken.isdisjoint(names_read("staging", query, repository.staging)):
                try:
                    attempt()
                    continue
                except ConfigurationError as error:
                    problems.append(str(error))
            broken.add(name)
    return problems


def _attempts(
    repository: Repository, connection: duckdb.DuckDBPyConnection
) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Everything that a run does with SQL: the staging table that it makes, or nothing; its query; and doing it."""
    for name, query in repository.staging.items():
        yield name, query, partial(stage_table, connection, repository, name)
    for view in repository.views.values():
        yield "", view.query, partial(compute_view, connection, repository, view)
    yield "", repository.entity_rows, partial(labelled_rows, connection, repository)
    for one in repository.on_demand.values():
        yield "", "", partial(on_demand_features, one, _no_rows(one))
    for name, query in repository.known.items():
        connection.execute(f"DROP TABLE IF EXISTS raw.{quoted(name)}")
        yield "", query, partial(go_back, connection, repository, name)


def _no_rows(view: OnDemand) -> pa.Table:
    return pa.schema({name: _ARROW_TYPES[SQL_TYPES[kind]] for name, kind in view.inputs.items()}).empty_table()
