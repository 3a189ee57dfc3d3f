"""Replays a training set at all its cuts, and tells which views this cannot check, whatever it compares."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gatehouse.components.features.database import open_tables
from gatehouse.components.features.definitions.repository import Repository
from gatehouse.components.features.leakage.own_outcome import decided_with_outcome, own_outcomes, with_other_outcomes
from gatehouse.components.features.leakage.pending_outcomes import Pending, columns_read, label_columns, told_early
from gatehouse.components.features.leakage.replay import Difference, plan, replay
from gatehouse.components.features.table_files import Files


@dataclass(frozen=True)
class Replayed:
    """What the replay found.

    Attributes:
        cuts: Each cut, with the number of rows of the training set and of each view that were compared.
        differences: Features that hold what was not known.
        unsure: By view whose outcomes the replay cannot take away, the reason.
    """

    cuts: list[dict[str, Any]]
    differences: list[Difference]
    unsure: dict[str, str]


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
    open_tables(connection, tables, "source")
    reading: dict[str, Sequence[str]] = {}
    if decided_with_outcome(training_set).num_rows:
        outcome = label_columns(connection, repository)
        reading = {name: names for name, names in views.items() if columns_read(connection, repository, name, outcome)}
    cuts, differences, pending = list[dict[str, Any]](), list[Difference](), Pending()
    own = list[Difference]()
    for cut, chosen in plan(repository, feature_tables, training_set, views, count).items():
        rows, compared, found, more = replay(connection, repository, tables, feature_tables, training_set, chosen, cut)
        cuts.append({"cut": cut.isoformat(), "rows": rows, "views": compared})
        differences += (one.without_values(hidden) for one in found) if hidden else found
        pending += more
        read = {name: names for name, names in chosen.items() if name in reading}
        own += with_other_outcomes(connection, repository, feature_tables, training_set, read, cut)
    early = told_early(connection, repository, views, pending, shown=not hidden)
    return Replayed(cuts, differences, own_outcomes(repository, own, hidden) | early)
