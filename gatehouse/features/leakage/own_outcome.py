"""Finds features that hold the outcome of their own decision where the outcome counts as known at once.

Where a label arrives at its decision, or before, no moment lies between the two, and a replay takes nothing away.
Instead the outcomes that arrive with the decisions at the cut are replaced by others, and the features of the rows
decided then computed again. Only columns that tell the label without the others are replaced: one that was known at
the decision may be a feature.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.features.computing.compute import go_back, run, stage_tables
from gatehouse.features.database import quoted, set_time
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.leakage.label_columns import RawColumns
from gatehouse.features.leakage.pending_outcomes import DOUBTED, SURE
from gatehouse.features.leakage.replay import Difference, compute_again, joined_differences
from gatehouse.features.leakage.told_labels import ARRIVED, ROW, ToldLabels
from gatehouse.features.table_files import Files

_CHANGED = "with another outcome at {cut}, {feature} is {replayed} instead of {stored}{row}. "
_OWN = (
    "{view}: not checked, as the label arrives at the decision itself and features are computed from it: "
    + _CHANGED
    + "State since when an outcome is known, by a later time in {column} of labels/{label}.sql and by "
    "known/<table>.sql (gatehouse init --known writes both); or compute the feature without the row's own outcome."
)
_MAYBE_OWN = (
    "{view}: {feature} may hold the outcome of its own row, as the label arrives at the decision or before: "
    + _CHANGED
    + "If {columns} was known at the decision, nothing is to be done. If not, state since when it is known, by a "
    "later time in {column} of labels/{label}.sql and by known/<table>.sql."
)
_EARLY = (
    "The label arrives before its decision in {rows:,} of {all:,} rows: {column} of labels/{label}.sql lies before "
    "{decision}. What is known before the decision needs no prediction. State there since when the outcome is known, "
    "or take an earlier decision."
)
_MOST_TIMES = 5


@dataclass(frozen=True)
class OwnOutcomes:
    """The rows whose label arrives at their decision, or before, and the columns that tell it.

    Attributes:
        rows: Rows of the training set, with the time `ARRIVED` of their label.
        sure: The columns that are taken for the outcome.
        doubted: Those that may be the outcome, or may be known at the decision.
        reading: By view, those of all these columns that it reads.
        early: Number of rows whose label arrives before.
    """

    rows: pa.Table
    sure: RawColumns
    doubted: RawColumns
    reading: Mapping[str, RawColumns]
    early: int


def find_own(
    labels: ToldLabels, repository: Repository, training_set: pa.Table, reading: Mapping[str, RawColumns]
) -> OwnOutcomes:
    """Find the rows whose label arrives at their decision, and the columns that tell it.

    Args:
        labels: The labels that raw tables tell.
        repository: The feature definitions.
        training_set: The retrieved training set.
        reading: By view, the columns of the label that it reads, of tables with a `known` query.
    """
    arrived = labels.arrivals
    arrived = arrived.filter(pc.less_equal(arrived[ARRIVED], arrived["decision_time"]))
    rows = training_set.take(arrived[ROW]).append_column(ARRIVED, arrived[ARRIVED])
    early = pc.sum(pc.less(arrived[ARRIVED], arrived["decision_time"])).as_py() or 0
    sure, doubted = set[tuple[str, str]](), set[tuple[str, str]]()
    for columns in reading.values() if rows.num_rows else ():
        alone = {column: labels.area_alone(frozenset([column])) for column in columns}
        sure |= {column for column, told in alone.items() if told >= SURE}
        some = {column for column, told in alone.items() if DOUBTED <= told < SURE}
        together = columns and not some and sure.isdisjoint(columns) and labels.area_alone(columns) >= SURE
        doubted |= columns if together else some
    found = frozenset(sure | doubted)
    read = {view: columns & found for view, columns in reading.items() if columns & found}
    return OwnOutcomes(rows, frozenset(sure), frozenset(doubted), read, early)


def with_other_outcomes(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    feature_tables: Mapping[str, Files],
    own: OwnOutcomes,
    views: Mapping[str, Sequence[str]],
    cut: datetime,
) -> tuple[list[Difference], list[Difference]]:
    """The features of rows decided at the cut that change with the outcomes that arrive with these decisions.

    Args:
        connection: With the raw tables as they stood at the cut; they are changed.
        repository: The feature definitions.
        feature_tables: The Parquet files of every view as it was computed.
        own: The rows whose label arrives at their decision.
        views: Features by view.
        cut: A moment of decisions.

    Returns:
        The features that hold their own outcome; and those that may: with columns that may be known at the decision, or
        with all outcomes from the time when the label arrives until the decision, among which those of other rows are.
    """
    stored = own.rows.filter(pc.equal(own.rows["decision_time"], pa.scalar(cut, pa.timestamp("us", "UTC"))))
    views = {name: features for name, features in views.items() if name in own.reading}
    if not stored.num_rows or not views:
        return [], []
    times = sorted(pc.unique(stored[ARRIVED]).to_pylist())

    def differences(columns: RawColumns, spans: Iterable[tuple[datetime, datetime]]) -> list[Difference]:
        read = {name: features for name, features in views.items() if own.reading[name] & columns}
        if not read:
            return []
        # Of a table that no view reads at this moment, nothing was restored.
        replaced = columns & frozenset().union(*(own.reading[name] for name in read))
        _replace_outcomes(connection, repository, replaced, spans, cut)
        connection.execute("DROP SCHEMA staging CASCADE; CREATE SCHEMA staging")
        stage_tables(connection, repository, [repository.views[name].query for name in read])
        compute_again(connection, repository, feature_tables, read, cut)
        return joined_differences(connection, repository, stored, read, cut)

    found = differences(own.sure, [(time, time) for time in times]) if len(times) <= _MOST_TIMES else []
    every = own.doubted | own.sure if times[0] < cut else own.doubted
    return found, differences(every, [(times[0], cut)])


def own_outcomes(
    repository: Repository,
    own: OwnOutcomes,
    differences: Iterable[Difference],
    maybe: Iterable[Difference],
    hidden: Iterable[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """By view whose features hold the outcome of their own decision, why it is not checked; and those that may."""
    hidden = frozenset(hidden)
    refused, doubted = dict[str, str](), dict[str, str]()
    for one in differences:
        refused.setdefault(one.view, _text(_OWN, repository, own, one, hidden))
    for one in maybe:
        if one.view not in refused:
            doubted.setdefault(one.view, _text(_MAYBE_OWN, repository, own, one, hidden))
    return refused, doubted


def arrives_early(repository: Repository, own: OwnOutcomes, rows: int) -> list[str]:
    """A warning if labels arrive before their decision."""
    if not own.early:
        return []
    label = repository.label
    words = {"column": label.arrives.column, "label": label.name, "decision": label.decision_time}
    return [_EARLY.format(rows=own.early, all=rows, **words)]


def _text(text: str, repository: Repository, own: OwnOutcomes, one: Difference, hidden: frozenset[str]) -> str:
    told = one.without_values(hidden) if hidden else one
    keys = ", ".join(f"{name} {value}" for name, value in told.first.items())
    return text.format(
        view=one.view,
        cut=one.cut,
        feature=one.feature,
        replayed="another value" if hidden else told.replayed,
        stored="the stored one" if hidden else told.stored,
        row=f" in the row of {keys}" if keys else "",
        columns=", ".join(f"{table}.{name}" for table, name in sorted(own.reading[one.view])),
        column=repository.label.arrives.column,
        label=repository.label.name,
    )


def _replace_outcomes(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    columns: RawColumns,
    spans: Iterable[tuple[datetime, datetime]],
    cut: datetime,
) -> None:
    """Give rows that became what they are in one of the time spans, ends included, another value in some columns."""
    for table, named in groupby(sorted(columns), key=lambda one: one[0]):
        raw, names = f"raw.{quoted(table)}", [quoted(name) for _, name in named]
        # Outcomes may have been replaced before.
        connection.execute(f"DROP TABLE {raw}")
        go_back(connection, repository, table)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE __became AS SELECT rowid AS place FROM {raw} LIMIT 0")
        for first, last in spans:
            _restore(connection, repository, table, first - timedelta(microseconds=1), "__before")
            _restore(connection, repository, table, last, "__after")
            connection.execute(
                f"INSERT INTO __became SELECT r.rowid FROM {raw} AS r WHERE hash(r) IN (SELECT hash(a) FROM "
                "__after AS a) AND hash(r) NOT IN (SELECT hash(b) FROM __before AS b)"
            )
        set_time(connection, "as_of", cut)
        spread = ", ".join(f"quantile_disc({name}, [0, 0.5, 1]) AS {name}" for name in names)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE __spread AS SELECT {spread} FROM {raw}")
        others = ", ".join(f"{name} = {_other(name)}" for name in names)
        # By rowid, so that rows keep their order.
        connection.execute(f"UPDATE {raw} SET {others} WHERE rowid IN (FROM __became)")
        connection.execute("DROP TABLE __before; DROP TABLE __after; DROP TABLE __became; DROP TABLE __spread")


def _restore(
    connection: duckdb.DuckDBPyConnection, repository: Repository, table: str, moment: datetime, name: str
) -> None:
    set_time(connection, "as_of", moment)
    query = f"CREATE OR REPLACE TEMP TABLE {name} AS\n{repository.known[table]}"
    run(connection, query, f"known/{table}.sql")


def _other(name: str) -> str:
    """SQL of a value of the column that differs: the highest for one up to the middle, else the lowest."""
    lowest, middle, highest = (f"(SELECT {name}[{place}] FROM __spread)" for place in (1, 2, 3))
    other = f"CASE WHEN {name} IS NULL OR ({name} <= {middle} AND {name} < {highest}) THEN {highest} ELSE {lowest} END"
    return f"CASE WHEN {lowest} = {highest} AND {name} IS NOT NULL THEN NULL ELSE {other} END"
