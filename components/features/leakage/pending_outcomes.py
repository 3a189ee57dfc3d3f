"""Holds `known/` against the labels: a raw table as it stood at a moment must not hold outcomes that came later.

The replay can only find what the `known` queries take away. So at each cut the label's query runs on the restored
tables too. A query that leaves outcomes in gives the labels of the training set before they arrived.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.features.computing.labels import outcomes_in
from gatehouse.components.features.database import quoted, time_literal
from gatehouse.components.features.definitions.repository import Repository, tables_of
from gatehouse.components.features.lineage.columns import lineage_of, lineage_of_label
from gatehouse.components.features.lineage.graph import RAW, VALUE
from gatehouse.errors import ConfigurationError

_EARLY = (
    "{view}: not checked, as features/known/{table}.sql leaves outcomes in that are not known yet: at {cut} {column}, "
    "which tells the label, was filled {row}, though that label is known from {arrives}. Write there that it is null "
    "until it is known: SELECT * REPLACE (CASE WHEN <time of the outcome> <= getvariable('as_of') THEN {name} END AS "
    "{name}) FROM source.{source}."
)


@dataclass(frozen=True)
class Pending:
    """What restored tables say of decisions whose labels were not known yet.

    Attributes:
        told: Number of decisions of which they give a label.
        other: Number of those whose label was another in the end: what stands in for an outcome, as a 0 for "not yet".
        labels: The labels given.
        first: The first of the decisions: its keys and times, and the cut.
    """

    told: int = 0
    other: int = 0
    labels: frozenset[float] = frozenset()
    first: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, more: "Pending") -> "Pending":
        """Both together."""
        return Pending(
            self.told + more.told, self.other + more.other, self.labels | more.labels, self.first or more.first
        )

    @property
    def is_known(self) -> bool:
        """Whether the outcomes themselves were told: each label is the true one, and labels differ."""
        return len(self.labels) > 1 and not self.other


def pending_outcomes(
    connection: duckdb.DuckDBPyConnection, repository: Repository, training_set: pa.Table, cut: datetime
) -> Pending:
    """Compare the labels that the restored raw tables give with those that arrived after the cut.

    Args:
        connection: With raw and staging tables as they stood at the cut, those of the label among them.
        repository: The feature definitions.
        training_set: The retrieved training set: entity keys, decision_time, label and label_time.
        cut: The moment to which the raw tables were restored.
    """
    moment = pa.scalar(cut, pa.timestamp("us", "UTC"))
    keys = [*repository.entity_keys, "decision_time"]
    later = training_set.filter(pc.greater(training_set["label_time"], moment)).select([*keys, "label", "label_time"])
    if not later.num_rows:
        return Pending()
    connection.register("__later", later)
    connection.register("__told", outcomes_in(connection, repository))
    match = " AND ".join(f"l.{quoted(name)} IS NOT DISTINCT FROM t.{quoted(name)}" for name in keys)
    order = ", ".join(f"l.{quoted(name)}" for name in reversed(keys))
    # With a horizon, a label arrives before it counts.
    found = connection.sql(
        f"SELECT l.*, t.label AS told FROM __later AS l JOIN __told AS t ON {match} WHERE t.label IS NOT NULL "
        f"AND coalesce(t.arrived > {time_literal(cut)}, true) ORDER BY {order}"
    ).to_arrow_table()
    connection.unregister("__later")
    connection.unregister("__told")
    if not found.num_rows:
        return Pending()
    row = {name: str(value) for name, value in found.select([*keys, "label_time"]).slice(0, 1).to_pylist()[0].items()}
    other = pc.sum(pc.not_equal(pc.cast(found["label"], pa.float64()), found["told"])).as_py() or 0
    labels = frozenset(pc.unique(found["told"]).to_pylist())
    return Pending(found.num_rows, other, labels, {**row, "cut": cut.isoformat()})


def told_early(
    connection: duckdb.DuckDBPyConnection,
    repository: Repository,
    views: Iterable[str],
    pending: Pending,
    shown: bool = True,
) -> dict[str, str]:
    """By view that reads a column of the label whose `known` query leaves outcomes in, why it is not checked.

    Args:
        connection: With the raw tables in the schema `source`.
        repository: The feature definitions.
        views: The views of the training set.
        pending: What the restored tables said at all cuts.
        shown: Whether keys of a row may be shown.
    """
    if not pending.is_known:
        return {}
    columns = label_columns(connection, repository)
    # Of a table without a history no view is checked, and the label may have come from there.
    if any(table not in repository.known for table, _ in columns):
        return {}
    first = dict(pending.first)
    cut, arrives = first.pop("cut"), first.pop("label_time")
    row = "in the row of " + ", ".join(f"{name} {value}" for name, value in first.items()) if shown else "in some rows"
    found: dict[str, str] = {}
    for view in views:
        for table, name in sorted(columns & columns_read(connection, repository, view, columns)):
            spelled = {"name": quoted(name), "source": quoted(table)}
            told = {"view": view, "table": table, "column": f"{table}.{name}", "row": row}
            found.setdefault(view, _EARLY.format(**told, **spelled, cut=cut, arrives=arrives))
    return found


def label_columns(connection: duckdb.DuckDBPyConnection, repository: Repository) -> set[tuple[str, str]]:
    """Raw tables with their columns from which the label is computed: all of its tables if SQL cannot be followed."""
    columns = _source_columns(connection, repository, repository.entity_rows)
    try:
        sources = lineage_of_label(repository, columns).sources()
    except ConfigurationError:
        return {(table, name) for table, names in columns.items() for name in names}
    valued = [column for column, by in sources if by == VALUE] or [column for column, _ in sources]
    return {(column.table.removeprefix(f"{RAW}."), column.name) for column in valued}


def columns_read(
    connection: duckdb.DuckDBPyConnection, repository: Repository, view: str, among: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Those of some columns of raw tables on which a view's features depend."""
    query = repository.views[view].query
    columns = _source_columns(connection, repository, query)
    among = {(table, name) for table, name in among if table in columns}
    if not among:
        return set()
    features = repository.views[view].spec.features
    try:
        sources = lineage_of(repository, repository.views[view], features, columns).sources()
    except ConfigurationError:
        return among
    return among & {(column.table.removeprefix(f"{RAW}."), column.name) for column, _ in sources}


def _source_columns(connection: duckdb.DuckDBPyConnection, repository: Repository, query: str) -> dict[str, list[str]]:
    return {
        table: [str(row[0]) for row in connection.sql(f"DESCRIBE source.{quoted(table)}").fetchall()]
        for table in tables_of(repository, [query])
    }
