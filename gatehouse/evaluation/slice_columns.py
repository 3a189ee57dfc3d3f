"""The columns whose values slice the test rows: of the training set, of SQL expressions over it, and two crossed."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.store.database import connect
from gatehouse.store.hidden_values import said_by

NULL = "(null)"
CROSS = " × "


def slice_columns(table: pa.Table, spec: EvaluationSpec) -> dict[str, pa.ChunkedArray]:
    """By column, expression or pair, the name of each row's slice, shape (rows,); a null is a value of its own.

    Args:
        table: The test rows.
        spec: Names columns, or expressions by name, and pairs of these.

    Raises:
        ConfigurationError: if there is no such column, or DuckDB cannot evaluate an expression over the rows.
    """
    if isinstance(spec.slices, tuple):
        named = named_values(table, spec.slices, "slices")
    else:
        columns = {name: _evaluated(table, name, expression) for name, expression in spec.slices.items()}
        named = {name: _named(name, column) for name, column in columns.items()}
    for first, second in spec.crossed_slices:
        named[f"{first}{CROSS}{second}"] = pc.binary_join_element_wise(named[first], named[second], CROSS)
    return named


def named_values(table: pa.Table, columns: Sequence[str], key: str) -> dict[str, pa.ChunkedArray]:
    """By column, the name of each row's group, `column=value`, shape (rows,); a null is a value of its own.

    Args:
        table: The test rows.
        columns: Columns of it.
        key: Of the specification, which names them.

    Raises:
        ConfigurationError: if there is no such column.
    """
    if missing := [column for column in columns if column not in table.column_names]:
        raise ConfigurationError(
            f"evaluation.{key}: the training set has no column {', '.join(missing)}; it has "
            f"{', '.join(table.column_names)}."
        )
    return {name: _named(name, table[name]) for name in columns}


def problems_of(expression: str, columns: Collection[str]) -> Iterator[str]:
    """What is wrong with an expression over rows with these columns, without any row."""
    parsed = _parsed(f"SELECT ({expression}) FROM rows")
    if not expression.strip() or parsed.get("error"):
        # Without the brackets, which the user did not write.
        alone = _parsed(f"SELECT {expression}")
        why = f": {alone['error_message'].splitlines()[0]}" if alone.get("error") else ""
        yield f"expected one SQL expression, found {expression!r}{why}"
    elif len(parsed["statements"]) != 1 or len(parsed["statements"][0]["node"]["select_list"]) != 1:
        yield f"expected one SQL expression, found more in {expression!r}"
    else:
        unknown = sorted({name for name in _columns_in(parsed) if name not in columns})
        yield from (f"expected columns of the training set, found {name} in {expression!r}" for name in unknown)


def _parsed(query: str) -> Any:
    with connect(threads=1) as database:
        (found,) = database.execute("SELECT json_serialize_sql(?)", [query]).fetchone() or ()
    return json.loads(found)


def _columns_in(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield node["column_names"][-1]
        for each in node.values():
            yield from _columns_in(each)
    elif isinstance(node, list):
        for each in node:
            yield from _columns_in(each)


def _evaluated(table: pa.Table, name: str, expression: str) -> pa.ChunkedArray:
    import duckdb

    try:
        with connect(threads=1) as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("rows", table)
            found = database.sql(f"SELECT ({expression}) AS value FROM rows").to_arrow_table()
    except duckdb.Error as error:
        raise ConfigurationError(
            f"evaluation.slices: {name}: expected a SQL expression over the test rows, which have "
            f"{', '.join(table.column_names)}; found {expression!r}: {said_by(error).partition(' LINE ')[0]}"
        ) from error
    if found.num_rows != table.num_rows:
        raise ConfigurationError(
            f"evaluation.slices: {name}: expected a value for each of {table.num_rows:,} rows, found "
            f"{found.num_rows:,} of {expression!r}. Leave aggregates out."
        )
    return found["value"]


def _named(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(name, _text(column), "=")


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.cast(column, pa.string()), NULL)
