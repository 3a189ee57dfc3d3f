"""Finds features that hold the outcome of their own decision where the outcome counts as known at once.

Where a label arrives at its decision, no moment lies between the two, and a replay takes nothing away. Instead the
outcomes that arrive at the cut are replaced by others, and the features of the rows decided then computed again.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.features.computing.compute import run, stage_tables
from gatehouse.components.features.database import quoted, set_time
from gatehouse.components.features.definitions.repository import Repository
from gatehouse.components.features.leakage.pending_outcomes import label_columns
from gatehouse.components.features.leakage.replay import Difference, compute_again, joined_differences
from gatehouse.components.features.table_files import Files

_OWN = (
    "{view}: not checked, as the label arrives at the decision itself and features are computed from it: with another "
    "outcome at {cut}, {feature} is {replayed} instead of {stored}{row}. State since when an outcome is known, by a "
    "later time in {column} of labels/{label}.sql and by known/<table>.sql (gatehouse init --known writes both); "
    "or compute the feature without the row's own outcome."
)


def decided_with_outcome(training_set: pa.Table, cut: datetime | None = None) -> pa.Table:
    """The rows whose label arrived at their decision, or before; with `cut`, those decided at that moment."""
    own = pc.less_equal(training_set["label_time"], training_set["decision_time"])
    if cut is not None:
        own = pc.and_(own, pc.equal(training_set["decision_time"], pa.scalar(cut, pa.timestamp("us", "UTC"))))
    return training_set.filter(own)


def with_other_outcomes(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    feature_tables: Mapping[str, Files],
    training_set: pa.Table,
    views: Mapping[str, Sequence[str]],
    cut: datetime,
) -> list[Difference]:
    """The features of rows decided at the cut that change with the outcomes that arrive at the cut.

    Args:
        connection: With the raw tables as they stood at the cut, those of the label among them; they are changed.
        repository: The feature definitions.
        feature_tables: The Parquet files of every view as it was computed.
        training_set: The retrieved training set.
        views: Features by view.
        cut: A moment of decisions.
    """
    stored = decided_with_outcome(training_set, cut)
    if not stored.num_rows or not views:
        return []
    _replace_outcomes(connection, repository, label_columns(connection, repository), cut)
    connection.execute("DROP SCHEMA staging CASCADE; CREATE SCHEMA staging")
    stage_tables(connection, repository, [repository.views[name].query for name in views])
    compute_again(connection, repository, feature_tables, views, cut)
    return joined_differences(connection, repository, stored, views, cut)


def own_outcomes(repository: Repository, differences: Iterable[Difference], hidden: Iterable[str]) -> dict[str, str]:
    """By view whose features hold the outcome of their own decision, why it is not checked."""
    found: dict[str, str] = {}
    shown = not [*hidden]
    for one in differences:
        told = one if shown else one.without_values(frozenset(hidden))
        keys = ", ".join(f"{name} {value}" for name, value in told.first.items())
        found.setdefault(
            one.view,
            _OWN.format(
                view=one.view,
                cut=one.cut,
                feature=one.feature,
                replayed=told.replayed if shown else "another value",
                stored=told.stored if shown else "the stored one",
                row=f" in the row of {keys}" if keys else "",
                column=repository.label.arrives.column,
                label=repository.label.name,
            ),
        )
    return found


def _replace_outcomes(
    connection: duckdb.DuckDBPyConnection, repository: Repository, columns: Iterable[tuple[str, str]], cut: datetime
) -> None:
    """Give rows that became what they are at the cut another value in columns of the label, as far from theirs."""
    for table, named in groupby(sorted(columns), key=lambda one: one[0]):
        if table not in repository.known:
            continue
        raw, names = f"raw.{quoted(table)}", [quoted(name) for _, name in named]
        set_time(connection, "as_of", cut - timedelta(microseconds=1))
        query = f"CREATE OR REPLACE TEMP TABLE __before AS\n{repository.known[table]}"
        run(connection, query, f"known/{table}.sql")
        set_time(connection, "as_of", cut)
        spread = ", ".join(f"quantile_disc({name}, [0, 0.5, 1]) AS {name}" for name in names)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE __spread AS SELECT {spread} FROM {raw}")
        others = ", ".join(f"{name} = {_other(name)}" for name in names)
        # By rowid, so that rows keep their order.
        connection.execute(
            f"UPDATE {raw} SET {others} WHERE rowid IN (SELECT r.rowid FROM {raw} AS r "
            "WHERE hash(r) NOT IN (SELECT hash(b) FROM __before AS b))"
        )
        connection.execute("DROP TABLE __before; DROP TABLE __spread")


def _other(name: str) -> str:
    """SQL of a value of the column that differs: the highest for one up to the middle, else the lowest."""
    lowest, middle, highest = (f"(SELECT {name}[{place}] FROM __spread)" for place in (1, 2, 3))
    other = f"CASE WHEN {name} IS NULL OR ({name} <= {middle} AND {name} < {highest}) THEN {highest} ELSE {lowest} END"
    return f"CASE WHEN {lowest} = {highest} AND {name} IS NOT NULL THEN NULL ELSE {other} END"
