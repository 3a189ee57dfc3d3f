"""Replays a training set at all its cuts, and tells which views this cannot check, whatever it compares."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.features.database import open_tables, quoted
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.leakage.label_columns import RawColumns, columns_of, columns_read
from gatehouse.features.leakage.own_outcome import (
    OwnOutcomes,
    arrives_early,
    find_own,
    own_outcomes,
    with_other_outcomes,
)
from gatehouse.features.leakage.pending_outcomes import told_early
from gatehouse.features.leakage.replay import Difference, cut_times, plan, replay
from gatehouse.features.leakage.told_labels import ToldLabels
from gatehouse.features.table_files import Files

_TIME = pa.timestamp("us", "UTC")
_UNTOUCHED = (
    "{view}: not checked, as features/known/{table}.sql takes no row and no value away, not even at the time of the "
    "first decision, so that the replay sees all that came later. Write there which rows and values were known then: "
    "SELECT * FROM source.{source} WHERE <time of the row> BETWEEN getvariable('since') AND getvariable('as_of')."
)


@dataclass(frozen=True)
class Replayed:
    """What the replay found.

    Attributes:
        cuts: Each cut, with the number of rows of the training set and of each view that were compared.
        differences: Features that hold what was not known.
        unsure: By view whose outcomes the replay cannot take away, the reason.
        doubts: By view, what a person has to judge, as it may be known at the decision.
        warnings: What holds for the label and no view.
    """

    cuts: list[dict[str, Any]]
    differences: list[Difference]
    unsure: dict[str, str]
    doubts: dict[str, str]
    warnings: list[str]


def replay_all(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    tables: Mapping[str, Sequence[Path]],
    feature_tables: Mapping[str, Files],
    training_set: pa.Table,
    views: Mapping[str, Sequence[str]],
    count: int,
    hidden: Collection[str] = (),
) -> Replayed:
    """Replay every cut that `plan` chooses.

    Args:
        connection: A database of `features.database`.
        repository: The feature definitions.
        tables: Raw Parquet files by table.
        feature_tables: The Parquet files of every view as it was computed.
        training_set: The retrieved training set.
        views: Features by view.
        count: At how many moments of its own rows each view is replayed.
        hidden: Sensitive columns; where there are any, no value is told.
    """
    if not training_set.num_rows:
        return Replayed([], [], {}, {}, [])
    open_tables(connection, tables, "source")
    labels = ToldLabels(connection, repository, training_set)
    reading = {name: _of_label(connection, repository, name, labels.columns) for name in views}
    early, doubted = told_early(labels, repository, reading, shown=not hidden)
    early = _of_untouched(connection, repository, labels.untouched(), views) | early
    own = find_own(labels, repository, training_set, reading)
    cuts, differences = list[dict[str, Any]](), list[Difference]()
    holding, maybe = list[Difference](), list[Difference]()
    planned = plan(repository, feature_tables, training_set, views, count)
    for cut, chosen in _with_decisions(planned, own, views, count).items():
        rows, compared, found = replay(connection, repository, tables, feature_tables, training_set, chosen, cut)
        cuts.append({"cut": cut.isoformat(), "rows": rows, "views": compared})
        differences += (one.without_values(hidden) for one in found) if hidden else found
        own_found, own_maybe = with_other_outcomes(connection, repository, feature_tables, own, chosen, cut)
        holding += own_found
        maybe += own_maybe
    refused, own_doubted = own_outcomes(repository, own, holding, maybe, hidden)
    refused |= early
    doubts = {view: text for view, text in {**doubted, **own_doubted}.items() if view not in refused}
    return Replayed(cuts, differences, refused, doubts, arrives_early(repository, own, training_set.num_rows))


def _of_untouched(
    connection: duckdb.DuckDBPyConnection, repository: Repository, tables: Sequence[str], views: Collection[str]
) -> dict[str, str]:
    """By view that reads a table of the label from which nothing is taken away, why it is not checked."""
    found = {}
    for view in views:
        read = columns_of(connection, repository, repository.views[view].query)
        if named := [table for table in tables if table in read]:
            found[view] = _UNTOUCHED.format(view=view, table=named[0], source=quoted(named[0]))
    return found


def _with_decisions(
    planned: Mapping[datetime, dict[str, Sequence[str]]],
    own: OwnOutcomes,
    views: Mapping[str, Sequence[str]],
    count: int,
) -> dict[datetime, dict[str, Sequence[str]]]:
    """The planned moments, and moments of decisions whose label arrives with them for the views that may hold it."""
    if not own.reading:
        return dict(planned)
    met = pc.sum(pc.is_in(pa.array(planned, _TIME), value_set=own.rows["decision_time"].combine_chunks())).as_py() or 0
    more = cut_times(own.rows["decision_time"], count) if met < count else []
    reading = {name: views[name] for name in own.reading}
    return {cut: {**planned.get(cut, {}), **(reading if cut in more else {})} for cut in sorted({*planned, *more})}


def _of_label(
    connection: duckdb.DuckDBPyConnection, repository: Repository, view: str, columns: RawColumns
) -> RawColumns:
    """The columns of the label that a view reads, of tables that can be taken back."""
    known = frozenset((table, name) for table, name in columns if table in repository.known)
    return columns_read(connection, repository, view, known)
