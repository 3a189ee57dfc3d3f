"""The tables of a snapshot in DuckDB: opened read-only, scanned once, looked up for example rows."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import duckdb

from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.store.database import connect, quoted, text_literal, time_literal
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore

_LONGEST = 80
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_AGGREGATES_AT_ONCE = 200
"""DuckDB's memory grows with the square of their number: 5,000 over 1,000 rows took 17 GB and a minute."""
_SAMPLE = 20_000
_REPEATED = 4
REDACTED = "(redacted)"


@dataclass(frozen=True)
class Table:
    """One table: its columns from the manifest, its files in order with their row counts, and its sensitive columns."""

    name: str
    columns: tuple[Column, ...]
    files: tuple[tuple[Path, int], ...]
    sensitive: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return sum(rows for _, rows in self.files)

    def types(self) -> dict[str, str]:
        """Type of every column, in the contract's words."""
        return {column.name: column.type.split("[")[0] for column in self.columns}


def tables_of(store: ArtifactStore, snapshot: str, prefix: str = "") -> dict[str, Table]:
    """The tables of a snapshot by name; `prefix` is put before their names in SQL."""
    tables = {}
    for table, dataset in store.manifest(snapshot).derived_from.items():
        manifest = store.manifest(dataset)
        counts = [entry.rows or 0 for entry in manifest.files]
        files = tuple(zip(store.paths(dataset), counts, strict=True))
        tables[table] = Table(f"{prefix}{table}", manifest.columns, files, sensitive_columns(store, dataset))
    return tables


@contextmanager
def opened(tables: Sequence[Table], temporary: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with a view for every table; nothing else can be read or written from it.

    One thread, so that a user's SQL gives the same result on every machine, even if it reads rows in their order.
    DuckDB must not use the files' statistics, because Parquet keeps NaN out of them (duckdb/duckdb#25521). Raises
    ConfigurationError if two tables have one name in SQL, which has no upper and lower case.
    """
    if twice := alike([table.name for table in tables]):
        listed = ", ".join(f"{first} and {second}" for second, first in twice.items())
        raise ConfigurationError(
            f"Tables {listed}: expected names that differ in more than upper and lower case. Rename one in the source."
        )
    with connect(spill=temporary, threads=1, autoinstall_known_extensions="false") as connection:
        files = [str(path) for table in tables for path, _ in table.files]
        connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        connection.execute("SET disabled_optimizers = 'statistics_propagation,filter_pushdown'")
        connection.execute(f"SET allowed_paths = [{', '.join(map(text_literal, files))}]")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        for table in tables:
            listed = ", ".join(text_literal(path) for path, _ in table.files)
            connection.execute(f"CREATE VIEW {quoted(table.name)} AS SELECT * FROM read_parquet([{listed}])")
        yield connection


def alike(names: Iterable[str]) -> dict[str, str]:
    """Names that equal an earlier one when the case of A to Z is ignored, as in SQL, with the earlier one."""
    first: dict[str, str] = {}
    return {name: before for name in names if (before := first.setdefault(name.translate(_LOWER), name)) != name}


def scan(connection: duckdb.DuckDBPyConnection, table: str, aggregates: Mapping[str, str]) -> dict[str, Any]:
    """Evaluate all `aggregates`, up to 200 in one pass over a table; the result has their keys."""
    keys, scanned = list(aggregates), dict[str, Any]()
    for start in range(0, len(keys), _AGGREGATES_AT_ONCE):
        chunk = keys[start : start + _AGGREGATES_AT_ONCE]
        chosen = ", ".join(aggregates[key] for key in chunk)
        scanned |= zip(chunk, connection.execute(f"SELECT {chosen} FROM {quoted(table)}").fetchall()[0], strict=True)
    return scanned


def repeats(connection: duckdb.DuckDBPyConnection, table: str, column: str) -> bool:
    """Whether the first rows of a table hold far fewer values of a column than rows."""
    identifier, first = quoted(column), f"(SELECT {quoted(column)} FROM {quoted(table)} LIMIT {_SAMPLE})"
    rows, distinct = connection.execute(f"SELECT count(*), count(DISTINCT {identifier}) FROM {first}").fetchall()[0]
    return bool(distinct * _REPEATED < rows)


def scan_values(
    connection: duckdb.DuckDBPyConnection, table: str, column: str, conditions: Mapping[str, str]
) -> dict[str, Any]:
    """Count the rows for which each condition on one column holds, evaluating it once per distinct value."""
    counts = ", ".join(f"coalesce(sum(gatehouse_rows) FILTER (WHERE {broken}), 0)" for broken in conditions.values())
    values = f"SELECT {quoted(column)}, count(*) AS gatehouse_rows FROM {quoted(table)} GROUP BY ALL"
    rows = connection.execute(f"SELECT {counts} FROM ({values})").fetchall()[0]
    return dict(zip(conditions, map(int, rows), strict=True))


def examples(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    condition: str,
    columns: Sequence[str],
    sensitive: frozenset[str],
    limit: int,
) -> tuple[dict[str, Any], ...]:
    """The first rows, in the table's order, for which `condition` (`WHERE …` or `QUALIFY …`) holds.

    Each has its `row` number from 0, and some columns. Values of `sensitive` columns are not read.
    """
    if limit == 0:
        return ()
    shown = [column for column in dict.fromkeys(columns) if column not in sensitive]
    selected = ", ".join(["gatehouse_row", *map(quoted, shown)])
    query = f"SELECT {selected} FROM ({_numbered(table)}) AS {quoted(table.name)} {condition}"
    rows = connection.execute(f"{query} ORDER BY gatehouse_row LIMIT {limit}").fetchall()
    hidden = {column: REDACTED for column in columns if column in sensitive}
    return tuple({"row": row[0], **dict(zip(shown, map(plain, row[1:]), strict=True)), **hidden} for row in rows)


def misplaced(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    columns: Sequence[str],
    descending: bool,
    strictly: bool,
    limit: int,
) -> tuple[int, list[int]]:
    """The number of rows that are out of order after the row before them, and the row numbers of the first of them.

    Rows are compared by the first column, then the next; a pair with a null in any is left out.
    """
    identifiers = [quoted(column) for column in columns]
    ahead = [f"ahead_{index}" for index in range(len(columns))]
    lagged = ", ".join(
        f"lag({column}) OVER (ORDER BY gatehouse_row) AS {before}"
        for column, before in zip(identifiers, ahead, strict=True)
    )
    wrong = "true" if strictly else "false"
    for column, before in reversed(list(zip(identifiers, ahead, strict=True))):
        behind = f"{column} > {before}" if descending else f"{column} < {before}"
        wrong = f"({behind} OR ({column} = {before} AND {wrong}))"
    valid = " AND ".join(f"{column} IS NOT NULL" for column in (*identifiers, *ahead))
    pairs = f"SELECT gatehouse_row, {', '.join(identifiers)}, {lagged} FROM ({_numbered(table)})"
    shown = f"arg_min(gatehouse_row, gatehouse_row, {max(limit, 1)})"
    query = f"SELECT count(*), {shown} FROM ({pairs}) WHERE {valid} AND {wrong}"
    count, first = connection.execute(query).fetchall()[0]
    return int(count), [int(row) for row in first or ()][:limit]


def _numbered(table: Table) -> str:
    """SQL for all rows of a table with their number, `gatehouse_row`, from 0."""
    parts, start = [], 0
    for path, rows in table.files:
        parts.append(
            f"SELECT *, row_number() OVER () - 1 + {start} AS gatehouse_row FROM read_parquet({text_literal(path)})"
        )
        start += rows
    return " UNION ALL ".join(parts)


def plain(value: Any) -> Any:
    """A value for JSON: times as ISO 8601, NaN and infinities as words, long texts cut."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[: _LONGEST - 1] + "…"
    return value if value is None or isinstance(value, (bool, int, float, str)) else plain(str(value))


def literal(value: object) -> str:
    """A number, truth value, time or text as a literal of SQL."""
    if isinstance(value, datetime):
        return time_literal(value)
    if isinstance(value, (bool, int)):
        return str(value).upper()
    return f"{value!r}::DOUBLE" if isinstance(value, float) else text_literal(value)
