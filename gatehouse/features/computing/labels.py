"""The entity rows of a repository: one for each decision whose label is known at `as_of`."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import (
    SQL_TYPES,
    interval,
    known_time,
    require_columns,
    run,
    stage_tables,
    table_of,
)
from gatehouse.features.definitions.declarations import LabelView
from gatehouse.features.definitions.repository import Repository
from gatehouse.metrics.tasks import TASKS, Output
from gatehouse.store.database import quoted, text_literal
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.repeatable_sql import repeatable

NO_LABEL = "no label"
UNLABELLED = (UNKNOWN, YOUNG) = ("label not known yet", "label younger than its horizon")
"""Reasons to set a decision aside that will have a label later."""
_TYPES: dict[Output, pa.DataType] = {"probability": pa.int8(), "probabilities": pa.int32()}
"""Arrow types of labels, by what is predicted; others have doubles."""


def entity_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """The entity rows that have a mature label, in the order of decisions, and the number set aside by reason.

    The columns are keys, times, label, the columns that the label view keeps, and the request values of on-demand
    views. A label counts once it has arrived and its horizon is over; its `label_time` is the later of these times.

    Raises ConfigurationError if the label's query does not run or lacks a column, or a label does not fit the task.
    """
    stage_tables(connection, repository, [repository.entity_rows])
    return labelled_rows(connection, repository)


def labelled_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """As `entity_rows`, but the staging tables exist already; of decisions between the variables `from` and `until`.

    Also raises ConfigurationError if the label has a window, and a row no time of decision: it would be in no span.
    """
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    named = [*label.entities, label.decision_time, label.arrives.column, label.label, label.set_aside, *label.keeps]
    require_columns(connection, repository.entity_rows, where, filter(None, named))
    types = {key: SQL_TYPES[repository.entities[key]] for key in label.entities}
    keys = ", ".join(f"CAST({quoted(key)} AS {kind}) AS {quoted(key)}" for key, kind in types.items())
    reason = quoted(label.set_aside)
    own = f"WHEN {reason} IS NOT NULL THEN {reason}" if label.set_aside else ""
    as_of = "getvariable('as_of')::TIMESTAMPTZ"
    query = repeatable(connection, repository.entity_rows, where, repository.macros)
    timed = (
        f"SELECT *, {quoted(label.decision_time)}::TIMESTAMPTZ AS __decided, "
        f"({known_time(label.arrives)})::TIMESTAMPTZ AS __arrived, "
        f"__decided + {interval(label.horizon)} AS __mature FROM (\n{query}\n) "
        "WHERE coalesce(__decided >= getvariable('from')::TIMESTAMPTZ, true) "
        "AND coalesce(__decided <= getvariable('until')::TIMESTAMPTZ, true)"
    )
    values = repository.request_values()
    kept_too = "".join(f", {quoted(name)}" for name in label.keeps)
    request = "".join(f", CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in values.items())
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE entity_rows AS SELECT *, CASE {own} "
        "WHEN __decided IS NULL THEN 'no decision time' "
        f"WHEN __arrived IS NULL OR __arrived > {as_of} THEN {text_literal(UNKNOWN)} "
        f"WHEN __mature > {as_of} THEN {text_literal(YOUNG)} "
        f"WHEN {quoted(label.label)} IS NULL THEN {text_literal(NO_LABEL)} END AS __reason FROM ({timed})",
        where,
    )
    undecided = "FROM entity_rows WHERE __decided IS NULL LIMIT 1"
    if label.window is not None and connection.execute(undecided).fetchall():
        raise ConfigurationError(
            f"{where}: expected a {label.decision_time} in every row, as a label with a window is computed in spans of "
            "it; found a row without. Leave such rows out in the query, or the window out of the LabelView."
        )
    # Two decisions may agree in time and keys; rows that agree in all columns may change places.
    order = ", ".join(map(quoted, [*label.entities, "label", "label_time", *label.keeps, *values]))
    kept = table_of(
        connection,
        f"SELECT {keys}, __decided AS decision_time, {_number(label)} AS label, "
        f"greatest(__arrived, __mature) AS label_time{kept_too}{request} FROM entity_rows "
        f"WHERE __reason IS NULL ORDER BY __decided, {order}",
        where,
    )
    kept = _with_exact_labels(connection, kept, label, where)
    counts = connection.execute(
        "SELECT __reason, count(*) FROM entity_rows WHERE __reason IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return kept, dict(counts)


def _number(label: LabelView) -> str:
    """SQL of a label as a number: the position of a named class, else the value itself; null where there is none."""
    if not label.classes:
        return f"TRY_CAST({quoted(label.label)} AS DOUBLE)"
    classes = ", ".join(map(text_literal, label.classes))
    return f"CAST(list_position([{classes}], {quoted(label.label)}::VARCHAR) - 1 AS DOUBLE)"


def _with_exact_labels(connection: duckdb.DuckDBPyConnection, rows: pa.Table, label: LabelView, where: str) -> pa.Table:
    """The rows with labels of the task's type. Labels are never rounded: 0.4 is a share and no class."""
    task, values = TASKS[label.task], rows["label"].to_numpy()
    wrong = np.flatnonzero(~task.is_label(values))
    if len(wrong):
        expected = f"one of {', '.join(label.classes)}" if label.classes else task.label
        groups = connection.execute(
            f"SELECT {quoted(label.label)}::VARCHAR, {_number(label)} FROM entity_rows WHERE __reason IS NULL "
            "GROUP BY ALL ORDER BY count(*) DESC, 1"
        ).fetchall()
        numbers = np.array([np.nan if number is None else number for _, number in groups])
        texts = [str(groups[place][0]) for place in np.flatnonzero(~task.is_label(numbers))[:3]]
        raise ConfigurationError(
            f"{where}: column {label.label}: expected {expected} in every row, as the task is {task.name}; found "
            f"{len(wrong):,} of {rows.num_rows:,} rows with other values, "
            f"{unless_hidden('such as ' + ', '.join(texts))}. Convert them in the query, where a null sets a row "
            "aside, or state another task in the LabelView."
        )
    kind = _TYPES.get(task.output, pa.float64())
    labels = pa.chunked_array([pc.cast(pa.array(values), kind)]) if len(rows) else pa.array([], kind)
    return rows.set_column(rows.column_names.index("label"), "label", labels)
