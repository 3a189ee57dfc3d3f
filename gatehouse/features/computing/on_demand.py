"""Computes on-demand features: the same query for a training set, a batch and one online request."""

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import SQL_TYPES
from gatehouse.features.database import cursor, quoted
from gatehouse.features.definitions.repository import OnDemand
from gatehouse.store.hidden_values import said_by, unless_hidden


def with_on_demand(views: Iterable[OnDemand], rows: pa.Table, *, alone: bool = False) -> pa.Table:
    """`rows` with the features of on-demand views added.

    Args:
        views: The on-demand views.
        rows: The features and request values that the views read; shape (rows, columns).
        alone: Check that each row gives the same features when it is computed alone, as in a request.

    Returns:
        The same rows in the same order, with one column more per feature.

    Raises:
        ConfigurationError: as `on_demand_features`; or if a row gives other features when it is computed alone.
    """
    for view in views:
        found = on_demand_features(view, rows)
        if alone:
            _require_alone(view, rows, found)
        for column in found.column_names:
            rows = rows.append_column(column, found[column])
    return rows


def on_demand_features(view: OnDemand, rows: pa.Table) -> pa.Table:
    """The features of `view` for each of `rows`, in order.

    Values are cast to the kinds that the definitions state, so the query sees the same types wherever they come from.

    Raises:
        ConfigurationError: if `rows` lacks a column, or the query does not run, lacks a feature, or gives more or fewer
            rows.
    """
    where = _file(view)
    missing = [name for name in view.inputs if name not in rows.column_names]
    if missing:
        raise ConfigurationError(
            f"{where}: expected {', '.join(missing)} among the features and request values, found "
            f"{', '.join(rows.column_names)}. Send them, or name the view that has them."
        )
    found = _run(view, rows)
    if found.num_rows != rows.num_rows:
        raise ConfigurationError(
            f"{where}: expected one row for each of the {rows.num_rows} in `rows`, found {found.num_rows}. Return each "
            "row exactly once."
        )
    return found


def require_values(view: OnDemand, rows: pa.Table, where: str) -> None:
    """Refuse rows with a value that is not of the kind that the view declares.

    Args:
        view: The on-demand view.
        rows: Rows with some of its inputs.
        where: Where the rows come from, for the message.

    Raises:
        ConfigurationError: naming the column, the row, counted from 1, and the value.
    """
    for name, kind in view.inputs.items():
        if name not in rows.column_names or kind == "categorical":
            continue
        with cursor() as connection:
            connection.register("given", rows.select([name]))
            text = f"{quoted(name)}::VARCHAR"
            # Other values are cast by way of text, so that a value that cannot become a number, such as a date, is
            # found too.
            value = quoted(name) if _counts(rows.schema.field(name).type) else text
            found = connection.execute(
                f"SELECT place, text FROM (SELECT row_number() OVER () AS place, {value} AS value, {text} AS text "
                f"FROM given) WHERE text IS NOT NULL AND TRY_CAST(value AS {SQL_TYPES[kind]}) IS NULL "
                "ORDER BY place LIMIT 1"
            ).fetchall()
        if found:
            place, value = found[0]
            raise ConfigurationError(
                f"{where}: {name} in row {place}: expected a number, as the on-demand view {view.name} declares it, "
                f"found {unless_hidden(repr(value))}. Correct it, or leave it empty if it is not known."
            )


def _counts(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(any(one(kind) for one in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)))


def _require_alone(view: OnDemand, rows: pa.Table, found: pa.Table) -> None:
    for place in sorted({0, rows.num_rows // 2, rows.num_rows - 1}) if rows.num_rows else ():
        alone = on_demand_features(view, rows.slice(place, 1))
        # Not-a-number differs from itself; its text does not.
        if repr(alone.to_pylist()) != repr(found.slice(place, 1).to_pylist()):
            raise ConfigurationError(
                f"{_file(view)}: expected the same result for a row alone as among {rows.num_rows} rows, found another "
                f"one for row {place}. A serving request has one row: do not read other rows or the clock, and keep "
                "the order of the rows."
            )


def _file(view: OnDemand) -> str:
    return f"on_demand/{view.name}.sql"


def _run(view: OnDemand, rows: pa.Table) -> pa.Table:
    wanted = ", ".join(_cast(view.spec.features))
    with cursor() as connection:
        connection.register("given", rows.select(list(view.inputs)))
        inputs = ", ".join(_cast(view.inputs))
        try:
            query = f"WITH rows AS (SELECT {inputs} FROM given) SELECT {wanted} FROM (\n{view.query}\n)"
            return connection.sql(query).to_arrow_table().combine_chunks()
        except duckdb.OutOfMemoryException:
            raise  # The stage reports it: the query is not wrong.
        except duckdb.Error as error:
            require_values(view, rows, f"The rows of {_file(view)}")
            raise ConfigurationError(
                f"The feature repository's {_file(view)} does not run: {said_by(error)}"
            ) from error


def _cast(kinds: Mapping[str, str]) -> list[str]:
    return [f"CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in kinds.items()]
