"""Turns Arrow data from any source into the declared columns, and collects the rows that do not fit."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from gatehouse.data.snapshot.spec import EPOCHS, ColumnType, TableSpec
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.casts import TYPES, Read, read_as
from gatehouse.errors import DeclarationError

Place = Callable[[pa.Table, int, int], str]

SCHEMA = pa.schema([(name, pa.string()) for name in ("place", "column", "reason", "observed", "raw")])
"""Columns of the rejected rows."""
REPEATED = ["column", "reason"]
"""Columns of the rejected rows in which many rows have the same value."""
HIDDEN = "***"
NOT_SHOWN = "a value that is not shown"


class Reject(NamedTuple):
    """A row that does not fit, with its place such as `events.csv, line 202`.

    The column is empty if the row itself does not fit; `raw` is the row as the source gave it, hidden next to sensitive
    columns.
    """

    place: str
    column: str
    reason: str
    observed: str
    raw: str = ""

    def __str__(self) -> str:
        """All but the row, as a message."""
        column = f"column {self.column}: " if self.column else ""
        return f"{self.place}, {column}{self.reason}{self.observed and f', found {self.observed}'}"


def rejected_table(rejects: Iterable[Reject]) -> pa.Table | None:
    """Rejected rows as a table with the columns of `SCHEMA`; None if there are none."""
    columns = list(zip(*rejects, strict=True))
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA) if columns else None


def reason_of(kind: ColumnType, time_zone: str = "", form: str = "", decimal: str = "") -> str:
    """Why a value is rejected: what its column expects."""
    words = "text in UTF-8" if kind is ColumnType.string else str(kind)
    if decimal:
        words += f" with the decimal sign {decimal!r}"
    if form in EPOCHS:
        words = f"{form} since 1970"
    elif form:
        words = f"a time written as {form}"
    elif kind is ColumnType.timestamp:
        zone = f"that clocks in {time_zone} show once" if time_zone else "with its zone (or state source.time_zone)"
        words = f"a time in ISO 8601, to the microsecond, {zone}"
    return f"expected {words} or a null"


def schema_of(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow schema of declared columns."""
    return pa.schema([(column, TYPES[kind]) for column, kind in columns.items()])


def check_columns(name: str, delivered: Collection[str], spec: TableSpec) -> None:
    """Raise DeclarationError for columns that are missing or not declared, if the table's guards say `fail`."""
    missing = [column for column in spec.columns if column not in delivered]
    extra = [column for column in delivered if column not in spec.columns]
    problems = [
        f"{label}: {', '.join(columns)}"
        for label, columns, policy in (
            ("missing", missing, spec.guards.missing_column),
            ("not declared", extra, spec.guards.new_column),
        )
        if columns and policy == "fail"
    ]
    if problems:
        raise DeclarationError(
            f"Table {name}: the columns are not those declared ({'; '.join(problems)}). Correct source.tables."
        )


def shown_names(names: Collection[str], spec: TableSpec) -> list[str]:
    """Names of a header for messages and records, in their order.

    Without a header they are the values of a row. So in a table with sensitive columns, the position of an undeclared
    column replaces its name.
    """
    return [
        f"column {place} (name not shown)" if spec.sensitive and name not in spec.columns else name
        for place, name in enumerate(names, 1)
    ]


def displayed_value(column: str, value: Any, sensitive: Collection[str]) -> str:
    """A value of a row that fits, for a message; hidden in a sensitive column."""
    return NOT_SHOWN if column in sensitive else repr(value)


def shown_misfit(value: Any, sensitive: Collection[str]) -> str:
    """A value that does not fit, for a message; hidden in a table with any sensitive column.

    If one value does not fit, the others of its row may be in wrong columns, the sensitive ones too.
    """
    return NOT_SHOWN if sensitive else repr(value)


def misfit_row(row: Mapping[str, Any], sensitive: Collection[str]) -> str:
    """A row that does not fit, as JSON, with text for values that JSON does not have; hidden as in `shown_misfit`."""
    if sensitive:
        return HIDDEN
    return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def declare(pieces: Iterable[pa.Table], spec: TableSpec, *, name: str, place: Place, time_zone: str) -> Raw:
    """Cast a part to the declared columns, in the declared order. Undeclared columns are left out, absent ones null.

    `place` names a row for messages: from its piece, its number there, and its number within the part. By `on_invalid`,
    a row that does not fit is rejected, or raises DeclarationError.
    """
    tables = [schema_of(spec.columns).empty_table()]
    rejects: list[Reject] = []
    before = 0
    for piece in pieces:
        columns: dict[str, Read] = {}
        for column, kind in spec.columns.items():
            columns[column] = Read(pa.nulls(piece.num_rows, TYPES[kind]))
            if column in piece.column_names and piece[column].null_count < piece.num_rows:
                array = pa.concat_arrays(piece[column].chunks)
                typed = read_as(array, kind, time_zone, spec.times.get(column, ""))
                columns[column] = typed or Read(columns[column].values, array.is_null())
        rows: dict[int, Reject] = {}
        for column, read in columns.items():
            reason = reason_of(spec.columns[column], time_zone, spec.times.get(column, ""))
            misfits = [] if read.fits is None else [row for row, fits in enumerate(read.fits.to_pylist()) if not fits]
            for row in misfits:
                if row in rows:
                    continue
                value = shown_misfit(_python(piece[column][row]), spec.sensitive)
                reject = Reject(place(piece, row, before + row), column, reason, value)
                if spec.on_invalid == "fail":
                    raise _misfit(reject, name, piece[column].type, spec, time_zone)
                whole = {key: _python(piece[key][row]) for key in piece.column_names}
                rows[row] = reject._replace(raw=misfit_row(whole, spec.sensitive))
        table = pa.Table.from_arrays([read.values for read in columns.values()], schema=schema_of(spec.columns))
        tables.append(table.filter(pa.array([row not in rows for row in range(len(table))])) if rows else table)
        rejects += [reject for _, reject in sorted(rows.items())]
        before += piece.num_rows
    return Raw(pa.concat_tables(tables).combine_chunks(), rejected_table(rejects))


def _misfit(reject: Reject, table: str, delivered: pa.DataType, spec: TableSpec, time_zone: str) -> DeclarationError:
    kind, form = spec.columns[reject.column], spec.times.get(reject.column, "")
    if read_as(pa.array([], delivered), kind, time_zone, form) is not None:
        return DeclarationError(
            f"Table {table}, {reject}. Correct the row, or declare on_invalid: reject to set such rows aside."
        )
    return DeclarationError(
        f"Table {table}, {reject.place}, column {reject.column}: {reject.reason} (declared as {kind}), found the type "
        f"{delivered}. Declare the column's own type, or convert it in the query."
    )


def _python(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:  # PostgreSQL's infinity, for example
        return "a time that is not in the years 1 to 9999"
    except ValueError:  # a time with nanoseconds
        return value.cast(pa.string()).as_py()
