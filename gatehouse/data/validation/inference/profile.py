"""What is seen in the tables of a snapshot, by column and between tables, as far as a contract can be inferred from it.

Every question is bounded: so many combinations of columns, so many pairs of tables, however wide the snapshot is.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import duckdb

from gatehouse.data.validation.inference.text_pattern import shared_pattern
from gatehouse.data.validation.tables import Table, misplaced, name, scan

MANY = 100
FEW_VALUES = 20
_KEY_TYPES = ("int64", "string", "timestamp")
_TYPES = (*_KEY_TYPES, "double", "bool")
_LEAST_KEYS = 10
_SAMPLE = 20_000
_PATTERN_SAMPLE = 2000
_KEY_COLUMNS = 8
_COLUMNS_AT_ONCE = 50
_WIDE, _SOME = 200, "gatehouse_some_columns"
"""Columns from which on a query of one of them takes longer to open the files than to read it."""
_LONGEST = 64
_KEY_SIZES = (2, 3, 4)
_KEYS_VERIFIED = 5
_PAIRS = 100
_UNMATCHED = 0.01


@dataclass(frozen=True)
class Seen:
    """What is seen of one column.

    Attributes:
        column, kind: Its name and type.
        rows, nulls: Rows of the table, and those of them that are null.
        low, high: Least and greatest finite value, times in microseconds since 1970; None where there is none.
        nan, below, above: Values that are NaN, negative and positive infinity.
        distinct: Different values, estimated beyond some tens.
        shortest, longest: Characters of the shortest and longest text; None where there is none.
        zoned: Whether its times have a zone.
        unique: Whether no value stands twice.
        values: All values with their row counts where they are few, the most frequent first; else empty.
        pattern: Regular expression that all its texts match; empty for none.
    """

    column: str
    kind: str
    rows: int
    nulls: int
    low: Any = None
    high: Any = None
    nan: int = 0
    below: int = 0
    above: int = 0
    distinct: int = 0
    shortest: int | None = None
    longest: int | None = None
    zoned: bool = False
    unique: bool = False
    values: tuple[tuple[Any, int], ...] = ()
    pattern: str = ""

    @property
    def held(self) -> int:
        """Rows that are not null."""
        return self.rows - self.nulls


@dataclass(frozen=True)
class Match:
    """Values of `column` that stand in the unique column `to` of another table, but for `unmatched` rows."""

    column: str
    table: str
    to: str
    unmatched: int


@dataclass(frozen=True)
class SeenTable:
    """What is seen of one table; `left_out` says of columns that no contract can state why."""

    table: Table
    columns: Mapping[str, Seen]
    left_out: Mapping[str, str]
    key: tuple[str, ...] = ()
    ordered: str = ""
    descending: bool = False
    matches: tuple[Match, ...] = field(default=())

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.table.rows


def profile(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Table]) -> dict[str, SeenTable]:
    """Look at every table, then for keys between them."""
    found = {table: _table(connection, tables[table]) for table in sorted(tables)}
    matches = _matches(connection, found)
    return {table: replace(seen, matches=tuple(matches.get(table, ()))) for table, seen in found.items()}


def _table(connection: duckdb.DuckDBPyConnection, table: Table) -> SeenTable:
    types, left_out = _usable(table)
    columns = _columns(connection, table, types)
    key = () if any(seen.unique and not seen.nulls for seen in columns.values()) else _key(connection, table, columns)
    ordered, descending = _order(connection, table, columns)
    return SeenTable(table, columns, left_out, key, ordered, descending)


def _usable(table: Table) -> tuple[dict[str, str], dict[str, str]]:
    """Types of the columns that a contract can state, and why the others are left out."""
    types, left_out, known = {}, {}, set[str]()
    for column, kind in table.types().items():
        if kind not in _TYPES:
            left_out[column] = f"a contract has no type for {kind}"
        elif not column or "\0" in column or column.casefold() in known:
            left_out[column] = "SQL does not tell its name from another's"
        else:
            types[column] = kind
            known.add(column.casefold())
    return types, left_out


# Columns


def _columns(connection: duckdb.DuckDBPyConnection, table: Table, types: Mapping[str, str]) -> dict[str, Seen]:
    """Two passes over the table, and one over each column of texts or of few values."""
    zoned = {column.name for column in table.columns if "tz=" in column.type}
    wanted = {f"{key}|{column}": sql for column, kind in types.items() for key, sql in _aggregates(name(column), kind)}
    scanned = scan(connection, table.name, wanted)
    found: dict[str, Seen] = {}
    for column, kind in types.items():
        measured = {key: scanned[f"{key}|{column}"] for key, _ in _aggregates("", kind)}
        nulls = table.rows - measured.pop("held")
        found[column] = Seen(column, kind, table.rows, nulls, **measured, zoned=column in zoned)
    likely = [
        column
        for column, seen in found.items()
        if seen.kind in _KEY_TYPES and seen.held > 1 and seen.distinct >= 0.7 * seen.held
    ]
    exact = scan(connection, table.name, {column: f"count(DISTINCT hash({name(column)}))" for column in likely})
    values, patterns = _values(connection, table, found), _patterns(connection, table, found)
    for column, seen in found.items():
        unique = column in exact and _distinct_values(exact[column], seen) == seen.held
        found[column] = replace(
            seen,
            unique=unique,
            values=values.get(column, ()),
            pattern=patterns.get(column, ""),
        )
    return found


def _distinct_values(hashes: int, seen: Seen) -> int:
    # A null has a hash too.
    return hashes - (1 if seen.nulls else 0)


def _aggregates(quoted: str, kind: str) -> Iterator[tuple[str, str]]:
    yield "held", f"count({quoted})"
    yield "distinct", f"approx_count_distinct({quoted})"
    if kind == "string":
        yield "shortest", f"min(length({quoted}))"
        yield "longest", f"max(length({quoted}))"
    elif kind == "double":
        yield "low", f"min({quoted}) FILTER (WHERE isfinite({quoted}))"
        yield "high", f"max({quoted}) FILTER (WHERE isfinite({quoted}))"
        yield "nan", f"count(*) FILTER (WHERE isnan({quoted}))"
        yield "below", f"count(*) FILTER (WHERE {quoted} = '-Infinity'::DOUBLE)"
        yield "above", f"count(*) FILTER (WHERE {quoted} = 'Infinity'::DOUBLE)"
    elif kind == "int64":
        yield "low", f"min({quoted})"
        yield "high", f"max({quoted})"
    elif kind == "timestamp":
        yield "low", f"epoch_us(min({quoted}) FILTER (WHERE isfinite({quoted})))"
        yield "high", f"epoch_us(max({quoted}) FILTER (WHERE isfinite({quoted})))"


def _values(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: Mapping[str, Seen]
) -> dict[str, tuple[tuple[Any, int], ...]]:
    """All values of the columns in which they are few in many rows; a pass for some columns each."""
    few = [
        column
        for column, seen in columns.items()
        if seen.kind in ("string", "int64") and seen.held >= MANY and seen.distinct <= 4 * FEW_VALUES
    ]
    counts: dict[str, Counter[Any]] = {column: Counter() for column in few}
    for start in range(0, len(few), _COLUMNS_AT_ONCE):
        some = few[start : start + _COLUMNS_AT_ONCE]
        rows = connection.sql(f"SELECT {', '.join(map(name, some))} FROM {name(table.name)}")
        for batch in rows.to_arrow_reader(_SAMPLE):
            for column, cells in zip(some, batch.columns, strict=True):
                found = cells.drop_null().value_counts().to_pylist()
                counts[column].update({each["values"]: each["counts"] for each in found})
    return {column: tuple(sorted(each.items(), key=lambda one: (-one[1], one[0]))) for column, each in counts.items()}


def _patterns(connection: duckdb.DuckDBPyConnection, table: Table, columns: Mapping[str, Seen]) -> dict[str, str]:
    """The patterns of the columns of short texts."""
    texts = [
        column
        for column, seen in columns.items()
        if seen.kind == "string" and seen.held >= MANY and (seen.longest or 0) <= _LONGEST
    ]
    if len(columns) <= _WIDE:
        return {column: _pattern(connection, name(table.name), column) for column in texts}
    found = dict[str, str]()
    for start in range(0, len(texts), _COLUMNS_AT_ONCE):
        some = texts[start : start + _COLUMNS_AT_ONCE]
        chosen = ", ".join(map(name, some))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_SOME} AS SELECT {chosen} FROM {name(table.name)}")
        found |= {column: _pattern(connection, f"temp.{_SOME}", column) for column in some}
    connection.execute(f"DROP TABLE IF EXISTS temp.{_SOME}")
    return found


def _pattern(connection: duckdb.DuckDBPyConnection, view: str, column: str) -> str:
    """The pattern of a sample of the texts, if all of them match it."""
    quoted = name(column)
    held = f"FROM {view} WHERE {quoted} IS NOT NULL"
    sample = connection.execute(
        f"SELECT DISTINCT {quoted} AS text {held} ORDER BY hash(text), text LIMIT {_PATTERN_SAMPLE}"
    ).fetchall()
    pattern = shared_pattern(text for (text,) in sample)
    if not pattern:
        return ""
    matching = connection.execute(f"SELECT bool_and(regexp_full_match({quoted}, ?)) {held}", [pattern]).fetchall()
    return pattern if matching[0][0] else ""


# Keys and order


def _key(connection: duckdb.DuckDBPyConnection, table: Table, columns: Mapping[str, Seen]) -> tuple[str, ...]:
    """The smallest combination of likely columns that no two rows share; empty for none among those tried."""
    if table.rows < MANY:
        return ()
    kinds = {"timestamp": 0, "string": 1, "int64": 2}
    likely = sorted(
        (seen for seen in columns.values() if seen.kind in kinds and not seen.nulls and seen.distinct > 1),
        key=lambda seen: (not _names_a_thing(seen.column), kinds[seen.kind], -seen.distinct),
    )[:_KEY_COLUMNS]
    tried = [each for size in _KEY_SIZES for each in combinations(likely, size) if _can_tell(each, table.rows)]
    if not tried:
        return ()
    counts = ", ".join(_hashes(each) for each in tried)
    listed = ", ".join(name(seen.column) for seen in likely)
    sampled = f"(SELECT {listed} FROM {name(table.name)} LIMIT {_SAMPLE})"
    found = connection.execute(f"SELECT {counts} FROM {sampled}").fetchall()[0]
    passed = [each for each, distinct in zip(tried, found, strict=True) if distinct == min(table.rows, _SAMPLE)]
    for each in passed[:_KEYS_VERIFIED]:
        if scan(connection, table.name, {"distinct": _hashes(each)})["distinct"] == table.rows:
            return tuple(seen.column for seen in each)
    return ()


def _names_a_thing(column: str) -> bool:
    return re.search(r"(?:^|_)(?:id|key|code|uuid|no|number)$|Id$", column) is not None


def _can_tell(columns: Sequence[Seen], rows: int) -> bool:
    """Whether there are enough combinations of values for all rows; distinct values are estimates."""
    combined = 1.0
    for seen in columns:
        combined *= seen.distinct
    return combined >= 0.8 * rows


def _hashes(columns: Sequence[Seen]) -> str:
    return f"count(DISTINCT hash({', '.join(name(seen.column) for seen in columns)}))"


def _order(connection: duckdb.DuckDBPyConnection, table: Table, columns: Mapping[str, Seen]) -> tuple[str, bool]:
    """The column of times that all rows stand in the order of, and whether it falls; empty for none."""
    times = [seen for seen in columns.values() if seen.kind == "timestamp" and not seen.nulls and seen.distinct >= 10]
    for seen in times[:3] if table.rows >= MANY else ():
        for descending in (False, True):
            if not misplaced(connection, table, (seen.column,), descending, strictly=False, limit=1)[0]:
                return seen.column, descending
    return "", False


# Between tables


def _matches(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, SeenTable]) -> dict[str, list[Match]]:
    found: dict[str, list[Match]] = {}
    pairs = [
        (table, seen, other, target)
        for table, one in tables.items()
        for seen in one.columns.values()
        for other, another in tables.items()
        for target in another.columns.values()
        if other != table and _may_lead(seen, target, other)
    ]
    pairs.sort(key=lambda pair: not _same_name(pair[1].column, pair[3].column, pair[2]))
    taken: set[tuple[str, str]] = set()
    for table, seen, other, target in pairs[:_PAIRS]:
        if (table, seen.column) in taken or (other, target.column, table) in {
            (of, match.column, match.table) for of, matches in found.items() for match in matches
        }:
            continue
        unmatched = _unmatched(connection, table, seen.column, other, target.column)
        if unmatched <= _UNMATCHED * seen.held:
            taken.add((table, seen.column))
            found.setdefault(table, []).append(Match(seen.column, other, target.column, unmatched))
    order = {table: list(one.columns) for table, one in tables.items()}
    return {table: sorted(some, key=lambda one: order[table].index(one.column)) for table, some in found.items()}


def _may_lead(seen: Seen, target: Seen, other: str) -> bool:
    """Whether a column may name the rows of another table by its unique column: whole numbers only by name."""
    if seen.kind != target.kind or not target.unique or seen.held < _LEAST_KEYS or seen.rows < target.held:
        return False
    named = _same_name(seen.column, target.column, other)
    if seen.kind == "string":
        return seen.distinct <= 1.1 * target.distinct and (named or (seen.distinct > 1 and seen.held >= MANY))
    return seen.kind == "int64" and named


def _same_name(column: str, target: str, table: str) -> bool:
    """`customer_id` names `customer_id`, or `id` of the table `customers`."""
    return column == target or column in (f"{table}_{target}", f"{table.removesuffix('s')}_{target}")


def _unmatched(connection: duckdb.DuckDBPyConnection, table: str, column: str, other: str, to: str) -> int:
    mine = f"{name(table)}.{name(column)}"
    exists = f"SELECT 1 FROM {name(other)} AS other WHERE other.{name(to)} = {mine}"
    query = f"SELECT count(*) FROM {name(table)} WHERE {mine} IS NOT NULL AND NOT EXISTS ({exists})"
    return int(connection.execute(query).fetchall()[0][0])
