"""A view's table while it is pushed: parts with what is known, which only grow, and one with what is known later.

known-2013-01.parquet     from the feature tables from which pushing started
000000000042.parquet      what became known with a micro-batch
ahead.parquet             rows that are known after `as_of`; a later batch may still change them
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.features.computing.spans import Span
from gatehouse.components.features.database import open_tables, quoted, write_parquet
from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.definitions.repository import View

AHEAD = "ahead.parquet"
_PARTS = 16  # Parts of micro-batches before they are made one.


@dataclass(frozen=True)
class Pushed:
    """What a micro-batch makes of a table.

    Attributes:
        known: The rows that it adds: all of them are known by its end.
        ahead: All rows that are known later.
    """

    known: pa.Table
    ahead: pa.Table


def first_parts(
    connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path], as_of: datetime, folder: Path
) -> dict[str, Path]:
    """The files of published feature tables as parts: what is known after `as_of` is set apart."""
    found, later = dict(files), []
    for name, path in files.items():
        open_tables(connection, {"part": [path]})
        ahead = _sorted(connection, f"FROM raw.part WHERE {KNOWN_FROM} > {sql_time(as_of)}")
        if ahead.num_rows:
            later.append(ahead)
            found[name] = folder / name
            write_parquet(_sorted(connection, f"FROM raw.part WHERE {KNOWN_FROM} <= {sql_time(as_of)}"), folder / name)
    if later:
        found[AHEAD] = folder / AHEAD
        write_parquet(pa.concat_tables(later), folder / AHEAD)
    return found


def before_batch(files: Mapping[str, Path]) -> Pushed:
    """What a table is before a micro-batch."""
    empty = pq.read_schema(next(iter(files.values()))).remove_metadata().empty_table()
    return Pushed(empty, pq.read_table(files[AHEAD]) if AHEAD in files else empty)


def next_rows(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    files: Mapping[str, Path],
    before: Pushed,
    spans: Sequence[Span],
    computed: pa.Table | None,
    since: datetime,
    until: datetime,
) -> Pushed:
    """What becomes of a table from `since` to `until`, where `computed` is what its rows in `spans` say now.

    What was known at `since` stays. Each computed version is compared with what would stand without it when it becomes
    known: if it says the same, it is no version. One that should have been known by `since` is known from `until` on,
    unless a newer one is known by then; where a row is gone, a version of nulls is.

    Args:
        connection: Where the queries run.
        view: The view.
        files: The parts of its table before the micro-batch.
        before: What the micro-batch made of it so far.
        spans: Event times that were computed again.
        computed: The rows there now.
        since: Until when the table is known.
        until: Until when it is to be known.
    """
    inside = " OR ".join(f"{EVENT_TIMESTAMP} BETWEEN {sql_time(one.start)} AND {sql_time(one.end)}" for one in spans)
    inside = inside or "false"
    columns = _listed(view.columns)
    settled = [path for name, path in files.items() if name != AHEAD]
    open_tables(connection, {"settled": settled} if settled else {})
    connection.register("added", before.known)
    connection.register("ahead", before.ahead)
    connection.register("computed", before.ahead.slice(0, 0) if computed is None else computed)
    keys = _listed((*view.spec.entities, EVENT_TIMESTAMP))
    held = f"SELECT {columns} FROM added" + (f" UNION ALL SELECT {columns} FROM raw.settled" if settled else "")
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE standing AS SELECT {columns} FROM ({held}) WHERE {inside} "
        f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {KNOWN_FROM} DESC) = 1"
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE fresh AS "
        f"SELECT {columns} FROM ahead WHERE NOT coalesce({inside}, false) "
        f"UNION ALL {_changes(view, since, until)} UNION ALL {_gone(view, until)}"
    )
    known = _sorted(
        connection, f"SELECT {columns} FROM added UNION ALL FROM fresh WHERE {KNOWN_FROM} <= {sql_time(until)}"
    )
    return Pushed(known, _sorted(connection, f"FROM fresh WHERE {KNOWN_FROM} > {sql_time(until)}"))


def next_parts(files: Mapping[str, Path], pushed: Pushed, number: int, folder: Path) -> dict[str, Path]:
    """The parts of a table after a micro-batch; new files are written to `folder`."""
    found = {name: path for name, path in files.items() if name != AHEAD}
    if pushed.known.num_rows:
        name = f"{number:012d}.parquet"
        parts = [each for each in found if each.split(".")[0].isdigit()]
        rows = pushed.known
        if len(parts) + 1 >= _PARTS:
            rows = pa.concat_tables([*(pq.read_table(found.pop(each)) for each in parts), rows])
        found[name] = folder / name
        write_parquet(rows, found[name])
    if pushed.ahead.num_rows:
        found[AHEAD] = folder / AHEAD
        write_parquet(pushed.ahead, found[AHEAD])
    return found


def sql_time(moment: datetime) -> str:
    """A time as SQL has it."""
    return f"TIMESTAMPTZ '{moment.isoformat()}'"


def _changes(view: View, since: datetime, until: datetime) -> str:
    """SQL of the computed versions that say something else than what stands when they become known."""
    keys, columns = _listed((*view.spec.entities, EVENT_TIMESTAMP)), _listed(view.columns)
    values = f"row({_listed(view.spec.features)})"
    late = f"one.{KNOWN_FROM} <= {sql_time(since)}"
    following = f"SELECT *, lead({KNOWN_FROM}) OVER (PARTITION BY {keys} ORDER BY {KNOWN_FROM}) AS next FROM computed"
    told = (
        f"SELECT one.* EXCLUDE (next) REPLACE (if({late}, {sql_time(until)}, one.{KNOWN_FROM}) AS {KNOWN_FROM}) "
        f"FROM ({following}) AS one WHERE NOT ({late} AND coalesce(one.next <= {sql_time(until)}, false))"
    )
    both = f"SELECT {columns}, 1 AS place FROM ({told}) UNION ALL SELECT {columns}, 0 FROM standing"
    return (
        f"SELECT {columns} FROM ({both}) QUALIFY place = 1 AND {values} IS DISTINCT FROM lag({values}) "
        f"OVER (PARTITION BY {keys} ORDER BY place, {KNOWN_FROM})"
    )


def _gone(view: View, until: datetime) -> str:
    """SQL of versions of nulls for rows that stand and are computed no more."""
    match = " AND ".join(
        f"one.{quoted(name)} IS NOT DISTINCT FROM other.{quoted(name)}"
        for name in (*view.spec.entities, EVENT_TIMESTAMP)
    )
    something = " OR ".join(f"one.{quoted(name)} IS NOT NULL" for name in view.spec.features)
    values = dict.fromkeys(view.spec.features, "NULL") | {KNOWN_FROM: sql_time(until)}
    columns = ", ".join(f"{values.get(name, 'one.' + quoted(name))} AS {quoted(name)}" for name in view.columns)
    return f"SELECT {columns} FROM standing AS one ANTI JOIN computed AS other ON {match} WHERE {something}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _sorted(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return connection.sql(f"SELECT * FROM ({query}) ORDER BY ALL").to_arrow_table()
