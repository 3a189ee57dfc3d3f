"""Computes on-demand features: the same query for a training set, a batch and one online request."""

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import casts
from gatehouse.features.database import cursor
from gatehouse.features.definitions.repository import OnDemand
from gatehouse.store.hidden_values import error_words
from gatehouse.store.repeatable_sql import repeatable


def with_on_demand(views: Iterable[OnDemand], rows: pa.Table, *, alone: bool = False) -> pa.Table:
    """`rows` with the features of on-demand views added: the same rows in the same order, one column per feature.

    `rows` has the features and request values that the views read. With `alone`, some rows are computed alone too, as
    in a request. Raises ConfigurationError if these have other features then, or as `on_demand_features`.
    """
    for view in views:
        features = on_demand_features(view, rows)
        for place in sorted({0, rows.num_rows // 2, rows.num_rows - 1}) if alone and rows.num_rows else ():
            single = on_demand_features(view, rows.slice(place, 1))
            # Not-a-number differs from itself; its text does not.
            if repr(single.to_pylist()) != repr(features.slice(place, 1).to_pylist()):
                raise ConfigurationError(
                    f"on_demand/{view.name}.sql: expected the same result for a row alone as among {rows.num_rows} "
                    f"rows, found another one for row {place}. A request has one row: do not read other rows or the "
                    "clock, and keep the order of the rows."
                )
        for column in features.column_names:
            rows = rows.append_column(column, features[column])
    return rows


def on_demand_features(view: OnDemand, rows: pa.Table) -> pa.Table:
    """The features of `view` for each of `rows`, in order; values are cast to the kinds that the definitions state.

    Raises ConfigurationError if `rows` lacks a column, or the query does not run or gives more or fewer rows.
    """
    file = f"on_demand/{view.name}.sql"
    if missing := [name for name in view.inputs if name not in rows.column_names]:
        raise ConfigurationError(
            f"{file}: expected {', '.join(missing)} among the features and request values, found "
            f"{', '.join(rows.column_names)}. Send them, or name the view that has them."
        )
    with cursor() as connection:
        connection.register("inputs", rows.select(list(view.inputs)))
        inputs, computed = (", ".join(casts(kinds)) for kinds in (view.inputs, view.spec.features))
        query = f"WITH rows AS (SELECT {inputs} FROM inputs) SELECT {computed} FROM ({view.query}\n)"
        try:
            features = connection.sql(repeatable(connection, query, file)).to_arrow_table().combine_chunks()
        except duckdb.OutOfMemoryException:
            raise  # The stage reports it: the query is not wrong.
        except duckdb.Error as error:
            raise ConfigurationError(f"The feature repository's {file} does not run: {error_words(error)}") from error
    if features.num_rows != rows.num_rows:
        raise ConfigurationError(
            f"{file}: expected one row for each of the {rows.num_rows} in `rows`, found {features.num_rows}. Return "
            "each row exactly once."
        )
    return features
