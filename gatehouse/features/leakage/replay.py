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
from gatehouse.features.database import empty_schemas, open_tables, quoted, set_time, time_literal
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import Repository, View, tables_of
from gatehouse.features.point_in_time.asof_join import asof_join
from gatehouse.features.point_in_time.view_join import joined
from gatehouse.features.table_files import CORRECTED, Files

WINDOW = timedelta(hours=6)
_REPLAYED = "replayed of "
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Difference:
    """A feature whose replayed values differ from the stored ones.

    Attributes:
        where: `feature table` or `training set`.
        view: The view.
        feature: The feature.
        cut: The moment to which the raw tables were restored, ISO 8601.
        rows: Number of rows that differ.
        of: Number of rows compared.
        first: Keys and times of the first row that differs.
        stored: Its stored value.
        replayed: Its recomputed value.
    """

    where: str
    view: str
    feature: str
    cut: str
    rows: int
    of: int
    first: dict[str, str]
    stored: object
    replayed: object

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
        """The difference as in the report: JSON, with the two values as text."""
        return asdict(self) | {"stored": str(self.stored), "replayed": str(self.replayed)}


def cut_times(moments: pa.ChunkedArray, count: int) -> list[datetime]:
    """Choose moments evenly by rank among those given, so that a busy time gets more of them.

    Args:
        moments: When rows were decided, or became known; in UTC, in any order, shape (rows,).
        count: How many to choose; fewer are returned where moments coincide.
    """
    ordered = pc.sort_indices(moments)
    places = [int((number + 0.5) * len(moments) / count) for number in range(count)]
    return sorted({moments[ordered[place].as_py()].as_py() for place in places}) if len(moments) else []


def plan(
    repository: Repository,
    feature_tables: Mapping[str, Files],
    training_set: pa.Table,
    views: Mapping[str, Sequence[str]],
    count: int,
) -> dict[datetime, dict[str, Sequence[str]]]:
    """Choose what to replay when: each view at `count` moments of its own rows, and all views at the middle decision.

    A row is compared at the moment at which it becomes known, as later knowledge cannot be computed then. A leak that
    shows at half of these moments of a view stays unseen with a probability of at most 0.5 ** count (under 1 % with 7),
    however few rows the view has.

    Args:
        repository: The feature definitions.
        feature_tables: The Parquet files of every view as it was computed.
        training_set: The retrieved training set; rows of views that become known outside its decision times are
            skipped.
        views: Features by view.
        count: At how many moments of its own rows each view is replayed.

    Returns:
        The views with their features by moment, in order of time.
    """
    decisions = training_set["decision_time"]
    planned = {cut: list(views) for cut in cut_times(decisions, 1)}
    if not planned:
        return {}
    span = pc.min_max(decisions).as_py()
    own = {name: _moments(feature_tables[name], span) for name in views if not repository.views[name].spec.static}
    shared: list[datetime] = []
    for name, moments in sorted(own.items(), key=lambda item: (len(item[1]), item[0])):
        # Where one moment serves several views, the raw tables are computed once.
        met = pc.is_in(pa.array(shared, moments.type), value_set=moments.combine_chunks())
        chosen = [cut for cut, found in zip(shared, met.to_pylist(), strict=True) if found][:count]
        chosen += [cut for cut in cut_times(moments, count) if cut not in chosen][: count - len(chosen)]
        shared += [cut for cut in chosen if cut not in shared]
        for cut in chosen:
            planned[cut] = [*planned.get(cut, []), *([] if name in planned.get(cut, []) else [name])]
    return {cut: {name: views[name] for name in planned[cut]} for cut in sorted(planned)}


def _moments(files: Files, span: Mapping[str, datetime]) -> pa.ChunkedArray:
    """The distinct moments in a time span at which rows of a view become known, in UTC."""
    known = pc.cast(pq.ParquetDataset([*files.values()]).read([KNOWN_FROM])[KNOWN_FROM], pa.timestamp("us", "UTC"))
    inside = pc.and_(pc.greater_equal(known, span["min"]), pc.less_equal(known, span["max"]))
    return pa.chunked_array([pc.unique(known.filter(inside))])


def replay(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    tables: Mapping[str, Sequence[Path]],
    feature_tables: Mapping[str, Files],
    training_set: pa.Table,
    views: Mapping[str, Sequence[str]],
    cut: datetime,
) -> tuple[int, dict[str, int], list[Difference]]:
    """Replay one cut.

    Args:
        connection: A database of `features.database`; tables of an earlier replay are removed.
        repository: The feature definitions.
        tables: Raw Parquet files by table.
        feature_tables: The Parquet files of every view as it was computed.
        training_set: The retrieved training set: entity keys, decision_time and features.
        views: Features by view.
        cut: The moment to go back to. Rows in (cut - `WINDOW`, cut] are compared.

    Returns:
        The number of entity rows compared, the number of feature rows compared by view, and the differences.
    """
    decided = pc.and_(
        pc.greater(training_set["decision_time"], pa.scalar(cut - WINDOW, pa.timestamp("us", "UTC"))),
        pc.less_equal(training_set["decision_time"], pa.scalar(cut, pa.timestamp("us", "UTC"))),
    )
    stored = training_set.filter(decided)
    found: list[Difference] = []
    compared: dict[str, int] = {}
    empty_schemas(connection)
    connection.execute("DROP SCHEMA IF EXISTS replayed CASCADE; CREATE SCHEMA replayed")
    open_tables(connection, tables, "source")
    open_tables(connection, {name: [*feature_tables[name].values()] for name in views}, "features")
    set_time(connection, "as_of", cut)
    set_time(connection, "since", cut - WINDOW - repository.history if repository.history else _BEGINNING)
    run_macros(connection, repository)
    queries = [repository.views[name].query for name in views]
    for table in tables_of(repository, queries):
        go_back(connection, repository, table)
    stage_tables(connection, repository, queries)
    compute_again(connection, repository, feature_tables, views, cut)
    for name in views:
        compared[name], differing = _compare_tables(connection, repository.views[name], cut)
        found += differing
    found += joined_differences(connection, repository, stored, views, cut)
    return stored.num_rows, compared, found


def compute_again(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    feature_tables: Mapping[str, Files],
    views: Iterable[str],
    cut: datetime,
) -> None:
    """Compute views from the raw and staging tables as they stand in the connection, into the schema `replayed`."""
    for name in views:
        keep_view(connection, repository, repository.views[name], _table(name))
        if corrected := [path for file, path in feature_tables[name].items() if file.startswith(CORRECTED)]:
            _replay_corrections(connection, repository.views[name], corrected, cut)


def joined_differences(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    stored: pa.Table,
    views: Mapping[str, Sequence[str]],
    cut: datetime,
) -> list[Difference]:
    """Join the views computed again to rows of the training set, and compare each feature with the stored one."""
    rows = stored.select([*repository.entity_keys, "decision_time"])
    joins = [joined(repository.views[name], _table(name), features) for name, features in views.items()]
    replayed = asof_join(connection, rows, "decision_time", joins)
    compared = (
        _difference("training set", view, cut, rows, name, stored[name], replayed[name])
        for view, features in views.items()
        for name in features
    )
    return [one for one in compared if one]


def _table(view: str) -> str:
    return f"replayed.{quoted(view)}"


def _replay_corrections(
    connection: duckdb.DuckDBPyConnection, view: View, corrected: Sequence[Path], cut: datetime
) -> None:
    """Replace rows that were corrected later by the versions of them that were known at the cut.

    The raw tables hold corrected rows only, so earlier versions cannot be computed from them.
    """
    open_tables(connection, {f"corrected {view.name}": corrected}, "features")
    keys = (*view.spec.entities, EVENT_TIMESTAMP)
    match = " AND ".join(f"c.{quoted(name)} IS NOT DISTINCT FROM n.{quoted(name)}" for name in keys)
    known = f"EXISTS (FROM features.{quoted(f'corrected {view.name}')} AS c WHERE {match})"
    columns = ", ".join(map(quoted, view.columns))
    connection.execute(
        f"CREATE OR REPLACE TABLE {_table(view.name)} AS SELECT {columns} FROM {_table(view.name)} AS n "
        f"WHERE NOT {known} UNION ALL SELECT {columns} FROM features.{quoted(view.name)} AS n "
        f"WHERE {known} AND {quoted(KNOWN_FROM)} <= {time_literal(cut)}"
    )


def _compare_tables(connection: duckdb.DuckDBPyConnection, view: View, cut: datetime) -> tuple[int, list[Difference]]:
    """Compare one view's stored rows in the window with the replayed ones; a row without a match differs."""
    keys = [*view.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM]
    known = quoted(KNOWN_FROM)
    within = f"{known} > {time_literal(cut - WINDOW)} AND {known} <= {time_literal(cut)}"
    match = " AND ".join(f"s.{quoted(name)} IS NOT DISTINCT FROM r.{quoted(name)}" for name in keys)
    columns = [f"coalesce(s.{quoted(name)}, r.{quoted(name)}) AS {quoted(name)}" for name in keys]
    for feature in view.spec.features:
        columns += [
            f"s.{quoted(feature)} AS {quoted(feature)}",
            f"r.{quoted(feature)} AS {quoted(_REPLAYED + feature)}",
        ]
    both = connection.sql(
        f"SELECT {', '.join(columns)}, s.here IS NULL OR r.here IS NULL AS alone "
        f"FROM (SELECT *, true AS here FROM features.{quoted(view.name)} WHERE {within}) AS s "
        f"FULL JOIN (SELECT *, true AS here FROM {_table(view.name)} WHERE {within}) AS r "
        f"ON {match} ORDER BY {', '.join(map(quoted, keys))}"
    ).to_arrow_table()
    compared = (
        _difference(
            "feature table", view.name, cut, both.select(keys), name, both[name], both[_REPLAYED + name], both["alone"]
        )
        for name in view.spec.features
    )
    return both.num_rows, [one for one in compared if one]


def _difference(
    where: str,
    view: str,
    cut: datetime,
    keys: pa.Table,
    feature: str,
    stored: pa.ChunkedArray,
    replayed: pa.ChunkedArray,
    alone: pa.ChunkedArray | None = None,
) -> Difference | None:
    """Compare one feature row by row; None where it does not differ. Rows in `alone` always differ."""
    unlike = _unlike(stored, replayed)
    places = pc.indices_nonzero((unlike if alone is None else pc.or_(unlike, alone)).combine_chunks())
    if not len(places):
        return None
    first = places[0].as_py()
    return Difference(
        where=where,
        view=view,
        feature=feature,
        cut=cut.isoformat(),
        rows=len(places),
        of=keys.num_rows,
        first={name: str(value) for name, value in keys.slice(first, 1).to_pylist()[0].items()},
        stored=_shown(stored[first].as_py()),
        replayed=_shown(replayed[first].as_py()),
    )


def _shown(value: object) -> object:
    return "null" if value is None else value


def _unlike(stored: pa.ChunkedArray, replayed: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where two columns differ, shape (rows,); null equals null and NaN, and differs from all other values."""
    same = pc.fill_null(pc.equal(stored, replayed), False)
    both_null = pc.and_(pc.is_null(stored, nan_is_null=True), pc.is_null(replayed, nan_is_null=True))
    return pc.invert(pc.or_(same, both_null))
