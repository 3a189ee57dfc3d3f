"""The time-travel replay: at a few moments (cuts), recompute the features from what was known then, and compare.

At a cut T every raw table is restored to its state at T (`known/<table>.sql` of the repository), and the feature
tables are computed again. Two comparisons follow, each over the hours up to T:

- feature tables: the rows stamped with a time in (T - window, T] must be the same rows with the same values;
- training set: the entity rows decided in (T - window, T] must join to the same values.

A difference means that a value used something that was not known at T. The first comparison finds a leak even if no
entity row of the window joined to it. The second checks the values that the model gets, as Feast retrieved them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.features.computing.compute import go_back, keep_view, run_macros, stage_tables
from gatehouse.features.computing.versions import week_in, week_of
from gatehouse.features.database import empty_schemas, open_tables, set_time
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import Repository, tables_of
from gatehouse.features.point_in_time.asof_join import asof_join, joined
from gatehouse.features.table_files import CORRECTED, Files
from gatehouse.store.database import quoted, time_literal

WINDOW = timedelta(hours=6)
_REPLAYED = "replayed of "
_TIME = pa.timestamp("us", "UTC")
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Difference:
    """A feature whose replayed values differ from the stored ones, in the `feature table` or the `training set`.

    `cut` is the moment to which the raw tables were restored, and `first` the keys and times of the first row that
    differs.
    """

    where: str
    view: str
    feature: str
    cut: str
    rows: int
    of: int
    first: dict[str, str]
    stored: str
    replayed: str

    def __str__(self) -> str:
        keys = ", ".join(f"{name} {value}" for name, value in self.first.items())
        shown = f"first {keys}: stored {self.stored}, replayed {self.replayed}" if keys else self.stored
        return (
            f"{self.view}.{self.feature} holds what was not known at {self.cut}: {self.rows} of {self.of} rows "
            f"of the {self.where} differ, {shown}"
        )

    def without_values(self, sensitive: Collection[str]) -> "Difference":
        """The same without the values of the row: features are made of any columns, the sensitive ones too."""
        hidden = f"not shown, as columns are sensitive ({', '.join(sorted(sensitive))})"
        return replace(self, first={}, stored=hidden, replayed=hidden)

    def as_dict(self) -> dict[str, Any]:
        """The difference as in the report."""
        return asdict(self)


@dataclass(frozen=True)
class Replay:
    """What a training set was made from, and its features by view."""

    connection: duckdb.DuckDBPyConnection
    repository: Repository
    tables: Mapping[str, Sequence[Path]]
    views: Mapping[str, Sequence[str]]

    def plan(self, count: int, decisions: pa.ChunkedArray, tables: Mapping[str, Files]) -> dict[datetime, list[str]]:
        """Choose the views to replay by moment: each at `count` moments of its own rows, all at the middle decision.

        A row is compared at the moment at which it becomes known, as later knowledge cannot be computed then. A leak
        that shows at half of these moments of a view stays unseen with a probability of at most 0.5 ** count (under 1 %
        with 7), however few rows the view has. Rows that become known outside the decision times are skipped.
        `decisions` are the times of the training set, and `tables` the files of the views' tables.
        """
        planned = {cut: list(self.views) for cut in cut_times(decisions, 1)}
        span = pc.min_max(decisions).as_py()
        moments = {
            name: _Moments(tables[name], span["min"], span["max"])
            for name in self.views
            if not self.repository.views[name].spec.static
        }
        shared: list[datetime] = []
        for name, own in sorted(moments.items(), key=lambda item: (item[1].total, item[0])):
            # Where one moment serves several views, the raw tables are computed once.
            chosen = [cut for cut in shared if cut in own][:count]
            chosen += [cut for cut in own.evenly(count) if cut not in chosen][: count - len(chosen)]
            shared += [cut for cut in chosen if cut not in shared]
            for cut in chosen:
                if name not in planned.setdefault(cut, []):
                    planned[cut].append(name)
        return dict(sorted(planned.items()))

    def compare(
        self, cut: datetime, stored: pa.Table, tables: Mapping[str, Files]
    ) -> tuple[dict[str, int], list[Difference]]:
        """Replay views at one cut, and compare their rows in (cut - `WINDOW`, cut].

        `stored` are all rows of the training set decided then, and `tables` the files of the views' tables that hold
        such rows, all corrected ones, and their earlier versions. Returns the number of feature rows compared by view,
        and the differences.
        """
        connection, repository, names = self.connection, self.repository, [*tables]
        queries = [repository.views[name].query for name in names]
        since = cut - WINDOW - repository.history if repository.history else _BEGINNING
        self._restore(tables_of(repository, queries), cut, since)
        connection.execute("DROP SCHEMA IF EXISTS replayed CASCADE; CREATE SCHEMA replayed")
        open_tables(connection, {name: [*files.values()] for name, files in tables.items()}, "features")
        stage_tables(connection, repository, queries)
        compared, differences = dict[str, int](), list[Difference | None]()
        for name in names:
            view, files = repository.views[name], tables[name]
            keep_view(connection, repository, view, _table(name))
            if corrected := [path for file, path in files.items() if file.startswith(CORRECTED)]:
                # The raw tables hold corrected rows only, so earlier versions cannot be computed from them: rows that
                # were corrected later are replaced by their versions that were known at the cut.
                open_tables(connection, {f"corrected {name}": corrected}, "features")
                event = map(quoted, (*view.spec.entities, EVENT_TIMESTAMP))
                same_event = " AND ".join(f"c.{key} IS NOT DISTINCT FROM n.{key}" for key in event)
                later = f"EXISTS (FROM features.{quoted(f'corrected {name}')} AS c WHERE {same_event})"
                listed = ", ".join(map(quoted, view.columns))
                connection.execute(
                    f"CREATE OR REPLACE TABLE {_table(name)} AS SELECT {listed} FROM {_table(name)} AS n "
                    f"WHERE NOT {later} UNION ALL SELECT {listed} FROM features.{quoted(name)} AS n "
                    f"WHERE {later} AND {quoted(KNOWN_FROM)} <= {time_literal(cut)}"
                )
        for name in names:
            # Stored rows of the view in the window against the replayed ones; a row without a match differs.
            view, known_from = repository.views[name], quoted(KNOWN_FROM)
            keys = [*view.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM]
            within = f"{known_from} > {time_literal(cut - WINDOW)} AND {known_from} <= {time_literal(cut)}"
            match = " AND ".join(f"s.{quoted(key)} IS NOT DISTINCT FROM r.{quoted(key)}" for key in keys)
            columns = [f"coalesce(s.{quoted(key)}, r.{quoted(key)}) AS {quoted(key)}" for key in keys]
            columns += [f"s.{quoted(feature)} AS {quoted(feature)}" for feature in view.spec.features]
            columns += [f"r.{quoted(feature)} AS {quoted(_REPLAYED + feature)}" for feature in view.spec.features]
            both = connection.sql(
                f"SELECT {', '.join(columns)}, s.here IS NULL OR r.here IS NULL AS alone "
                f"FROM (SELECT *, true AS here FROM features.{quoted(name)} WHERE {within}) AS s "
                f"FULL JOIN (SELECT *, true AS here FROM {_table(name)} WHERE {within}) AS r "
                f"ON {match} ORDER BY {', '.join(map(quoted, keys))}"
            ).to_arrow_table()
            compared[name], place = both.num_rows, both.select(keys)
            for feature in view.spec.features:
                values = both[feature], both[_REPLAYED + feature]
                differences.append(difference("feature table", name, cut, place, feature, *values, both["alone"]))
        rows = stored.select([*repository.entity_keys, "decision_time"])
        joins = [joined(repository.views[name], _table(name), self.views[name]) for name in names]
        replayed = asof_join(connection, rows, "decision_time", joins)
        differences += [
            difference("training set", name, cut, rows, feature, stored[feature], replayed[feature])
            for name in names
            for feature in self.views[name]
        ]
        return compared, [difference for difference in differences if difference]

    def untouched_tables(self, decisions: pa.ChunkedArray) -> list[str]:
        """Growing tables of the label from which `known/` takes nothing away, not even at the first of the decisions.

        The replay of a view that reads such a table sees what came later, so it compares nothing.
        """
        span = pc.min_max(decisions).as_py()
        read = tables_of(self.repository, [self.repository.entity_rows])
        names = sorted({*self.repository.sources} & {*self.repository.histories} & {*read})
        if span["min"] == span["max"]:
            return []
        self._restore(names, span["min"], _BEGINNING)
        untouched = []
        for name in names:
            source, raw = (
                self.connection.sql(f"SELECT * FROM {schema}.{quoted(name)}") for schema in ("source", "raw")
            )
            alike = source.columns == raw.columns and len(source) == len(raw)
            if alike and not source.except_(raw).limit(1).fetchall():
                untouched.append(name)
        return untouched

    def _restore(self, tables: Iterable[str], cut: datetime, since: datetime) -> None:
        """Create the raw tables as they stood at the cut, with rows since a time."""
        empty_schemas(self.connection)
        open_tables(self.connection, self.tables, "source")
        set_time(self.connection, "as_of", cut)
        set_time(self.connection, "since", since)
        run_macros(self.connection, self.repository)
        for table in tables:
            go_back(self.connection, self.repository, table)


def cut_times(moments: pa.ChunkedArray, count: int) -> list[datetime]:
    """Choose moments evenly by rank, so that a busy time gets more of them; `moments` are in UTC, in any order."""
    ordered = pc.sort_indices(moments)
    places = _places(len(moments), count)
    return sorted({moments[ordered[place].as_py()].as_py() for place in places}) if len(moments) else []


def _places(total: int, count: int) -> list[int]:
    return [int((number + 0.5) * total / count) for number in range(count)]


class _Moments:
    """The distinct times from `first` to `last` from which rows of a table count.

    There may be as many as rows, so one week of them is in memory at a time.
    """

    def __init__(self, files: Files, first: datetime, last: datetime) -> None:
        self._first, self._last = first, last
        self._files: dict[str, list[Path]] = {}
        for name in sorted(files, key=week_in):
            self._files.setdefault(week_in(name), []).append(files[name])
        self._counts = {week: len(self._times(week)) for week in self._files}
        self.total = sum(self._counts.values())

    def _times(self, week: str) -> pa.Array:
        known_from = pc.cast(pq.ParquetDataset(self._files[week]).read([KNOWN_FROM])[KNOWN_FROM], _TIME)
        inside = pc.and_(pc.greater_equal(known_from, self._first), pc.less_equal(known_from, self._last))
        return pc.unique(known_from.filter(inside)).sort()

    def __contains__(self, moment: datetime) -> bool:
        week = week_of(moment)
        return week in self._files and pc.is_in(pa.scalar(moment, _TIME), value_set=self._times(week)).as_py()

    def evenly(self, count: int) -> list[datetime]:
        """Moments as `cut_times` chooses them."""
        cuts, start = list[datetime](), 0
        for week, number in self._counts.items():
            if inside := [place - start for place in _places(self.total, count) if start <= place < start + number]:
                times = self._times(week)
                cuts += [times[place].as_py() for place in inside]
            start += number
        return sorted(set(cuts))


def _table(view: str) -> str:
    return f"replayed.{quoted(view)}"


def difference(
    where: str,
    view: str,
    cut: datetime | str,
    keys: pa.Table,
    feature: str,
    stored: pa.ChunkedArray,
    replayed: pa.ChunkedArray,
    alone: pa.ChunkedArray | None = None,
) -> Difference | None:
    """Compare one feature row by row; None where it does not differ.

    Null equals null and NaN, and differs from all other values. Rows in `alone` always differ.
    """
    same = pc.fill_null(pc.equal(stored, replayed), False)
    both_null = pc.and_(pc.is_null(stored, nan_is_null=True), pc.is_null(replayed, nan_is_null=True))
    unlike = pc.invert(pc.or_(same, both_null))
    places = pc.indices_nonzero((unlike if alone is None else pc.or_(unlike, alone)).combine_chunks())
    if not len(places):
        return None
    first = places[0].as_py()
    row = {name: str(value) for name, value in keys.slice(first, 1).to_pylist()[0].items()}
    values = ("null" if (value := column[first].as_py()) is None else str(value) for column in (stored, replayed))
    moment = cut if isinstance(cut, str) else cut.isoformat()
    return Difference(where, view, feature, moment, len(places), keys.num_rows, row, *values)
