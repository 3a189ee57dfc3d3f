"""The decisions of a span: entity rows as the label view has them, whether or not their outcome is known."""

import duckdb
import pyarrow as pa

from gatehouse.components.features.computing.compute import SQL_TYPES, require_columns, stage_tables, table_of
from gatehouse.components.features.database import quoted
from gatehouse.components.features.definitions.repository import Repository


def decided_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> pa.Table:
    """Decisions from the variable `decided_since` on, before `decided_until`, and up to `as_of`, in their order.

    The first two need not be set.

    Columns are keys, decision_time, and the values that on-demand views take from a request.

    Raises:
        ConfigurationError: if the query of the entity rows does not run or lacks a column.
    """
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    stage_tables(connection, repository, [repository.entity_rows])
    types = {key: repository.entities[key] for key in label.entities} | repository.request_values()
    require_columns(connection, repository.entity_rows, where, [*types, label.decision_time])
    columns = [f"CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in types.items()]
    columns.insert(len(label.entities), "__decided AS decision_time")
    timed = f"SELECT *, {quoted(label.decision_time)}::TIMESTAMPTZ AS __decided FROM (\n{repository.entity_rows}\n)"
    return table_of(
        connection,
        f"SELECT {', '.join(columns)} FROM ({timed}) WHERE __decided <= getvariable('as_of')::TIMESTAMPTZ "
        "AND coalesce(__decided < getvariable('decided_until')::TIMESTAMPTZ, true) "
        "AND coalesce(__decided >= getvariable('decided_since')::TIMESTAMPTZ, true) "
        f"ORDER BY __decided, {', '.join(map(quoted, label.entities))}",
        where,
    )
