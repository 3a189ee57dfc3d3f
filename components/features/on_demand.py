"""Computes on-demand features: the same query for a training set, a batch and one online request."""

import atexit
from collections.abc import Mapping
from functools import cache

import duckdb
import pyarrow as pa

from gatehouse.components.features.compute import connect, quoted
from gatehouse.components.features.repository import OnDemand, Repository
from gatehouse.errors import ConfigurationError

_TYPES = {"numeric": "FLOAT", "categorical": "VARCHAR"}


def with_on_demand(repository: Repository, service: str, rows: pa.Table) -> pa.Table:
    """`rows` with the features of the service's on-demand views beside them.

    Args:
        repository: The feature definitions.
        service: Name of the feature service.
        rows: The features of its feature views, and the values of the requests.

    Raises:
        ConfigurationError: as `on_demand_features`.
    """
    for name in repository.services[service].on_demand:
        found = on_demand_features(repository.on_demand[name], rows)
        for column in found.column_names:
            rows = rows.append_column(column, found[column])
    return rows


def on_demand_features(view: OnDemand, rows: pa.Table) -> pa.Table:
    """The features of `view` for each of `rows`, in order.

    Values are cast to the kinds that the definitions state, so the query sees the same types wherever they come from.

    Raises:
        ConfigurationError: if `rows` lacks a column, the query does not run, lacks a feature, or does not give each row
            the features that the row alone has.
    """
    where = f"on_demand/{view.name}.sql"
    missing = [name for name in view.inputs if name not in rows.column_names]
    if missing:
        raise ConfigurationError(
            f"{where}: expected {', '.join(missing)} among the features and request values, found "
            f"{', '.join(rows.column_names)}. Send them, or name the view that has them."
        )
    found = _run(view, rows, where)
    for place in sorted({0, rows.num_rows // 2, rows.num_rows - 1}) if rows.num_rows > 1 else ():
        if found.num_rows != rows.num_rows or not _run(view, rows.slice(place, 1), where).equals(found.slice(place, 1)):
            raise ConfigurationError(
                f"{where}: expected for each row what that row alone gives, found something else in row {place} of "
                f"{rows.num_rows}. A request comes alone: read no other rows and no clock, and leave no row out."
            )
    return found


def _run(view: OnDemand, rows: pa.Table, where: str) -> pa.Table:
    wanted = ", ".join(_cast(view.spec.features))
    with _database().cursor() as connection:
        connection.register("given", rows.select(list(view.inputs)))
        inputs = ", ".join(_cast(view.inputs))
        try:
            query = f"WITH rows AS (SELECT {inputs} FROM given) SELECT {wanted} FROM (\n{view.query}\n)"
            return connection.sql(query).to_arrow_table().combine_chunks()
        except duckdb.Error as error:
            reason = " ".join(str(error).split())
            raise ConfigurationError(f"The feature repository's {where} does not run: {reason}") from error


def _cast(kinds: Mapping[str, str]) -> list[str]:
    return [f"CAST({quoted(name)} AS {_TYPES[kind]}) AS {quoted(name)}" for name, kind in kinds.items()]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return connect()


# DuckDB complains of connections that outlive the interpreter.
atexit.register(_database.cache_clear)
