"""The entity rows of a repository: one for each decision, with the label that is known by now."""

import duckdb
import pyarrow as pa

from gatehouse.components.features.computing.compute import SQL_TYPES, interval, known_time, run, stage_tables, table_of
from gatehouse.components.features.database import quoted
from gatehouse.components.features.definitions.repository import Repository


def entity_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """The entity rows that have a mature label, in the order of decisions, and how many were set aside by reason.

    Beside keys, times and label they have the values that on-demand views take from a request.

    A label counts from its arrival on, and not before its horizon is over: the later of both is its `label_time`.

    Raises:
        ConfigurationError: if the label's query does not run or lacks a column.
    """
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    stage_tables(connection, repository, [repository.entity_rows])
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
        f"SELECT {keys}, __decided AS decision_time, CAST({quoted(label.label)} AS TINYINT) AS label, "
        f"greatest(__arrived, __mature) AS label_time{request} FROM entity_rows "
        f"WHERE __reason IS NULL ORDER BY __decided, {order}",
        where,
    )
    counts = connection.execute(
        "SELECT __reason, count(*) FROM entity_rows WHERE __reason IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return kept, dict(counts)
