"""Feature tables as versions: what was known stays, a late or corrected value is added as known from now on.

`table_files` says which files a table has. A file that nothing changed keeps its bytes, so a later table shares it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.components.artifacts.manifest import FileEntry
from gatehouse.components.features.computing.spans import BEGINNING, END, Span
from gatehouse.components.features.database import quoted, rows_of, time_literal, write_parquet
from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.definitions.repository import View

KNOWN, CORRECTED = "known-", "corrected-"
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class Earlier:
    """The earlier table of a view.

    Attributes:
        files: Its files by path, as they are stored.
        paths: Where those of the weeks from the first span on can be read.
        settled: From here on its rows were provisional: sources that reach no further could still add to them.
    """

    files: Mapping[str, FileEntry]
    paths: Mapping[str, Path]
    settled: datetime


@dataclass(frozen=True)
class Written:
    """The files of a table: new ones as paths, unchanged ones as they are stored; and rows by file."""

    files: dict[str, Path | FileEntry]
    rows: dict[str, int]


def write_table(table: pa.Table, folder: Path, kind: str = KNOWN) -> dict[str, Path]:
    """Write rows by the week from which they are known. `table` is sorted, and so is every file."""
    folder.mkdir(parents=True, exist_ok=True)
    if not table.num_rows:
        empty = folder / f"{kind}none{_SUFFIX}"
        write_parquet(table, empty)
        return {empty.name: empty}
    # Without the zone, which is UTC: with one, Arrow asks a calendar about every row.
    times = table[KNOWN_FROM].cast(pa.timestamp("us"))
    first, last = (pa.scalar(moment.replace(tzinfo=None), times.type) for moment in (BEGINNING, END))
    # A file is named within the years that Python knows: a time can also be infinite.
    within = pc.min_element_wise(pc.max_element_wise(times, first), last)
    weeks = pc.floor_temporal(within, unit="week").combine_chunks()
    order = pc.sort_indices(weeks)  # stable
    ordered, by_week = table.take(order), weeks.take(order).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.r_[True, by_week[1:] != by_week[:-1]])
    found: dict[str, Path] = {}
    for start, end in zip(starts, [*starts[1:], len(by_week)], strict=True):
        path = folder / f"{kind}{week_of(by_week[start].astype(datetime))}{_SUFFIX}"
        write_parquet(ordered.slice(start, end - start).combine_chunks(), path)
        found[path.name] = path
    return found


def first_table(table: pa.Table, folder: Path) -> Written:
    """The files of a table that has no earlier one."""
    return _written(write_table(table, folder))


def redefined_table(
    connection: duckdb.DuckDBPyConnection, view: View, corrected: Sequence[Path], computed: pa.Table, folder: Path
) -> Written:
    """The files of a table whose definition changed.

    What the new definition would have said before a correction cannot be computed, since the sources hold corrected
    rows only. So a row that was corrected is known from its last correction on, and not before.

    Args:
        connection: Where rows are compared.
        view: The view.
        corrected: The files of the earlier table with the versions that later source rows added.
        computed: All rows, in the order of `View.columns`.
        folder: Where files are written.
    """
    if not corrected:
        return first_table(computed, folder)
    connection.register("computed", computed)
    key, known = (*view.spec.entities, EVENT_TIMESTAMP), quoted(KNOWN_FROM)
    keys = ", ".join(map(quoted, key))
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE redefined AS "
        f"WITH corrected AS (SELECT {keys}, max({known}) AS __corrected_at FROM {rows_of(corrected)} GROUP BY ALL) "
        f"SELECT n.* REPLACE (greatest(n.{known}, __corrected_at) AS {known}), "
        f"coalesce(n.{known} <= __corrected_at, false) AS __moved "
        f"FROM computed AS n LEFT JOIN corrected AS c ON {_match('c', key)} QUALIFY row_number() OVER "
        f"(PARTITION BY {', '.join(f'n.{quoted(name)}' for name in key)}, greatest(n.{known}, __corrected_at) "
        f"ORDER BY n.{known} DESC) = 1"
    )
    rows = {
        kind: connection.sql(
            f"SELECT {_columns(view)} FROM redefined WHERE __moved = {moved} ORDER BY {_columns(view)}"
        ).to_arrow_table()
        for kind, moved in ((KNOWN, False), (CORRECTED, True))
    }
    files = write_table(rows[KNOWN], folder)
    files |= write_table(rows[CORRECTED], folder, CORRECTED) if rows[CORRECTED].num_rows else {}
    return _written(files)


def unchanged_table(earlier: Earlier) -> Written:
    """The files of a table of which nothing is computed again."""
    return _written(earlier.files)


def next_table(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    earlier: Earlier,
    spans: Sequence[Span],
    computed: pa.Table,
    as_of: datetime,
    folder: Path,
) -> Written:
    """The files of a table after its rows in `spans` were computed again.

    Of the earlier rows in the spans the provisional ones are replaced. The settled ones stay: where a value is another
    now, or is new, a version known from `as_of` on is added, and where it is gone, a version of nulls.

    Args:
        connection: Where rows are compared.
        view: The view.
        earlier: Its earlier table.
        spans: Event times that were computed again; what lies outside them stays as it is.
        computed: The rows there now, in the order of `View.columns`.
        as_of: The newest moment that the sources know now.
        folder: Where new files are written.
    """
    connection.register("computed", computed)
    if spans[0].start < earlier.settled or any(name.startswith(CORRECTED) for name in earlier.paths):
        _compare(connection, view, earlier, spans, as_of)
    else:  # None is known before its event, so nothing in the spans was settled.
        connection.execute("CREATE OR REPLACE TEMP TABLE fresh AS FROM computed")
        connection.execute("CREATE OR REPLACE TEMP TABLE late AS FROM computed WHERE false")
    # No provisional row of the spans is known from before the first week that follows both.
    first = week_of(max(earlier.settled, spans[0].start))
    replaced = {name for name in earlier.files if name.startswith(KNOWN) and _week(name) >= first}
    fresh = _rewritten(connection, view, earlier, replaced, spans, folder)
    if connection.execute("SELECT count(*) FROM late").fetchall()[0][0]:
        fresh |= _appended(connection, view, earlier, as_of, folder)
    kept = {name: entry for name, entry in earlier.files.items() if name not in replaced | set(fresh)}
    return _written({**kept, **fresh}) if kept or fresh else first_table(computed, folder)


def week_of(moment: datetime) -> str:
    """The week of a time (UTC) as file names have it: its Monday."""
    day = (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    return (day - timedelta(days=day.weekday())).isoformat()


def files_from(files: Mapping[str, FileEntry], start: datetime) -> list[FileEntry]:
    """The files that can hold rows with event times from `start` on, since no row is known before its event."""
    return [entry for name, entry in files.items() if _week(name) >= week_of(start)]


def _compare(
    connection: duckdb.DuckDBPyConnection, view: View, earlier: Earlier, spans: Sequence[Span], as_of: datetime
) -> None:
    """Make two tables: `fresh`, provisional rows as they are now, and `late`, new versions of settled rows.

    A row can have several versions, so what they say at `as_of` is compared, and not the versions: a late one is needed
    only where the settled and the fresh versions together say something else at `as_of` than the computed ones.

    `held` are the earlier versions in the spans that stay, `keys` those of settled rows, `wanted` what the computed
    versions say at `as_of`, and `found` what held and fresh versions say then.
    """
    settled, now, known = time_literal(earlier.settled), time_literal(as_of), quoted(KNOWN_FROM)
    key = (*view.spec.entities, EVENT_TIMESTAMP)
    keys, columns = ", ".join(map(quoted, key)), _columns(view)
    nothing = ", ".join(f"NULL AS {quoted(name)}" for name in view.spec.features)
    something = " OR ".join(f"s.{quoted(name)} IS NOT NULL" for name in view.spec.features)
    newest = f"WHERE {known} <= {now} QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {known} DESC) = 1"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE held AS "
        f"{_earlier(view, earlier, KNOWN)} WHERE ({_inside(spans)}) AND {known} < {settled} "
        f"UNION ALL {_earlier(view, earlier, CORRECTED)} WHERE {_inside(spans)}"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT {columns} FROM computed AS n WHERE {known} >= {settled} "
        f"AND NOT EXISTS (FROM held AS h WHERE {_match('h', (*key, KNOWN_FROM))})"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE late AS "
        f"WITH keys AS (SELECT {keys} FROM held UNION SELECT {keys} FROM computed WHERE {known} < {settled}), "
        f"versions AS (SELECT {columns} FROM held UNION ALL FROM fresh), "
        f"wanted AS (SELECT {columns} FROM computed AS n SEMI JOIN keys AS t ON {_match('t', key)} {newest}), "
        f"found AS (SELECT {columns} FROM versions AS n SEMI JOIN keys AS t ON {_match('t', key)} {newest}) "
        f"SELECT n.* REPLACE ({now} AS {known}) FROM wanted AS n "
        f"WHERE NOT EXISTS (FROM found AS s WHERE {_match('s', (*key, *view.spec.features))}) "
        f"UNION ALL SELECT {keys}, {now}, {nothing} FROM found AS s "
        f"WHERE ({something}) AND NOT EXISTS (FROM wanted AS n WHERE {_match('s', key)})"
    )


def _rewritten(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    earlier: Earlier,
    replaced: Collection[str],
    spans: Sequence[Span],
    folder: Path,
) -> dict[str, Path]:
    """The rows of files to be replaced, with those of the spans as they are now."""
    rows = connection.sql(
        f"{_earlier(view, earlier, KNOWN, replaced)} "
        f"WHERE NOT (({_inside(spans)}) AND {quoted(KNOWN_FROM)} >= {time_literal(earlier.settled)}) "
        f"UNION ALL FROM fresh ORDER BY {_columns(view)}"
    ).to_arrow_table()
    return write_table(rows, folder) if rows.num_rows else {}


def _appended(
    connection: duckdb.DuckDBPyConnection, view: View, earlier: Earlier, as_of: datetime, folder: Path
) -> dict[str, Path]:
    """The week of corrections that are known from now on, with those that it held already."""
    key = (*view.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM)
    held = _earlier(view, earlier, CORRECTED, {f"{CORRECTED}{week_of(as_of)}{_SUFFIX}"})
    rows = connection.sql(
        f"SELECT {_columns(view)} FROM ({held}) AS n WHERE NOT EXISTS (FROM late AS l WHERE {_match('l', key)}) "
        f"UNION ALL FROM late ORDER BY {_columns(view)}"
    ).to_arrow_table()
    return write_table(rows, folder, CORRECTED)


def _earlier(view: View, earlier: Earlier, kind: str, names: Collection[str] | None = None) -> str:
    """A query of the earlier rows of a kind, or of those in some files."""
    wanted = earlier.paths if names is None else names
    paths = [path for name, path in earlier.paths.items() if name.startswith(kind) and name in wanted]
    return f"SELECT {_columns(view)} FROM {rows_of(paths) if paths else '(FROM computed WHERE false)'}"


def _match(other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{other}.{quoted(name)} IS NOT DISTINCT FROM n.{quoted(name)}" for name in names)


def _inside(spans: Sequence[Span]) -> str:
    return " OR ".join(f"({_within(span)})" for span in spans)


def _within(span: Span) -> str:
    """What holds for the rows of a span; the beginning and the end of time bound nothing."""
    event, bounds = quoted(EVENT_TIMESTAMP), []
    if span.start > BEGINNING:
        bounds.append(f"{event} >= {time_literal(span.start)}")
    if span.end < END:
        bounds.append(f"{event} <= {time_literal(span.end)}")
    return " AND ".join(bounds) or "true"


def _columns(view: View) -> str:
    return ", ".join(map(quoted, view.columns))


def _week(name: str) -> str:
    return name.removeprefix(KNOWN).removeprefix(CORRECTED).removesuffix(_SUFFIX)


def _written(files: Mapping[str, Path | FileEntry]) -> Written:
    return Written({**files}, {name: _rows(file) for name, file in files.items()})


def _rows(file: Path | FileEntry) -> int:
    return int(pq.read_metadata(file).num_rows) if isinstance(file, Path) else file.rows or 0
