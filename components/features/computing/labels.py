"""The entity rows of a repository: one for each decision, with the label that is known by now."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.features.computing.compute import (
    SQL_TYPES,
    interval,
    known_time,
    require_columns,
    run,
    stage_tables,
    table_of,
)
from gatehouse.components.features.database import quoted
from gatehouse.components.features.definitions.repository import Repository
from gatehouse.components.tasks.binary import BINARY
from gatehouse.errors import ConfigurationError


def entity_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """The entity rows that have a mature label, in the order of decisions, and how many were set aside by reason.

    Beside keys, times and label they have the values that on-demand views take from a request.

    A label counts from its arrival on, and not before its horizon is over: the later of both is its `label_time`.

    Raises:
        ConfigurationError: if the label's query does not run or lacks a column, or a label is not 0 or 1.
    """
    stage_tables(connection, repository, [repository.entity_rows])
    return labelled_rows(connection, repository)


def labelled_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """As `entity_rows`, from staging tables that are there already."""
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    named = [*label.entities, label.decision_time, label.arrives.column, label.label, label.set_aside]
    require_columns(connection, repository.entity_rows, where, filter(None, named))
    keys = ", ".join(
        f"CAST({quoted(key)} AS {SQL_TYPES[repository.entities[key]]}) AS {quoted(key)}" for key in label.entities
    )
    order = ", ".join(map(quoted, label.entities))
    reason = quoted(label.set_aside)
    own = f"WHEN {reason} IS NOT NULL THEN {reason}" if label.set_aside else ""
    as_of = "getvariable('as_of')::TIMESTAMPTZ"
    timed = (
        f"SELECT *, {quoted(label.decision_time)}::TIMESTAMPTZ AS __decided, "
        f"({known_time(label.arrives)})::TIMESTAMPTZ AS __arrived, "
        f"__decided + {interval(label.horizon)} AS __mature FROM (\n{repository.entity_rows}\n)"
    )
    values = repository.request_values()
    request = "".join(f", CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in values.items())
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE entity_rows AS SELECT *, CASE {own} "
        "WHEN __decided IS NULL THEN 'no decision time' "
        f"WHEN __arrived IS NULL OR __arrived > {as_of} THEN 'label not known yet' "
        f"WHEN __mature > {as_of} THEN 'label younger than its horizon' "
        f"WHEN {quoted(label.label)} IS NULL THEN 'no label' END AS __reason FROM ({timed})",
        where,
    )
    kept = table_of(
        connection,
        f"SELECT {keys}, __decided AS decision_time, TRY_CAST({quoted(label.label)} AS DOUBLE) AS label, "
        f"greatest(__arrived, __mature) AS label_time{request} FROM entity_rows "
        f"WHERE __reason IS NULL ORDER BY __decided, {order}",
        where,
    )
    kept = _with_exact_labels(connection, kept, label.label, where)
    counts = connection.execute(
        "SELECT __reason, count(*) FROM entity_rows WHERE __reason IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return kept, dict(counts)


def _with_exact_labels(connection: duckdb.DuckDBPyConnection, rows: pa.Table, column: str, where: str) -> pa.Table:
    """The rows with their labels as int8. A label is never rounded into one: 0.4 is a share, and no class."""
    values = rows["label"].to_numpy()
    wrong = int((~BINARY.is_label(values)).sum())
    if wrong:
        found = connection.execute(
            f"SELECT {quoted(column)}::VARCHAR, typeof({quoted(column)}) FROM entity_rows WHERE __reason IS NULL AND "
            f"coalesce(TRY_CAST({quoted(column)} AS DOUBLE) NOT IN (0, 1), true) "
            "GROUP BY ALL ORDER BY count(*) DESC, 1 LIMIT 3"
        ).fetchall()
        shown = ", ".join(text for text, _ in found)
        raise ConfigurationError(
            f"{where}: column {column}: expected {BINARY.label} in every row, as the task is {BINARY.name}; found "
            f"{wrong:,} of {rows.num_rows:,} rows with other values ({found[0][1]}), such as {shown}. Write the "
            f"condition that makes a row positive, for instance `{column} > 0.5 AS {column}`."
        )
    labels = pa.chunked_array([pc.cast(pa.array(values), pa.int8())]) if len(rows) else pa.array([], pa.int8())
    return rows.set_column(rows.column_names.index("label"), "label", labels)
