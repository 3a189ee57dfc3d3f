"""Compares two table artifacts, or two snapshots table by table: columns, rows, statistics.

DuckDB reads the verified local files and keeps to its memory limit, so tables may be larger than memory.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.database import connect, quoted, text_literal
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.tables import Table, tables_in

if TYPE_CHECKING:
    import duckdb

EXACT_DISTINCT = 1_000_000
"""Maximum number of rows for an exact distinct count. For more rows it is estimated (HyperLogLog, about 2 % off)."""
_ORDERED = ("int", "uint", "float", "double", "decimal", "date", "time", "string", "large_string", "bool")
_VALUES = ("min", "max", "mean")
_NUMBERS = ("int", "uint", "float", "double", "decimal")


@dataclass(frozen=True)
class ColumnChange:
    """One column: its type on either side (empty where it is absent), and the statistics that differ.

    `statistics` holds the values before and after of: nulls, distinct or distinct (estimated), min, max, mean. Values
    of a sensitive column are `***`.
    """

    name: str
    before: str
    after: str
    statistics: dict[str, tuple[Any, Any]]

    @property
    def state(self) -> str:
        """added, removed, retyped, changed or same."""
        if not self.before:
            return "added"
        if not self.after:
            return "removed"
        if self.before != self.after:
            return "retyped"
        return "changed" if self.statistics else "same"


@dataclass(frozen=True)
class TableChange:
    """One table.

    Attributes:
        table: Its name in the snapshot, the path of its file in a split, or the name of the artifact.
        before, after: The artifacts; None if only the other side has the table.
        rows: Row counts before and after.
        common: Rows on both sides, compared by the columns that both sides have with the same type. A row that occurs m
            and n times counts min(m, n) times. With a key: rows with the same key and equal other columns.
        added, removed: Rows on one side only.
        changed: With a key: rows with the same key and different other columns. Without a key: 0.
        key: The key columns, if any.
        columns: Every column of either side, in order.
    """

    table: str
    before: Reference | None
    after: Reference | None
    rows: tuple[int, int]
    common: int
    added: int
    removed: int
    changed: int
    key: tuple[str, ...]
    columns: tuple[ColumnChange, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.before == self.after or (
            not (self.added or self.removed or self.changed) and all(each.state == "same" for each in self.columns)
        )


def compare(
    store: ArtifactStore,
    before: Reference | str,
    after: Reference | str,
    hidden: Callable[[Reference], frozenset[str]],
    key: Sequence[str] = (),
) -> list[TableChange]:
    """Compare two table artifacts, or two that are made of tables (snapshots, splits).

    Args:
        store: The store that holds both.
        before: The older one.
        after: The newer one.
        hidden: Gives the columns of a table whose values are not shown.
        key: Columns that identify a row, used for tables that have them all; other tables are compared by whole rows.

    Raises:
        ConfigurationError: if one is a table and the other is not, neither has tables, no table has the key columns,
            or a key repeats.
        GatehouseError: if one of them cannot be read, as `ArtifactStore.path` does.
    """
    first, second = (tables_in(store, Reference.parse(each)) for each in (before, after))
    if ("" in first) != ("" in second):
        raise ConfigurationError(
            f"{Reference.parse(before).short} and {Reference.parse(after).short} cannot be compared: expected two "
            "tables, or two snapshots, found one of each."
        )
    keys = {name: _key_of(key, first.get(name), second.get(name)) for name in sorted(first.keys() | second.keys())}
    if key and not any(keys.values()):
        raise ConfigurationError(f"--key: no table has the columns {', '.join(key)} on both sides.")
    with store.workspace() as workspace, _connection(workspace) as connection:
        return [
            _compare_table(
                store, connection, name or Reference.parse(after).name, first.get(name), second.get(name), hidden, used
            )
            for name, used in keys.items()
        ]


def _key_of(key: Sequence[str], before: Table | None, after: Table | None) -> tuple[str, ...]:
    """The key, if the table has all its columns on both sides; else empty."""
    sides = ({(each.name, each.type) for each in side.columns} for side in (before, after) if side)
    return tuple(key) if set(key) <= {name for name, _ in set.intersection(*sides)} else ()


def _compare_table(
    store: ArtifactStore,
    connection: "duckdb.DuckDBPyConnection",
    name: str,
    before: Table | None,
    after: Table | None,
    hidden: Callable[[Reference], frozenset[str]],
    key: tuple[str, ...],
) -> TableChange:
    types = [{column.name: column.type for column in each.columns} if each else {} for each in (before, after)]
    names = list(dict.fromkeys([*types[1], *types[0]]))
    if before is None or after is None or before == after:
        rows = tuple(each.rows if each else 0 for each in (before, after))
        common = rows[0] if before and after else 0
        columns = tuple(ColumnChange(each, types[0].get(each, ""), types[1].get(each, ""), {}) for each in names)
        first, second = (each.reference if each else None for each in (before, after))
        added, removed = rows[1] - common, rows[0] - common
        return TableChange(name, first, second, (rows[0], rows[1]), common, added, removed, 0, key, columns)
    for view, held in (("before", before), ("after", after)):
        _view(connection, view, store.paths(held.reference, held.file))
    counts = _counts(connection, [each for each in names if types[0].get(each) == types[1].get(each)], key, name)
    exact = max(counts[0]) <= EXACT_DISTINCT
    statistics = [_statistics(connection, view, side, exact) for view, side in zip(_VIEWS, types, strict=True)]
    kept_back = hidden(before.reference) | hidden(after.reference)
    columns = tuple(_column(each, types, statistics, each in kept_back) for each in names)
    return TableChange(name, before.reference, after.reference, *counts, key, columns)


_VIEWS = ("before", "after")


@contextmanager
def _connection(workspace: Path) -> "Iterator[duckdb.DuckDBPyConnection]":
    connection = connect(spill=workspace / "spill")
    try:
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def _view(connection: "duckdb.DuckDBPyConnection", view: str, paths: list[Path]) -> None:
    files = ", ".join(map(text_literal, paths))
    connection.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM read_parquet([{files}])")


def _counts(
    connection: "duckdb.DuckDBPyConnection", shared: list[str], key: tuple[str, ...], table: str
) -> tuple[tuple[int, int], int, int, int, int]:
    """Rows on each side, then common, added, removed and changed rows."""
    rows = tuple(_one(connection, f"SELECT count(*) FROM {view}")[0] for view in _VIEWS)
    if not shared:
        return (rows[0], rows[1]), 0, rows[1], rows[0], 0
    if not key:
        # Equal rows are counted on both sides, and the smaller count is common to both. Groups may spill to disk.
        columns = ", ".join(quoted(each) for each in shared)
        earlier = "_" * (1 + max(len(each) for each in shared))  # Longer than every column's name, so it is free.
        sides = f"SELECT {columns}, true AS {earlier} FROM before UNION ALL SELECT {columns}, false FROM after"
        both = f"least(count_if({earlier}), count_if(NOT {earlier})) AS n"
        matched = f"SELECT {both} FROM ({sides}) GROUP BY {columns}"
        common = _one(connection, f"SELECT coalesce(sum(n), 0)::BIGINT FROM ({matched})")[0]
        return (rows[0], rows[1]), common, rows[1] - common, rows[0] - common, 0
    return (rows[0], rows[1]), *_keyed(connection, shared, key, table, (rows[0], rows[1]))


def _keyed(
    connection: "duckdb.DuckDBPyConnection", shared: list[str], key: tuple[str, ...], table: str, rows: tuple[int, int]
) -> tuple[int, int, int, int]:
    columns = ", ".join(quoted(each) for each in key)
    for view, count in zip(_VIEWS, rows, strict=True):
        distinct = _one(connection, f"SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {view})")[0]
        if distinct != count:
            raise ConfigurationError(
                f"--key: ({', '.join(key)}) does not identify the rows of {table} {view}: expected {count:,} distinct "
                f"keys, found {distinct:,}. Name more columns, or leave --key out."
            )
    match = " AND ".join(f"b.{quoted(each)} IS NOT DISTINCT FROM a.{quoted(each)}" for each in key)
    others = [each for each in shared if each not in key]
    equal = " AND ".join(f"b.{quoted(each)} IS NOT DISTINCT FROM a.{quoted(each)}" for each in others) or "true"
    both, common = _one(connection, f"SELECT count(*), count(*) FILTER ({equal}) FROM before b JOIN after a ON {match}")
    return common, rows[1] - both, rows[0] - both, both - common


def _statistics(
    connection: "duckdb.DuckDBPyConnection", view: str, types: dict[str, str], exact: bool
) -> dict[str, dict[str, Any]]:
    """Nulls, distinct count, extremes and mean of each column, in one pass."""
    wanted: list[tuple[str, str, str]] = []
    for name, kind in types.items():
        column = quoted(name)
        wanted.append((name, "nulls", f"count(*) - count({column})"))
        distinct = f"count(DISTINCT {column})" if exact else f"approx_count_distinct({column})"
        wanted.append((name, "distinct" if exact else "distinct (estimated)", distinct))
        if kind.startswith(_ORDERED):
            wanted += [(name, "min", f"min({column})"), (name, "max", f"max({column})")]
        if kind.startswith(_NUMBERS):
            # favg compensates rounding, so that the order in which threads add rows does not make equal tables differ.
            wanted.append((name, "mean", f"favg({column})"))
    found = _one(connection, f"SELECT {', '.join(expression for _, _, expression in wanted)} FROM {view}")
    statistics: dict[str, dict[str, Any]] = {name: {} for name in types}
    for (name, statistic, _), value in zip(wanted, found, strict=True):
        statistics[name][statistic] = value
    return statistics


def _column(
    name: str, types: list[dict[str, str]], statistics: list[dict[str, dict[str, Any]]], hidden: bool
) -> ColumnChange:
    first, second = (side.get(name, {}) for side in statistics)
    differ = {
        each: ("***", "***") if hidden and each in _VALUES else (first.get(each), second.get(each))
        for each in dict.fromkeys([*first, *second])
        if not _equal(first.get(each), second.get(each))
    }
    return ColumnChange(name, types[0].get(name, ""), types[1].get(name, ""), differ)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-12) or (math.isnan(first) and math.isnan(second))
    return bool(first == second)


def _one(connection: "duckdb.DuckDBPyConnection", query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None
    return tuple(row)
