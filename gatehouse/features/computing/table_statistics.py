"""Statistics of a feature table for people: rows, keys, times, and the values of every feature."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from gatehouse.features.database import connect, open_tables, quoted
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View

_FREQUENT = 3


@dataclass(frozen=True)
class TableStatistics:
    """Figures of a table.

    Attributes:
        rows: All rows, corrections included.
        keys: Number of distinct keys.
        first_event: Time of the first event, as text in UTC; empty without rows.
        last_event: Time of the last event.
        known: The newest time at which a row became known.
        features: For each feature its name, share of nulls, approximate number of distinct values; for a number its
            minimum, mean and maximum; for a category its most frequent values with their shares.
    """

    rows: int
    keys: int
    first_event: str
    last_event: str
    known: str
    features: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """As a dictionary, for JSON."""
        return asdict(self)


def table_statistics(view: View, files: Sequence[Path]) -> TableStatistics:
    """Read the Parquet files of a view's table."""
    with connect() as connection:
        open_tables(connection, {view.name: files})
        table = f"raw.{quoted(view.name)}"
        keys = ", ".join(map(quoted, view.spec.entities))
        times = f"min({EVENT_TIMESTAMP})::VARCHAR, max({EVENT_TIMESTAMP})::VARCHAR, max({KNOWN_FROM})::VARCHAR"
        rows, different, first, last, known = connection.execute(
            f"SELECT count(*), count(DISTINCT ({keys})), {times} FROM {table}"
        ).fetchall()[0]
        held = connection.sql(f"FROM {table}").columns
        features = [
            _feature(connection, table, name, kind, rows)
            for name, kind in view.spec.features.items()
            if name in held  # a feature that was added later has no values in this file
        ]
    return TableStatistics(rows, different, first or "", last or "", known or "", features)


def _feature(connection: duckdb.DuckDBPyConnection, table: str, name: str, kind: str, rows: int) -> dict[str, Any]:
    column = quoted(name)
    numbers = f"min({column}), avg({column}), max({column})" if kind != "categorical" else "NULL, NULL, NULL"
    nulls, distinct, least, mean, greatest = connection.execute(
        f"SELECT count(*) FILTER ({column} IS NULL), approx_count_distinct({column}), {numbers} FROM {table}"
    ).fetchall()[0]
    frequent: list[tuple[str, float]] = []
    if kind == "categorical":
        counted = connection.execute(
            f"SELECT {column}, count(*) FROM {table} WHERE {column} IS NOT NULL GROUP BY ALL "
            f"ORDER BY 2 DESC, 1 LIMIT {_FREQUENT}"
        ).fetchall()
        frequent = [(str(value), count / rows) for value, count in counted]
    known = {"least": least, "mean": mean, "greatest": greatest, "frequent": frequent}
    return {"name": name, "kind": kind, "null": nulls / rows if rows else 0.0, "distinct": distinct} | known
