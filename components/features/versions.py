"""Feature tables as versions: what was known stays, a late or corrected value is added as known from now on.

A table is stored in Parquet files by the month from which rows are known. `known-*` holds rows as they became known by
their declared availability, `corrected-*` the versions that later source rows added to them. A file that nothing
changed keeps its bytes, so a later table shares it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.artifacts.manifest import FileEntry
from gatehouse.components.features.compute import connect, open_tables, write_parquet
from gatehouse.components.features.definitions import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.repository import View
from gatehouse.components.features.touched import Span

KNOWN, CORRECTED = "known-", "corrected-"
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class Earlier:
    """The earlier table of a view.

    Attributes:
        files: Its files by path, as they are stored.
        paths: Where they can be read.
        settled: From here on its rows were provisional: sources that reach no further could still add to them.
    """

    files: Mapping[str, FileEntry]
    paths: Mapping[str, Path]
    settled: datetime


@dataclass(frozen=True)
class Written:
    """The files of a table: new ones as paths, unchanged ones as they are stored; rows by file; versions added."""

    files: dict[str, Path | FileEntry]
    rows: dict[str, int]
    corrected: int


def write_table(table: pa.Table, folder: Path, kind: str = KNOWN) -> dict[str, Path]:
    """Write rows by the month from which they are known. `table` is sorted, and so is every file."""
    folder.mkdir(parents=True, exist_ok=True)
    if not table.num_rows:
        empty = folder / f"{kind}none{_SUFFIX}"
        write_parquet(table, empty)
        return {empty.name: empty}
    months = pc.strftime(table[KNOWN_FROM], format="%Y-%m")
    found: dict[str, Path] = {}
    for month in sorted(pc.unique(months).to_pylist()):
        path = folder / f"{kind}{month}{_SUFFIX}"
        write_parquet(table.filter(pc.equal(months, month)), path)
        found[path.name] = path
    return found


def first_table(table: pa.Table, folder: Path) -> Written:
    """The files of a table that has no earlier one."""
    files = write_table(table, folder)
    return Written({**files}, {name: _rows(path) for name, path in files.items()}, 0)


def next_table(
    view: View, earlier: Earlier, spans: Sequence[Span], computed: pa.Table, as_of: datetime, folder: Path
) -> Written:
    """The files of a table after its rows in `spans` were computed again.

    Of the earlier rows in the spans the provisional ones are replaced. The settled ones stay: where a value is another
    now, or is new, a version known from `as_of` on is added, and where it is gone, a version of nulls.

    Args:
        view: The view.
        earlier: Its earlier table.
        spans: Event times that were computed again; what lies outside them stays as it is.
        computed: The rows there now, in the order of `View.columns`.
        as_of: The newest moment that the sources know now.
        folder: Where new files are written.
    """
    if not spans:
        return Written({**earlier.files}, {name: entry.rows or 0 for name, entry in earlier.files.items()}, 0)
    read = [name for name in earlier.files if _month(name) >= spans[0].start.strftime("%Y-%m")]
    with connect() as connection:
        _open(connection, view, earlier, read, computed)
        inside = " OR ".join(
            f"\"{EVENT_TIMESTAMP}\" BETWEEN '{span.start.isoformat()}' AND '{span.end.isoformat()}'" for span in spans
        )
        settled = f"TIMESTAMPTZ '{earlier.settled.isoformat()}'"
        connection.execute(
            f'CREATE TABLE dropped AS SELECT * FROM known WHERE ({inside}) AND "{KNOWN_FROM}" >= {settled}'
        )
        connection.execute(_current(view, inside, settled))
        connection.execute(_added(view, settled, as_of))
        order = ", ".join(f'"{name}"' for name in view.columns)
        added = connection.sql(f"SELECT * EXCLUDE (late) FROM added WHERE NOT late ORDER BY {order}").to_arrow_table()
        corrections = connection.sql(f"SELECT * EXCLUDE (late) FROM added WHERE late ORDER BY {order}").to_arrow_table()
        months = set(pc.unique(pc.strftime(added[KNOWN_FROM], format="%Y-%m")).to_pylist())
        gone = connection.sql("SELECT DISTINCT strftime(known_from, '%Y-%m') FROM dropped").fetchall()
        months |= {row[0] for row in gone}
        fresh = _rewritten(connection, view, months, folder, order)
        if corrections.num_rows:
            fresh |= _appended(connection, view, as_of, folder, order)
    replaced = {f"{KNOWN}{month}{_SUFFIX}" for month in (*months, "none")}
    kept = {name: entry for name, entry in earlier.files.items() if name not in replaced | set(fresh)}
    rows = {name: entry.rows or 0 for name, entry in kept.items()} | {name: _rows(path) for name, path in fresh.items()}
    if not kept and not fresh:
        return first_table(computed, folder)
    return Written({**kept, **fresh}, rows, corrections.num_rows)


def _open(
    connection: duckdb.DuckDBPyConnection, view: View, earlier: Earlier, read: list[str], computed: pa.Table
) -> None:
    connection.register("computed", computed)
    for kind, name in ((KNOWN, "known"), (CORRECTED, "corrected")):
        paths = [earlier.paths[file] for file in read if file.startswith(kind)]
        if paths:
            open_tables(connection, {name: paths})
        else:
            connection.execute(f'CREATE VIEW raw."{name}" AS SELECT * FROM computed WHERE false')
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {_columns(view)} FROM raw.{name}")


def _current(view: View, inside: str, settled: str) -> str:
    """The newest settled version of every key and event time in the spans."""
    keys = ", ".join(f'"{name}"' for name in (*view.spec.entities, EVENT_TIMESTAMP))
    return (
        f'CREATE TABLE current AS SELECT * FROM (SELECT * FROM known WHERE ({inside}) AND "{KNOWN_FROM}" < {settled} '
        f"UNION ALL SELECT * FROM corrected WHERE {inside}) "
        f'QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY "{KNOWN_FROM}" DESC) = 1'
    )


def _added(view: View, settled: str, as_of: datetime) -> str:
    """Computed rows that say something else than the current version, and nulls for current versions that are gone."""
    key = (*view.spec.entities, EVENT_TIMESTAMP)
    match = " AND ".join(f'c."{name}" IS NOT DISTINCT FROM n."{name}"' for name in key)
    same = " AND ".join(f'c."{name}" IS NOT DISTINCT FROM n."{name}"' for name in view.spec.features)
    now = f"TIMESTAMPTZ '{as_of.isoformat()}'"
    keys = ", ".join(f'c."{name}"' for name in key)
    nothing = ", ".join(f'NULL AS "{name}"' for name in view.spec.features)
    something = " OR ".join(f'c."{name}" IS NOT NULL' for name in view.spec.features)
    return (
        f'CREATE TABLE added AS SELECT n.* REPLACE (if(n."{KNOWN_FROM}" < {settled}, {now}, n."{KNOWN_FROM}") AS '
        f'"{KNOWN_FROM}"), n."{KNOWN_FROM}" < {settled} AS late FROM computed AS n '
        f"WHERE NOT EXISTS (FROM current AS c WHERE {match} AND {same}) "
        f"UNION ALL SELECT {keys}, {now}, {nothing}, true FROM current AS c "
        f"WHERE ({something}) AND NOT EXISTS (FROM computed AS n WHERE {match})"
    )


def _rewritten(
    connection: duckdb.DuckDBPyConnection, view: View, months: set[str], folder: Path, order: str
) -> dict[str, Path]:
    """The months of which rows were replaced or added."""
    if not months:
        return {}
    first = min(months) + "-01"
    rows = connection.sql(
        f"SELECT * FROM (SELECT * FROM (SELECT * FROM known WHERE \"{KNOWN_FROM}\" >= '{first}') "
        f"EXCEPT ALL SELECT * FROM dropped UNION ALL SELECT * EXCLUDE (late) FROM added WHERE NOT late) "
        f"WHERE strftime(\"{KNOWN_FROM}\", '%Y-%m') IN (SELECT unnest(?)) ORDER BY {order}",
        params=[sorted(months)],
    ).to_arrow_table()
    return write_table(rows, folder) if rows.num_rows else {}


def _appended(
    connection: duckdb.DuckDBPyConnection, view: View, as_of: datetime, folder: Path, order: str
) -> dict[str, Path]:
    """The month of corrections that are known from now on, with those that it held already."""
    month = as_of.astimezone(UTC).strftime("%Y-%m")
    rows = connection.sql(
        f"SELECT * FROM (SELECT * FROM corrected WHERE strftime(\"{KNOWN_FROM}\", '%Y-%m') = '{month}' "
        f"UNION ALL SELECT * EXCLUDE (late) FROM added WHERE late) ORDER BY {order}"
    ).to_arrow_table()
    return write_table(rows, folder, CORRECTED)


def _columns(view: View) -> str:
    return ", ".join(f'"{name}"' for name in view.columns)


def _month(name: str) -> str:
    return name.removeprefix(KNOWN).removeprefix(CORRECTED).removesuffix(_SUFFIX)


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)
