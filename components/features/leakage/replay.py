"""The time-travel replay: at a few cuts, recompute the features from what was known then, and compare.

At a cut T every raw table is taken back to what it was at T (`known/<table>.sql` of the repository), and the feature
tables are computed again. Two comparisons follow, each over the hours up to T:

- feature tables: the rows stamped with a time in (T - window, T] must be the same rows with the same values;
- training set: the entity rows decided in (T - window, T] must join to the same values.

What differs used something that nobody knew at T. The first finds a leak even where no entity row of the window met
it; the second looks at what the model really gets, through the same rows that Feast retrieved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.features.computing.compute import (
    compute_views,
    connect,
    go_back,
    open_tables,
    quoted,
    run_macros,
    set_time,
)
from gatehouse.components.features.computing.versions import CORRECTED
from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.definitions.repository import Repository, View
from gatehouse.components.features.online.store import offline_join, online_view
from gatehouse.components.features.point_in_time.asof_join import asof_join

CUTS = 6
WINDOW = timedelta(hours=6)
_REPLAYED = "replayed of "
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Difference:
    """A feature whose replayed values differ: where, in how many rows, of how many, and the first of them."""

    where: str
    view: str
    feature: str
    cut: str
    rows: int
    of: int
    example: dict[str, Any]

    def __str__(self) -> str:
        keys = ", ".join(
            f"{name} {value}" for name, value in self.example.items() if name not in ("stored", "replayed")
        )
        return (
            f"{self.view}.{self.feature} holds what was not known at {self.cut}: {self.rows} of {self.of} rows "
            f"of the {self.where} differ, first {keys}: stored {self.example['stored']}, "
            f"replayed {self.example['replayed']}"
        )


def cut_times(decisions: pa.ChunkedArray, count: int = CUTS) -> list[datetime]:
    """`count` moments spread evenly over the decisions, busy times as likely as they are frequent."""
    ordered = pc.sort_indices(decisions)
    places = [int((number + 0.5) * len(decisions) / count) for number in range(count)]
    return sorted({decisions[ordered[place].as_py()].as_py() for place in places}) if len(decisions) else []


def replay(
    repository: Repository,
    tables: Mapping[str, Sequence[Path]],
    feature_tables: Mapping[str, Path],
    training_set: pa.Table,
    views: Mapping[str, Sequence[str]],
    cut: datetime,
    window: timedelta = WINDOW,
) -> tuple[int, list[Difference]]:
    """Replay one cut.

    Args:
        repository: The feature definitions.
        tables: Raw Parquet files by table.
        feature_tables: The Parquet file of every view as it was computed.
        training_set: What was retrieved: entity keys, decision_time and features.
        views: Features by view.
        cut: The moment to go back to.
        window: Rows in (cut - window, cut] are compared.

    Returns:
        How many entity rows were compared, and the features that differ.
    """
    decided = pc.and_(
        pc.greater(training_set["decision_time"], pa.scalar(cut - window, pa.timestamp("us", "UTC"))),
        pc.less_equal(training_set["decision_time"], pa.scalar(cut, pa.timestamp("us", "UTC"))),
    )
    stored = training_set.filter(decided)
    rows = stored.select([*repository.entity_keys, "decision_time"])
    found: list[Difference] = []
    with connect() as connection:
        open_tables(connection, tables, "source")
        open_tables(connection, {name: [feature_tables[name]] for name in views}, "features")
        set_time(connection, "as_of", cut)
        set_time(connection, "since", cut - window - repository.history if repository.history else _BEGINNING)
        run_macros(connection, repository)
        for table in tables:
            go_back(connection, repository, table)
        for name, table in compute_views(connection, repository, views).items():
            connection.register(f"computed_{name}", table)
            _replay_corrections(connection, repository.views[name], feature_tables[name], cut)
            found += _compare_tables(connection, repository.views[name], cut, window)
        joined = [
            offline_join(online_view(repository.views[name], features), f"replayed_{name}")
            for name, features in views.items()
        ]
        replayed = asof_join(connection, rows, "decision_time", joined)
    for view, features in views.items():
        found += [one for feature in features if (one := _compare(view, feature, cut, stored, replayed))]
    return stored.num_rows, found


def _replay_corrections(connection: duckdb.DuckDBPyConnection, view: View, path: Path, cut: datetime) -> None:
    """Make `replayed_<view>`: what was computed, but where a row was corrected later, the versions known at the cut.

    The raw tables hold corrected rows only, so what was known before cannot be computed from them.
    """
    corrected = sorted(path.glob(f"{CORRECTED}*")) if path.is_dir() else []
    if not corrected:
        connection.execute(f"CREATE VIEW replayed_{view.name} AS FROM computed_{view.name}")
        return
    open_tables(connection, {f"corrected {view.name}": corrected}, "features")
    keys = (*view.spec.entities, EVENT_TIMESTAMP)
    match = " AND ".join(f"c.{quoted(name)} IS NOT DISTINCT FROM n.{quoted(name)}" for name in keys)
    known = f"EXISTS (FROM features.{quoted(f'corrected {view.name}')} AS c WHERE {match})"
    columns = ", ".join(map(quoted, view.columns))
    connection.execute(
        f"CREATE TABLE replayed_{view.name} AS SELECT {columns} FROM computed_{view.name} AS n "
        f"WHERE NOT {known} UNION ALL SELECT {columns} FROM features.{quoted(view.name)} AS n "
        f"WHERE {known} AND {quoted(KNOWN_FROM)} <= TIMESTAMPTZ '{cut.isoformat()}'"
    )


def _compare_tables(
    connection: duckdb.DuckDBPyConnection, view: View, cut: datetime, window: timedelta
) -> list[Difference]:
    """Compare one view's stored rows in the window with the replayed ones; a row only one side has differs whole."""
    created = view.spec.created_timestamp
    keys = [*view.spec.entities, EVENT_TIMESTAMP, *([created] if created else [])]
    event = quoted(EVENT_TIMESTAMP)
    latest = f"greatest({event}, {quoted(created)})" if created else event
    within = f"{latest} > TIMESTAMPTZ '{(cut - window).isoformat()}' AND {latest} <= TIMESTAMPTZ '{cut.isoformat()}'"
    names = ", ".join(map(quoted, keys))
    match = " AND ".join(f"s.{quoted(name)} IS NOT DISTINCT FROM r.{quoted(name)}" for name in keys)
    values = [f"s.{quoted(f)} AS {quoted(f)}, r.{quoted(f)} AS {quoted(_REPLAYED + f)}" for f in view.spec.features]
    both = connection.sql(
        f"SELECT {', '.join(f'coalesce(s.{quoted(name)}, r.{quoted(name)}) AS {quoted(name)}' for name in keys)}, "
        f"{', '.join(values)}, "
        f"s.here IS NULL OR r.here IS NULL AS alone "
        f"FROM (SELECT *, true AS here FROM features.{quoted(view.name)} WHERE {within}) AS s "
        f"FULL JOIN (SELECT *, true AS here FROM replayed_{view.name} WHERE {within}) AS r "
        f"ON {match} ORDER BY {names}"
    ).to_arrow_table()
    found: list[Difference] = []
    for feature in view.spec.features:
        differs = pc.or_(_unlike(both[feature], both[_REPLAYED + feature]), both["alone"])
        places = pc.indices_nonzero(differs.combine_chunks())
        if len(places):
            first = places[0].as_py()
            example = {name: str(both[name][first].as_py()) for name in keys}
            example |= {"stored": both[feature][first].as_py(), "replayed": both[_REPLAYED + feature][first].as_py()}
            found.append(
                Difference("feature table", view.name, feature, cut.isoformat(), len(places), both.num_rows, example)
            )
    return found


def _unlike(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    same = pc.fill_null(pc.equal(old, new), False)
    both_null = pc.and_(pc.is_null(old, nan_is_null=True), pc.is_null(new, nan_is_null=True))
    return pc.invert(pc.or_(same, both_null))


def _compare(view: str, feature: str, cut: datetime, stored: pa.Table, replayed: pa.Table) -> Difference | None:
    old, new = stored[feature], replayed[feature]
    places = pc.indices_nonzero(_unlike(old, new).combine_chunks())
    if not len(places):
        return None
    first = places[0].as_py()
    names = replayed.column_names.index("decision_time") + 1
    example = {name: str(replayed[name][first].as_py()) for name in replayed.column_names[:names]}
    example |= {"stored": old[first].as_py(), "replayed": new[first].as_py()}
    return Difference("training set", view, feature, cut.isoformat(), len(places), stored.num_rows, example)
