"""Feature tables as versions: known rows stay, and a late or corrected value is added as known from now on.

`table_files` says which files a table has. A file that nothing changed keeps its bytes, so a later table shares it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.features.computing.spans import BEGINNING, END, Span
from gatehouse.features.database import quoted, rows_of, time_literal, write_parquet
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View
from gatehouse.features.table_files import CORRECTED, KNOWN
from gatehouse.store.manifest import FileEntry

_SUFFIX, _WEEK = ".parquet", "__week"
_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Earlier:
    """The earlier table of a view.

    Attributes:
        files: Its files by name, as they are stored, or as paths.
        paths: Paths of its files of the weeks from the first span on.
        settled: Rows from this time on were provisional: their sources could still add to them.
    """

    files: Mapping[str, Path | FileEntry]
    paths: Mapping[str, Path]
    settled: datetime


@dataclass(frozen=True)
class Written:
    """The files of a table: new ones as paths, unchanged ones as they are stored; and rows by file."""

    files: dict[str, Path | FileEntry]
    rows: dict[str, int]


def write_rows(
    connection: duckdb.DuckDBPyConnection, view: View, rows: str, folder: Path, kind: str = KNOWN
) -> dict[str, Path]:
    """Write rows by the week from which they are known, each file in the order of `View.columns`, one week at a time.

    Args:
        connection: Where the rows are.
        view: The view.
        rows: SQL that can follow FROM.
        folder: Where files are written.
        kind: What file names begin with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # File names need a year that Python can hold, and a time can be infinite. Times have no zone (they are UTC): with a
    # zone, DuckDB asks a calendar for every row.
    first, last = map(time_literal, (BEGINNING, END))
    within = f"make_timestamp(epoch_us(least(greatest({quoted(KNOWN_FROM)}, {first}), {last})))"
    query = f"SELECT {_columns(view)}, date_trunc('week', {within}) AS {_WEEK} FROM {rows} AS r"
    reader = connection.sql(f"{query} ORDER BY {_WEEK}, {_columns(view)}").to_arrow_reader(_ROWS_AT_ONCE)
    found: dict[str, Path] = {}
    for week, parts in groupby(_weeks(reader), key=lambda part: part[0]):
        path = folder / f"{kind}{week_of(week)}{_SUFFIX}"
        write_parquet(pa.concat_tables([table for _, table in parts]).combine_chunks(), path)
        found[path.name] = path
    if not found:
        empty = folder / f"{kind}none{_SUFFIX}"
        write_parquet(reader.schema.empty_table().drop_columns(_WEEK), empty)
        found[empty.name] = empty
    return found


def _weeks(reader: pa.RecordBatchReader) -> Iterator[tuple[datetime, pa.Table]]:
    """Cut rows that are sorted by week into one table per week."""
    for batch in reader:
        weeks = batch.column(_WEEK).to_numpy(zero_copy_only=False)
        starts = np.flatnonzero(np.r_[len(weeks) > 0, weeks[1:] != weeks[:-1]])
        rows = pa.Table.from_batches([batch]).drop_columns(_WEEK)
        for start, end in pairwise([*starts, len(weeks)]):
            yield batch.column(_WEEK)[start].as_py(), rows.slice(start, end - start)


def first_table(connection: duckdb.DuckDBPyConnection, view: View, computed: str, folder: Path) -> Written:
    """The files of a table without an earlier one; `computed` is as in `next_table`."""
    return _written(write_rows(connection, view, computed, folder))


def redefined_table(
    connection: duckdb.DuckDBPyConnection, view: View, corrected: Sequence[Path], computed: str, folder: Path
) -> Written:
    """The files of a table whose definition changed.

    The new definition's values before a correction cannot be computed, since the sources hold corrected rows only. So a
    corrected row counts as known from its last correction on.

    Args:
        connection: Where rows are compared.
        view: The view.
        corrected: The files of the earlier table with the versions that later source rows added.
        computed: The table of all rows.
        folder: Where files are written.
    """
    if not corrected:
        return first_table(connection, view, computed, folder)
    key, known = (*view.spec.entities, EVENT_TIMESTAMP), quoted(KNOWN_FROM)
    keys = ", ".join(map(quoted, key))
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE redefined AS "
        f"WITH corrected AS (SELECT {keys}, max({known}) AS __corrected_at FROM {rows_of(corrected)} GROUP BY ALL) "
        f"SELECT n.* REPLACE (greatest(n.{known}, __corrected_at) AS {known}), "
        f"coalesce(n.{known} <= __corrected_at, false) AS __moved "
        f"FROM {computed} AS n LEFT JOIN corrected AS c ON {_match('c', key)} QUALIFY row_number() OVER "
        f"(PARTITION BY {', '.join(f'n.{quoted(name)}' for name in key)}, greatest(n.{known}, __corrected_at) "
        f"ORDER BY n.{known} DESC) = 1"
    )
    files = write_rows(connection, view, "(FROM redefined WHERE NOT __moved)", folder)
    if connection.execute("SELECT count(*) FROM redefined WHERE __moved").fetchall()[0][0]:
        files |= write_rows(connection, view, "(FROM redefined WHERE __moved)", folder, CORRECTED)
    return _written(files)


def unchanged_table(earlier: Earlier) -> Written:
    """The files of a table where nothing is computed again."""
    return _written(earlier.files)


def next_table(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    earlier: Earlier,
    spans: Sequence[Span],
    computed: str,
    as_of: datetime,
    folder: Path,
) -> Written:
    """The files of a table after its rows in `spans` were computed again.

    Provisional earlier rows in the spans are replaced. Settled rows stay. Where a settled value is new or different
    now,
    a version known from `as_of` on is added; where it is gone, a version of nulls is added.

    Args:
        connection: Where rows are compared.
        view: The view.
        earlier: Its earlier table.
        spans: Event times that were computed again; rows outside them stay as they are.
        computed: The rows of the spans as they are now.
        as_of: Up to when the sources know everything now.
        folder: Where new files are written.
    """
    connection.execute(f"CREATE OR REPLACE TEMP VIEW computed AS FROM {computed}")
    if spans[0].start < earlier.settled or any(name.startswith(CORRECTED) for name in earlier.paths):
        _compare(connection, view, earlier, spans, as_of)
    else:  # No row is known before its event, so nothing in the spans was settled.
        connection.execute("CREATE OR REPLACE TEMP TABLE fresh AS FROM computed")
        connection.execute("CREATE OR REPLACE TEMP TABLE late AS FROM computed WHERE false")
    # Provisional rows of the spans become known at or after the start of the first week.
    first = week_of(max(earlier.settled, spans[0].start))
    replaced = {name for name in earlier.files if name.startswith(KNOWN) and _week(name) >= first}
    fresh = _rewritten(connection, view, earlier, replaced, spans, folder)
    if connection.execute("SELECT count(*) FROM late").fetchall()[0][0]:
        fresh |= _appended(connection, view, earlier, as_of, folder)
    kept = {name: entry for name, entry in earlier.files.items() if name not in replaced | set(fresh)}
    return _written({**kept, **fresh}) if kept or fresh else first_table(connection, view, computed, folder)


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
    """Create two tables: `fresh` has provisional rows as they are now, `late` has new versions of settled rows.

    A row can have several versions, so the values that apply at `as_of` are compared, not the versions. A late version
    is needed only where the settled and fresh versions together give another value at `as_of` than the computed ones.

    `held` are the earlier versions in the spans that stay, `keys` are the keys of settled rows, `wanted` the computed
    values at `as_of`, and `found` the values of held and fresh versions then.
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
    """Write the files to be replaced again: their other rows, and the rows of the spans as they are now."""
    rows = (
        f"({_earlier(view, earlier, KNOWN, replaced)} "
        f"WHERE NOT (({_inside(spans)}) AND {quoted(KNOWN_FROM)} >= {time_literal(earlier.settled)}) "
        f"UNION ALL FROM fresh)"
    )
    some = connection.execute(f"SELECT 1 FROM {rows} LIMIT 1").fetchall()
    return write_rows(connection, view, rows, folder) if some else {}


def _appended(
    connection: duckdb.DuckDBPyConnection, view: View, earlier: Earlier, as_of: datetime, folder: Path
) -> dict[str, Path]:
    """Write the week of corrections known from now on, with the corrections that it held already."""
    key = (*view.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM)
    held = _earlier(view, earlier, CORRECTED, {f"{CORRECTED}{week_of(as_of)}{_SUFFIX}"})
    rows = (
        f"(SELECT {_columns(view)} FROM ({held}) AS n WHERE NOT EXISTS (FROM late AS l WHERE {_match('l', key)}) "
        f"UNION ALL FROM late)"
    )
    return write_rows(connection, view, rows, folder, CORRECTED)


def _earlier(view: View, earlier: Earlier, kind: str, names: Collection[str] | None = None) -> str:
    """A query of the earlier rows of a kind, or of those in the files `names`."""
    wanted = earlier.paths if names is None else names
    paths = [path for name, path in earlier.paths.items() if name.startswith(kind) and name in wanted]
    return f"SELECT {_columns(view)} FROM {rows_of(paths) if paths else '(FROM computed WHERE false)'}"


def _match(other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{other}.{quoted(name)} IS NOT DISTINCT FROM n.{quoted(name)}" for name in names)


def _inside(spans: Sequence[Span]) -> str:
    return " OR ".join(f"({_within(span)})" for span in spans)


def _within(span: Span) -> str:
    """SQL condition for the rows of a span; the first and last possible times set no bound."""
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
