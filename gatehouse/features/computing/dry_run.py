"""Runs every query of the repository on empty tables, or on a few rows, to find errors before a run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import SQL_TYPES, compute_view, go_back, run_macros, stage_table
from gatehouse.features.computing.labels import NO_LABEL, labelled_rows
from gatehouse.features.computing.on_demand import on_demand_features
from gatehouse.features.database import connect, quoted, set_time
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, LabelView
from gatehouse.features.definitions.query_problems import query_problems
from gatehouse.features.definitions.repository import OnDemand, Repository, View
from gatehouse.features.definitions.sql_text import names_read
from gatehouse.metrics.arithmetic.finite import told_not_finite
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.runtime.counting import counted
from gatehouse.store.hidden_values import unless_hidden

_RAW_TYPES = {"int64": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN", "timestamp": "TIMESTAMPTZ"}
_ARROW_TYPES = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string()}
_MANY = 0.1
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_TIMES = ("TIMESTAMP", "DATE")
_NUMBERS = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True)
class Labelled:
    """The rows that a label's query gives.

    Attributes:
        file: The query's file in the repository.
        rows: Those with a label, as `labelled_rows` gives them.
        set_aside: How many have none, by reason.
    """

    file: str
    rows: pa.Table
    set_aside: Mapping[str, int]


@dataclass(frozen=True)
class _Attempt:
    """One step of a run that uses a query.

    Attributes:
        file: The query's file in the repository.
        query: The query.
        do: Runs the step.
        makes: The staging table that the step creates; empty for none.
        view: The feature view that the step computes; empty for none.
        declared: Names of the view's columns that definitions.py states, in lower case.
        times: Columns of the query that must be times.
        label: The label whose column the query must have; None for none.
    """

    file: str
    query: str
    do: Callable[[], object]
    makes: str = ""
    view: str = ""
    declared: frozenset[str] = frozenset()
    times: tuple[str, ...] = ()
    label: LabelView | None = None


def dry_run(
    repository: Repository,
    tables: Mapping[str, Mapping[str, str]],
    rows: Mapping[str, pa.Table] | None = None,
    warnings: list[str] | None = None,
    as_of: datetime | None = None,
    labelled: list[Labelled] | None = None,
    computed: dict[str, pa.Table] | None = None,
) -> list[str]:
    """List the problems of a repository's queries, in the order in which the queries run.

    A query that reads a failed staging table is not run, and no problem is reported for it. If the macros fail, no
    query is run.

    Args:
        repository: The feature definitions.
        tables: The declared type of every column (`int64`, `double`, `string`, `bool`, `timestamp`), by raw table.
        rows: Rows to run on, by raw table; by default there are none.
        warnings: Receives findings that are allowed but rarely meant: NaN or infinite features, labels all equal,
            columns of a view that are no feature.
        as_of: When the rows are known; now by default.
        labelled: Receives the rows that have a label, so that the caller judges them.
        computed: Receives the feature tables by view, so that the caller judges them too.
    """
    problems: list[str] = []
    broken: set[str] = set()
    with connect() as connection:
        set_time(connection, "as_of", as_of or datetime.now(UTC))
        set_time(connection, "since", _BEGINNING)
        for bound in ("from", "until"):
            set_time(connection, bound, None)  # As in a run that computes all rows.
        for name, columns in tables.items():
            _create(connection, name, columns, (rows or {}).get(name))
        try:
            run_macros(connection, repository)
        except ConfigurationError as error:
            return [str(error)]  # Any query may read a macro.
        for attempt in _attempts(repository, connection):
            found = list(query_problems(attempt.file, attempt.query))
            if not found and broken.isdisjoint(names_read("staging", attempt.query, repository.staging)):
                found = list(_failures(connection, attempt, [] if warnings is None else warnings, labelled, computed))
            elif not found:
                broken.add(attempt.makes)
            if found:
                problems += found
                broken.add(attempt.makes)
    return problems


def declare_table(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str]) -> None:
    """Create an empty table as SQL names it, with columns of the types that a source declares."""
    declared = ", ".join(f"{quoted(column)} {_RAW_TYPES[kind]}" for column, kind in columns.items())
    connection.execute(f"CREATE TABLE {table} ({declared})")


def _create(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: pa.Table | None
) -> None:
    for schema in ("raw", "source"):
        declare_table(connection, f"{schema}.{quoted(name)}", columns)
        if rows is not None:
            connection.register("given", rows.select(list(columns)))
            connection.execute(f"INSERT INTO {schema}.{quoted(name)} SELECT * FROM given")
            connection.unregister("given")


def _failures(
    connection: duckdb.DuckDBPyConnection,
    attempt: _Attempt,
    warnings: list[str],
    labelled: list[Labelled] | None,
    computed: dict[str, pa.Table] | None,
) -> Iterator[str]:
    try:
        made = attempt.do()
    except ConfigurationError as error:
        yield str(error)
        return
    if isinstance(made, pa.Table):
        warnings += _not_finite(attempt.file, made)
        if computed is not None and attempt.view:
            computed[attempt.view] = made
    elif isinstance(made, tuple):
        if labelled is not None:
            labelled.append(Labelled(attempt.file, *made))
        else:
            warnings += teaches_nothing(Labelled(attempt.file, *made))
    if not (attempt.view or attempt.label):
        return
    relation = connection.sql(f"SELECT * FROM (\n{attempt.query}\n) LIMIT 0")
    if attempt.view and (unused := [name for name in relation.columns if name.lower() not in attempt.declared]):
        warnings.append(
            f"{attempt.file}: {', '.join(unused)}: computed, and no feature, as definitions.py does not name it under "
            f"the features of {attempt.view}; add it there, or take it out of the query"
        )
    types = {name.lower(): str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
    yield from _mistyped(attempt.file, types, attempt.times, _TIMES, "a time (TIMESTAMP or DATE)")
    if attempt.label and not attempt.label.classes:
        task = attempt.label.task
        yield from _mistyped(attempt.file, types, [attempt.label.label], _NUMBERS, f"{TASKS[task].label} ({task})")


def _not_finite(file: str, rows: pa.Table) -> Iterator[str]:
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_floating(column.type):
            values = column.to_numpy()
            wrong = np.flatnonzero(~np.isfinite(values) & ~column.is_null().to_numpy())
            if len(wrong):
                first, count = int(wrong[0]), f"the first {counted(len(values), 'row')}"
                key = rows.column_names[0]
                yield f"{file}: {told_not_finite(name, wrong, count, key, rows.column(0)[first], values[first])}"


def teaches_nothing(found: Labelled) -> Iterator[str]:
    """A sentence where rows have no label, or all the same one."""
    labels = pc.unique(found.rows["label"]).to_pylist()
    if len(labels) == 1:
        same = f"the same label in the first {counted(found.rows.num_rows, 'row')}, {unless_hidden(f'{labels[0]}')}"
        yield f"{found.file}: {same}, which teaches nothing; bring rows of other labels"
    elif found.set_aside and not labels:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in found.set_aside.items())
        yield f"{found.file}: none of the first rows has a label yet ({reasons})"


def often_without_label(found: Labelled) -> Iterator[str]:
    """A sentence where the label of many rows is null although it is known."""
    nulls, rows = found.set_aside.get(NO_LABEL, 0), found.rows.num_rows + sum(found.set_aside.values())
    if nulls > _MANY * rows:
        yield (
            f"{found.file}: the label of {nulls:,} of {counted(rows, 'row')} is null: neither trained on nor "
            "tested; if a null stands for an outcome, write that in the query"
        )


def _mistyped(
    file: str, types: Mapping[str, str], columns: Iterable[str], wanted: tuple[str, ...], words: str
) -> Iterator[str]:
    for column in dict.fromkeys(columns):
        found = types[column.lower()]
        if not found.startswith(wanted):
            yield (
                f"{file}: {column}: expected {words}, found {found}. Convert it in the query, or declare another type "
                "in the source."
            )


def _attempts(repository: Repository, connection: duckdb.DuckDBPyConnection) -> Iterator[_Attempt]:
    """Every step of a run that uses SQL."""
    for name, query in repository.staging.items():
        yield _Attempt(f"staging/{name}.sql", query, partial(stage_table, connection, repository, name), makes=name)
    for view in repository.views.values():
        do = partial(compute_view, connection, repository, view)
        file, names = f"views/{view.name}.sql", frozenset(name.lower() for name in (*view.columns, *_times_of(view)))
        yield _Attempt(file, view.query, do, view=view.name, declared=names, times=_times_of(view))
    label = repository.label
    yield _Attempt(
        f"labels/{label.name}.sql",
        repository.entity_rows,
        partial(labelled_rows, connection, repository),
        times=(label.decision_time, label.arrives.column),
        label=label,
    )
    for one in repository.on_demand.values():
        yield _Attempt(f"on_demand/{one.name}.sql", one.query, partial(on_demand_features, one, _no_rows(one)))
    for name, query in repository.known.items():
        connection.execute(f"DROP TABLE IF EXISTS raw.{quoted(name)}")
        yield _Attempt(f"known/{name}.sql", query, partial(go_back, connection, repository, name))


def _times_of(view: View) -> tuple[str, ...]:
    available = [view.spec.available.column] if view.spec.available else []
    return () if view.spec.static else (EVENT_TIMESTAMP, *available)


def _no_rows(view: OnDemand) -> pa.Table:
    return pa.schema({name: _ARROW_TYPES[SQL_TYPES[kind]] for name, kind in view.inputs.items()}).empty_table()
