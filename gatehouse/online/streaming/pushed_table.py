"""A view's table while it is pushed: files of known rows, which never change, and one file of rows known later.

known-2013-01.parquet     from the feature tables from which pushing started
000000000042.parquet      what became known with a micro-batch
later.parquet             rows that become known after `as_of`; a later batch may still change them
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.features.computing.spans import Span
from gatehouse.features.database import open_tables, quoted, time_literal, write_parquet
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View

LATER = "later.parquet"
_PARTS = 16  # Parts of micro-batches before they are merged into one.


@dataclass(frozen=True)
class PushedRows:
    """The rows of a table that a micro-batch adds or replaces.

    Attributes:
        known: The added rows: all of them are known by the end of the micro-batch.
        later: All rows that become known after it.
    """

    known: pa.Table
    later: pa.Table


def first_parts(
    connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path], as_of: datetime, folder: Path
) -> dict[str, Path]:
    """The files of published feature tables, with the rows that become known after `as_of` in a separate file."""
    found, later = dict(files), []
    for name, path in files.items():
        open_tables(connection, {"part": [path]})
        after = _sorted(connection, f"FROM raw.part WHERE {KNOWN_FROM} > {time_literal(as_of)}")
        if after.num_rows:
            later.append(after)
            found[name] = folder / name
            write_parquet(
                _sorted(connection, f"FROM raw.part WHERE {KNOWN_FROM} <= {time_literal(as_of)}"), folder / name
            )
    if later:
        found[LATER] = folder / LATER
        write_parquet(pa.concat_tables(later), folder / LATER)
    return found


def rows_before(files: Mapping[str, Path]) -> PushedRows:
    """The rows of a table before a micro-batch: no added rows, and those that become known later."""
    empty = pq.read_schema(next(iter(files.values()))).remove_metadata().empty_table()
    return PushedRows(empty, pq.read_table(files[LATER]) if LATER in files else empty)


def next_rows(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    files: Mapping[str, Path],
    before: PushedRows,
    spans: Sequence[Span],
    computed: pa.Table | None,
    since: datetime,
    until: datetime,
) -> PushedRows:
    """The rows of a table at `until`, from its rows at `since` and the rows `computed` again in `spans`.

    Rows known at `since` stay. A computed version is added only if its values differ from the version before it. A
    version that should have been known by `since` counts as known from `until` on, unless a newer version is known by
    then. Where a row no longer exists, a version of nulls is added.

    Args:
        connection: Where the queries run.
        view: The view.
        files: The parts of its table before the micro-batch.
        before: The rows that the micro-batch has added so far, and those known later.
        spans: Event times that were computed again.
        computed: The present rows with these event times; None for none.
        since: Time up to which the table was known before.
        until: Time up to which it is known afterwards.
    """
    inside = " OR ".join(
        f"{EVENT_TIMESTAMP} BETWEEN {time_literal(one.start)} AND {time_literal(one.end)}" for one in spans
    )
    inside = inside or "false"
    columns = _listed(view.columns)
    settled = [path for name, path in files.items() if name != LATER]
    open_tables(connection, {"settled": settled} if settled else {})
    connection.register("added", before.known)
    connection.register("later", before.later)
    connection.register("computed", before.later.slice(0, 0) if computed is None else computed)
    keys = _listed((*view.spec.entities, EVENT_TIMESTAMP))
    held = f"SELECT {columns} FROM added" + (f" UNION ALL SELECT {columns} FROM raw.settled" if settled else "")
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE newest AS SELECT {columns} FROM ({held}) WHERE {inside} "
        f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {KNOWN_FROM} DESC) = 1"
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE fresh AS "
        f"SELECT {columns} FROM later WHERE NOT coalesce({inside}, false) "
        f"UNION ALL {_changes(view, since, until)} UNION ALL {_gone(view, until)}"
    )
    known = _sorted(
        connection, f"SELECT {columns} FROM added UNION ALL FROM fresh WHERE {KNOWN_FROM} <= {time_literal(until)}"
    )
    return PushedRows(known, _sorted(connection, f"FROM fresh WHERE {KNOWN_FROM} > {time_literal(until)}"))


def next_parts(files: Mapping[str, Path], pushed: PushedRows, number: int, folder: Path) -> dict[str, Path]:
    """The files of a table after a micro-batch; new files are written to `folder`."""
    found = {name: path for name, path in files.items() if name != LATER}
    if pushed.known.num_rows:
        name = f"{number:012d}.parquet"
        parts = [each for each in found if each.split(".")[0].isdigit()]
        rows = pushed.known
        if len(parts) + 1 >= _PARTS:
            rows = pa.concat_tables([*(pq.read_table(found.pop(each)) for each in parts), rows])
        found[name] = folder / name
        write_parquet(rows, found[name])
    if pushed.later.num_rows:
        found[LATER] = folder / LATER
        write_parquet(pushed.later, found[LATER])
    return found


def _changes(view: View, since: datetime, until: datetime) -> str:
    """SQL of the computed versions whose values differ from the version before them."""
    keys, columns = _listed((*view.spec.entities, EVENT_TIMESTAMP)), _listed(view.columns)
    values = f"row({_listed(view.spec.features)})"
    late = f"one.{KNOWN_FROM} <= {time_literal(since)}"
    following = f"SELECT *, lead({KNOWN_FROM}) OVER (PARTITION BY {keys} ORDER BY {KNOWN_FROM}) AS next FROM computed"
    due = (
        f"SELECT one.* EXCLUDE (next) REPLACE (if({late}, {time_literal(until)}, one.{KNOWN_FROM}) AS {KNOWN_FROM}) "
        f"FROM ({following}) AS one WHERE NOT ({late} AND coalesce(one.next <= {time_literal(until)}, false))"
    )
    both = f"SELECT {columns}, 1 AS place FROM ({due}) UNION ALL SELECT {columns}, 0 FROM newest"
    return (
        f"SELECT {columns} FROM ({both}) QUALIFY place = 1 AND {values} IS DISTINCT FROM lag({values}) "
        f"OVER (PARTITION BY {keys} ORDER BY place, {KNOWN_FROM})"
    )


def _gone(view: View, until: datetime) -> str:
    """SQL of versions of nulls, for known rows that are no longer computed."""
    match = " AND ".join(
        f"one.{quoted(name)} IS NOT DISTINCT FROM other.{quoted(name)}"
        for name in (*view.spec.entities, EVENT_TIMESTAMP)
    )
    something = " OR ".join(f"one.{quoted(name)} IS NOT NULL" for name in view.spec.features)
    values = dict.fromkeys(view.spec.features, "NULL") | {KNOWN_FROM: time_literal(until)}
    columns = ", ".join(f"{values.get(name, 'one.' + quoted(name))} AS {quoted(name)}" for name in view.columns)
    return f"SELECT {columns} FROM newest AS one ANTI JOIN computed AS other ON {match} WHERE {something}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _sorted(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return connection.sql(f"SELECT * FROM ({query}) ORDER BY ALL").to_arrow_table()
