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
from gatehouse.features.database import rows_of, write_parquet
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View
from gatehouse.features.table_files import CORRECTED, KNOWN
from gatehouse.store.database import quoted, time_literal
from gatehouse.store.manifest import FileEntry

_SUFFIX, _WEEK = ".parquet", "__week"
_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Earlier:
    """The earlier table of a view: all its files, and the paths of those of the weeks from the first span on.

    Rows from the time `settled` on were provisional: their sources could still add to them.
    """

    files: Mapping[str, FileEntry]
    paths: Mapping[str, Path]
    settled: datetime


Files = dict[str, Path | FileEntry]
"""The files of a table: new ones as paths, unchanged ones as they are stored."""


def write_rows(
    connection: duckdb.DuckDBPyConnection, view: View, rows: str, folder: Path, kind: str = KNOWN
) -> dict[str, Path]:
    """Write rows by the week from which they are known, each file in the order of `View.columns`, one week at a time.

    `rows` is SQL that can follow FROM. `kind` is what file names begin with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # File names need a year that Python can hold, and a time can be infinite. Times have no zone (they are UTC): with a
    # zone, DuckDB asks a calendar for every row.
    first, last = map(time_literal, (BEGINNING, END))
    within = f"make_timestamp(epoch_us(least(greatest({quoted(KNOWN_FROM)}, {first}), {last})))"
    query = f"SELECT {_columns(view)}, date_trunc('week', {within}) AS {_WEEK} FROM {rows} AS r"
    reader = connection.sql(f"{query} ORDER BY {_WEEK}, {_columns(view)}").to_arrow_reader(_ROWS_AT_ONCE)
    files: dict[str, Path] = {}

    def weeks() -> Iterator[tuple[datetime, pa.Table]]:
        for batch in reader:
            weeks = batch.column(_WEEK).to_numpy(zero_copy_only=False)
            starts = np.flatnonzero(np.r_[len(weeks) > 0, weeks[1:] != weeks[:-1]])
            part = pa.Table.from_batches([batch]).drop_columns(_WEEK)
            for start, end in pairwise([*starts, len(weeks)]):
                yield batch.column(_WEEK)[start].as_py(), part.slice(start, end - start)

    for week, parts in groupby(weeks(), key=lambda part: part[0]):
        path = folder / f"{kind}{week_of(week)}{_SUFFIX}"
        write_parquet(pa.concat_tables([table for _, table in parts]).combine_chunks(), path)
        files[path.name] = path
    if not files:
        path = folder / f"{kind}none{_SUFFIX}"
        write_parquet(reader.schema.empty_table().drop_columns(_WEEK), path)
        files[path.name] = path
    return files


def redefined_table(
    connection: duckdb.DuckDBPyConnection, view: View, corrected: Sequence[Path], computed: str, folder: Path
) -> Files:
    """The files of a table that is computed whole: it is new, or its definition changed.

    The new definition's values before a correction cannot be computed, since the sources hold corrected rows only. So a
    corrected row counts as known from its last correction on. `corrected` are the earlier table's files of corrections.
    """
    if not corrected:
        return {**write_rows(connection, view, computed, folder)}
    key, known_from = (*view.spec.entities, EVENT_TIMESTAMP), quoted(KNOWN_FROM)
    keys = ", ".join(map(quoted, key))
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE redefined AS WITH corrected AS "
        f"(SELECT {keys}, max({known_from}) AS __corrected_at FROM {rows_of(corrected)} GROUP BY ALL) "
        f"SELECT n.* REPLACE (greatest(n.{known_from}, __corrected_at) AS {known_from}), "
        f"coalesce(n.{known_from} <= __corrected_at, false) AS __moved "
        f"FROM {computed} AS n LEFT JOIN corrected AS c ON {_match('c', key)} QUALIFY row_number() OVER "
        f"(PARTITION BY {', '.join(f'n.{quoted(name)}' for name in key)}, greatest(n.{known_from}, __corrected_at) "
        f"ORDER BY n.{known_from} DESC) = 1"
    )
    files = write_rows(connection, view, "(FROM redefined WHERE NOT __moved)", folder)
    if connection.execute("SELECT count(*) FROM redefined WHERE __moved").fetchall()[0][0]:
        files |= write_rows(connection, view, "(FROM redefined WHERE __moved)", folder, CORRECTED)
    return {**files}


def next_table(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    earlier: Earlier,
    spans: Sequence[Span],
    computed: str,
    as_of: datetime,
    folder: Path,
) -> Files:
    """The files of a table after its rows in `spans` were computed again.

    Provisional earlier rows in the spans are replaced. Settled rows stay. Where a settled value is new or different
    now, a version known from `as_of` on is added; where it is gone, a version of nulls is added.

    `spans` are the event times that were computed again; rows outside them stay as they are. `computed` are the rows of
    the spans as they are now, and `as_of` is up to when the sources know everything.
    """
    connection.execute(f"CREATE OR REPLACE TEMP VIEW computed AS FROM {computed}")
    if spans[0].start < earlier.settled or any(name.startswith(CORRECTED) for name in earlier.paths):
        _compare(connection, view, earlier, spans, as_of)
    else:  # No row is known before its event, so nothing in the spans was settled.
        connection.execute("CREATE OR REPLACE TEMP TABLE fresh AS FROM computed")
        connection.execute("CREATE OR REPLACE TEMP TABLE late AS FROM computed WHERE false")
    # Provisional rows of the spans become known at or after the start of the first week; those weeks are rewritten.
    known_from, first = quoted(KNOWN_FROM), week_of(max(earlier.settled, spans[0].start))
    replaced = {name for name in earlier.files if name.startswith(KNOWN) and week_in(name) >= first}
    rows = (
        f"({_earlier(view, earlier, KNOWN, replaced)} "
        f"WHERE NOT (({_inside(spans)}) AND {known_from} >= {time_literal(earlier.settled)}) UNION ALL FROM fresh)"
    )
    some = connection.execute(f"SELECT 1 FROM {rows} LIMIT 1").fetchall()
    fresh = write_rows(connection, view, rows, folder) if some else {}
    if connection.execute("SELECT count(*) FROM late").fetchall()[0][0]:
        # The week of corrections known from now on, with the corrections that it has already.
        present = _earlier(view, earlier, CORRECTED, {f"{CORRECTED}{week_of(as_of)}{_SUFFIX}"})
        match = _match("l", (*view.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM))
        rows = (
            f"(SELECT {_columns(view)} FROM ({present}) AS n WHERE NOT EXISTS (FROM late AS l WHERE {match}) "
            f"UNION ALL FROM late)"
        )
        fresh |= write_rows(connection, view, rows, folder, CORRECTED)
    kept = {name: entry for name, entry in earlier.files.items() if name not in replaced | set(fresh)}
    return {**kept, **fresh} if kept or fresh else {**write_rows(connection, view, computed, folder)}


def week_of(moment: datetime) -> str:
    """The week of a time (UTC) as file names have it: its Monday."""
    day = (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    return (day - timedelta(days=day.weekday())).isoformat()


def files_from(files: Mapping[str, FileEntry], start: datetime, until: datetime | None = None) -> list[FileEntry]:
    """The files that can hold rows with event times from `start` on, and known at `until`.

    No row is known before its event.
    """
    last = week_of(until) if until else "none"
    return [entry for name, entry in files.items() if week_of(start) <= week_in(name) <= last]


def _compare(
    connection: duckdb.DuckDBPyConnection, view: View, earlier: Earlier, spans: Sequence[Span], as_of: datetime
) -> None:
    """Create two tables: `fresh` has provisional rows as they are now, `late` has new versions of settled rows.

    A row can have several versions, so the values that apply at `as_of` are compared, not the versions. A late version
    is needed only where the settled and fresh versions together give another value at `as_of` than the computed ones.

    `kept` are the earlier versions in the spans that stay, `keys` are the keys of settled rows, `now` the computed
    values at `as_of`, and `stored` the values of kept and fresh versions then.
    """
    settled, now, known_from = time_literal(earlier.settled), time_literal(as_of), quoted(KNOWN_FROM)
    key = (*view.spec.entities, EVENT_TIMESTAMP)
    keys, columns = ", ".join(map(quoted, key)), _columns(view)
    nothing = ", ".join(f"NULL AS {quoted(name)}" for name in view.spec.features)
    something = " OR ".join(f"s.{quoted(name)} IS NOT NULL" for name in view.spec.features)
    newest = f"WHERE {known_from} <= {now} QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {known_from} DESC)=1"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE kept AS "
        f"{_earlier(view, earlier, KNOWN)} WHERE ({_inside(spans)}) AND {known_from} < {settled} "
        f"UNION ALL {_earlier(view, earlier, CORRECTED)} WHERE {_inside(spans)}"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT {columns} FROM computed AS n WHERE {known_from} >= {settled} "
        f"AND NOT EXISTS (FROM kept AS h WHERE {_match('h', (*key, KNOWN_FROM))})"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE late AS "
        f"WITH keys AS (SELECT {keys} FROM kept UNION SELECT {keys} FROM computed WHERE {known_from} < {settled}), "
        f"versions AS (SELECT {columns} FROM kept UNION ALL FROM fresh), "
        f"now AS (SELECT {columns} FROM computed AS n SEMI JOIN keys AS t ON {_match('t', key)} {newest}), "
        f"stored AS (SELECT {columns} FROM versions AS n SEMI JOIN keys AS t ON {_match('t', key)} {newest}) "
        f"SELECT n.* REPLACE ({now} AS {known_from}) FROM now AS n "
        f"WHERE NOT EXISTS (FROM stored AS s WHERE {_match('s', (*key, *view.spec.features))}) "
        f"UNION ALL SELECT {keys}, {now}, {nothing} FROM stored AS s "
        f"WHERE ({something}) AND NOT EXISTS (FROM now AS n WHERE {_match('s', key)})"
    )


def _earlier(view: View, earlier: Earlier, kind: str, names: Collection[str] | None = None) -> str:
    """A query of the earlier rows of a kind, or of those in the files `names`."""
    chosen = earlier.paths if names is None else names
    paths = [path for name, path in earlier.paths.items() if name.startswith(kind) and name in chosen]
    return f"SELECT {_columns(view)} FROM {rows_of(paths) if paths else '(FROM computed WHERE false)'}"


def _match(other: str, names: Sequence[str]) -> str:
    return " AND ".join(f"{other}.{quoted(name)} IS NOT DISTINCT FROM n.{quoted(name)}" for name in names)


def _inside(spans: Sequence[Span]) -> str:
    """SQL condition for the rows of the spans; the first and last possible times set no bound."""
    event, conditions = quoted(EVENT_TIMESTAMP), []
    for span in spans:
        bounds = [f"{event} >= {time_literal(span.start)}"] if span.start > BEGINNING else []
        bounds += [f"{event} <= {time_literal(span.end)}"] if span.end < END else []
        conditions.append(f"({' AND '.join(bounds) or 'true'})")
    return " OR ".join(conditions)


def _columns(view: View) -> str:
    return ", ".join(map(quoted, view.columns))


def week_in(name: str) -> str:
    """The week in the name of a file, as `week_of` gives it; "none" in that of a table without rows."""
    return name.removeprefix(KNOWN).removeprefix(CORRECTED).removesuffix(_SUFFIX)


def rows_in(file: Path | FileEntry) -> int:
    """The number of rows of a file."""
    return int(pq.read_metadata(file).num_rows) if isinstance(file, Path) else file.rows or 0
