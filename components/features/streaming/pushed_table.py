"""A view's table while it is pushed: parts with what is known, which only grow, and one with what is known later.

known-2013-01.parquet     from the feature tables from which pushing started
000000000042.parquet      what became known with a micro-batch
ahead.parquet             rows that are known after `as_of`; a later batch may still change them
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.components.features.compute import open_tables, write_parquet
from gatehouse.components.features.definitions import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.repository import View
from gatehouse.components.features.touched import Span

AHEAD = "ahead.parquet"
_PARTS = 16  # Parts of micro-batches before they are made one.


@dataclass(frozen=True)
class Pushed:
    """What a micro-batch adds to a table: rows known since then at the latest, and all rows that are known later."""

    known: pa.Table
    ahead: pa.Table


def first_parts(
    connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path], as_of: datetime, folder: Path
) -> dict[str, Path]:
    """The files of published feature tables as parts: what is known after `as_of` is set apart."""
    found, later = dict(files), []
    for name, path in files.items():
        open_tables(connection, {"part": [path]})
        ahead = _sorted(connection, f'FROM raw.part WHERE "{KNOWN_FROM}" > {_moment(as_of)}')
        if ahead.num_rows:
            later.append(ahead)
            found[name] = folder / name
            write_parquet(_sorted(connection, f'FROM raw.part WHERE "{KNOWN_FROM}" <= {_moment(as_of)}'), folder / name)
    if later:
        found[AHEAD] = folder / AHEAD
        write_parquet(pa.concat_tables(later), folder / AHEAD)
    return found


def next_rows(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    files: Mapping[str, Path],
    spans: Sequence[Span],
    computed: pa.Table | None,
    since: datetime,
    until: datetime,
) -> Pushed:
    """What a micro-batch adds to a table.

    Of a row that says something else than the version known at `since`, or is new at such a time, a version known from
    `until` on; of one that is gone, a version of nulls.

    Args:
        connection: Where the queries run.
        view: The view.
        files: The parts of its table before.
        spans: Event times that were computed again.
        computed: The rows there now.
        since: The `as_of` of the batch before; rows known until then stay as they are.
        until: The `as_of` of the batch.
    """
    inside = " OR ".join(f'"{EVENT_TIMESTAMP}" BETWEEN {_moment(one.start)} AND {_moment(one.end)}' for one in spans)
    inside = inside or "false"
    columns = ", ".join(f'"{name}"' for name in view.columns)
    _open(connection, "settled", [path for name, path in files.items() if name != AHEAD], columns)
    _open(connection, "ahead", [path for name, path in files.items() if name == AHEAD], columns)
    key = (*view.spec.entities, EVENT_TIMESTAMP)
    keys = ", ".join(f'"{name}"' for name in key)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE held AS SELECT {columns} FROM settled WHERE {inside} "
        f'QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY "{KNOWN_FROM}" DESC) = 1'
    )
    rows = f"SELECT {columns} FROM ahead WHERE NOT coalesce({inside}, false)"
    if computed is not None:
        connection.register("computed", computed)
        rows += f" UNION ALL SELECT {columns} FROM computed"
    same = " AND ".join(f'n."{name}" IS NOT DISTINCT FROM h."{name}"' for name in (*key, *view.spec.features))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE candidates AS {rows}")
    late = f'if("{KNOWN_FROM}" <= {_moment(since)}, {_moment(until)}, "{KNOWN_FROM}")'
    connection.execute(
        f'CREATE OR REPLACE TEMP TABLE fresh AS SELECT {columns} FROM (SELECT * REPLACE ({late} AS "{KNOWN_FROM}") '
        f"FROM (SELECT n.* FROM candidates AS n ANTI JOIN held AS h ON {same}) UNION ALL {_gone(view, until)})"
    )
    return Pushed(
        _sorted(connection, f'FROM fresh WHERE "{KNOWN_FROM}" <= {_moment(until)}'),
        _sorted(connection, f'FROM fresh WHERE "{KNOWN_FROM}" > {_moment(until)}'),
    )


def next_parts(files: Mapping[str, Path], pushed: Pushed, number: int, folder: Path) -> dict[str, Path]:
    """The parts of a table after a micro-batch; new files are written to `folder`."""
    found = {name: path for name, path in files.items() if name != AHEAD}
    if pushed.known.num_rows:
        name = f"{number:012d}.parquet"
        found[name] = folder / name
        parts = [each for each in found if each.split(".")[0].isdigit()]
        rows = pushed.known
        if len(parts) >= _PARTS:
            import pyarrow.parquet as pq

            rows = pa.concat_tables([*(pq.read_table(found.pop(each)) for each in parts if each != name), rows])
        write_parquet(rows, folder / name)
    if pushed.ahead.num_rows:
        found[AHEAD] = folder / AHEAD
        write_parquet(pushed.ahead, folder / AHEAD)
    return found


def _gone(view: View, until: datetime) -> str:
    """Versions of nulls for rows that were held and are computed no more."""
    match = " AND ".join(
        f'h."{name}" IS NOT DISTINCT FROM n."{name}"' for name in (*view.spec.entities, EVENT_TIMESTAMP)
    )
    something = " OR ".join(f'h."{name}" IS NOT NULL' for name in view.spec.features)
    values = dict.fromkeys(view.spec.features, "NULL") | {KNOWN_FROM: _moment(until)}
    columns = ", ".join(f'{values.get(name, "h." + _quoted(name))} AS "{name}"' for name in view.columns)
    return f"SELECT {columns} FROM held AS h ANTI JOIN candidates AS n ON {match} WHERE {something}"


def _open(connection: duckdb.DuckDBPyConnection, name: str, paths: Sequence[Path], columns: str) -> None:
    if paths:
        open_tables(connection, {name: paths})
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {columns} FROM raw.{name}")
    else:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {columns} FROM settled WHERE false")


def _sorted(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return connection.sql(f"SELECT * FROM ({query}) ORDER BY ALL").to_arrow_table()


def _quoted(name: str) -> str:
    return f'"{name}"'


def _moment(moment: datetime) -> str:
    return f"TIMESTAMPTZ '{moment.isoformat()}'"
