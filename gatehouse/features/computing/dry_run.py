"""Runs every query of the repository on empty tables, to find errors before a run."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

import duckdb
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import SQL_TYPES, compute_view, go_back, run_macros, stage_table
from gatehouse.features.computing.labels import labelled_rows
from gatehouse.features.computing.on_demand import on_demand_features
from gatehouse.features.database import connect, set_time
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.definitions.sql_text import names_read, query_problems
from gatehouse.store.database import quoted

_RAW_TYPES = {"int64": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN", "timestamp": "TIMESTAMPTZ"}
_ARROW_TYPES = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string()}


def dry_run(repository: Repository, tables: Mapping[str, Mapping[str, str]]) -> list[str]:
    """List the problems of a repository's queries, in the order in which the queries run.

    A query that reads a failed staging table is not run, and no problem is reported for it.

    `tables` has the declared type of every column (`int64`, `double`, `string`, `bool`, `timestamp`), by raw table.
    """
    problems: list[str] = []
    failed: set[str] = set()
    with connect() as connection:

        def steps() -> Iterator[tuple[str, str, Callable[[], object]]]:
            # Every step of a run that uses SQL: the file, its query, and the code of the run that uses it.
            for name, query in repository.staging.items():
                yield f"staging/{name}.sql", query, partial(stage_table, connection, repository, name)
            for view in repository.views.values():
                yield f"views/{view.name}.sql", view.query, partial(compute_view, connection, repository, view)
            label = f"labels/{repository.label.name}.sql"
            yield label, repository.entity_rows, partial(labelled_rows, connection, repository)
            for on_demand in repository.on_demand.values():
                schema = pa.schema({name: _ARROW_TYPES[SQL_TYPES[kind]] for name, kind in on_demand.inputs.items()})
                run = partial(on_demand_features, on_demand, schema.empty_table())
                yield f"on_demand/{on_demand.name}.sql", on_demand.query, run
            for name, query in repository.histories.items():
                connection.execute(f"DROP TABLE IF EXISTS raw.{quoted(name)}")
                yield f"known/{name}.sql", query, partial(go_back, connection, repository, name)

        set_time(connection, "as_of", datetime.now(UTC))
        set_time(connection, "since", datetime.min.replace(tzinfo=UTC))
        for bound in ("from", "until"):
            set_time(connection, bound, None)  # As in a run that computes all rows.
        for schema in ("raw", "source"):
            for name, columns in tables.items():
                declare_table(connection, f"{schema}.{quoted(name)}", columns)
        try:
            run_macros(connection, repository)
        except ConfigurationError as error:
            return [str(error)]  # Any query may read a macro.
        for file, query, run in steps():
            name = file.removeprefix("staging/").removesuffix(".sql")
            mistakes = [*query_problems(file, query)]
            if not mistakes and not failed.isdisjoint(names_read("staging", query, repository.staging)):
                failed.add(name)
            elif not mistakes:
                try:
                    run()
                except ConfigurationError as error:
                    mistakes += str(error).split("\n  - ")
            problems += mistakes
            if mistakes:
                failed.add(name)
    return problems


def declare_table(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str]) -> None:
    """Create an empty table as SQL names it, with columns of the types that a source declares."""
    declared = ", ".join(f"{quoted(column)} {_RAW_TYPES[kind]}" for column, kind in columns.items())
    connection.execute(f"CREATE TABLE {table} ({declared})")
