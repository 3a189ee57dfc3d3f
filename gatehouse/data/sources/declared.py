"""Turns Arrow data from anywhere into the declared columns, or says which row and column does not fit."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.snapshot.time_formats import EPOCHS
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.rejects import Read, Reject, by_halving, rejected_table
from gatehouse.data.sources.times import TIME, read_times, wanted
from gatehouse.errors import DeclarationError

Convert = Callable[[pa.Array], pa.Array]
Place = Callable[[pa.Table, int, int], str]

TYPES = {
    ColumnType.int64: pa.int64(),
    ColumnType.double: pa.float64(),
    ColumnType.string: pa.string(),
    ColumnType.bool: pa.bool_(),
    ColumnType.timestamp: TIME,
}
HIDDEN = "***"
NOT_SHOWN = "a value that is not shown"
_WORDS = {
    ColumnType.int64: "a whole number of 64 bits",
    ColumnType.double: "a number that a double holds",
    ColumnType.string: "text in UTF-8",
    ColumnType.bool: "true or false",
    ColumnType.timestamp: "a time to the microsecond",
}


def check_columns(name: str, found: Collection[str], spec: TableSpec) -> None:
    """Hold the columns of a source against its declaration, by the table's guards.

    Raises:
        DeclarationError: naming what is missing or not declared, where a guard says `fail`.
    """
    missing = [column for column in spec.columns if column not in found]
    extra = [column for column in found if column not in spec.columns]
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


def shown_names(found: Collection[str], spec: TableSpec) -> list[str]:
    """Names of columns that may be the first line of a text, for messages and records, in their order.

    That of a file without a header is a row. So, of a table with sensitive columns, a name that is not declared is not
    shown, whatever the others are: its place stands for it.
    """
    return [
        f"column {place} (name not shown)" if spec.sensitive and name not in spec.columns else name
        for place, name in enumerate(found, 1)
    ]


def declare(pieces: Iterable[pa.Table], spec: TableSpec, *, name: str, place: Place, time_zone: str) -> Raw:
    """The declared columns of a part, in the declared order and types. No value changes silently.

    Whole numbers may come as any integer, as decimals and doubles without a fraction, or as durations, in their own
    unit; doubles as any number; bools also as 0 and 1; times as timestamps, dates (midnight), text in ISO 8601, or as
    `times` of the declaration says. Text may come as text, UUID or JSON, and as what is written in one way only: whole
    numbers, decimals, dates, times of day, and timestamps, in ISO 8601 and UTC. Nulls, NaN and infinities stay. Binary
    columns, and numbers that are text, are refused. Columns that are not declared are left out, absent ones are null.

    Args:
        pieces: The part's rows as the source gives them.
        spec: The declaration; by `on_invalid`, a row that does not fit is an error or is set aside.
        name: The table's name, for messages.
        place: Names a row for messages: from its piece, its number there, and its number within the part.
        time_zone: Zone of times that state none; empty refuses them.

    Raises:
        DeclarationError: naming table, row, column, what was expected and what was found.
    """
    tables = [schema_of(spec.columns).empty_table()]
    rejects: list[Reject] = []
    before = 0
    for piece in pieces:
        read = {column: _read(piece, column, spec, time_zone) for column in spec.columns}
        misfits = {column: found for column, each in read.items() if (found := each.misfits())}
        where = partial(_placed, place, piece, before)
        rows = _misfit_rows(piece, spec, name, where, time_zone, misfits)
        rejects += rows.values()
        table = pa.Table.from_arrays([each.values for each in read.values()], schema=schema_of(spec.columns))
        tables.append(table.filter(_mask(piece.num_rows, rows)) if rows else table)
        before += piece.num_rows
    return Raw(pa.concat_tables(tables).combine_chunks(), rejected_table(rejects))


def _placed(place: Place, piece: pa.Table, before: int, row: int) -> str:
    return place(piece, row, before + row)


def shown(column: str, value: Any, sensitive: Collection[str]) -> str:
    """A value of a row that fits, for a message; of a sensitive column, that it is not shown."""
    return NOT_SHOWN if column in sensitive else repr(value)


def shown_misfit(value: Any, sensitive: Collection[str]) -> str:
    """A value that does not fit, for a message; of a table with a sensitive column, that it is not shown.

    Where one value does not fit, the others of its row may stand in wrong columns, the sensitive ones too.
    """
    return NOT_SHOWN if sensitive else repr(value)


def misfit_row(row: Mapping[str, Any], sensitive: Collection[str]) -> str:
    """A row that does not fit, in JSON where JSON has its values and else as text; hidden as `shown_misfit` says."""
    if sensitive:
        return HIDDEN
    return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _row(piece: pa.Table, row: int) -> dict[str, Any]:
    return {name: _python(piece[name][row]) for name in piece.column_names}


def _python(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:  # Python has no such time: PostgreSQL's infinity, for one
        return "a time that is not in the years 1 to 9999"
    except ValueError:  # nor one to the nanosecond
        return value.cast(pa.string()).as_py()


def schema_of(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow schema of declared columns."""
    return pa.schema([(column, TYPES[kind]) for column, kind in columns.items()])


def _misfit_rows(
    piece: pa.Table,
    spec: TableSpec,
    name: str,
    place: Callable[[int], str],
    time_zone: str,
    misfits: Mapping[str, Mapping[int, str]],
) -> dict[int, Reject]:
    """Rows that do not fit, by their number in the piece, each with its first column that does not.

    Raises:
        DeclarationError: for the first such row, where the declaration does not set them aside.
    """
    rows: dict[int, Reject] = {}
    for column, kind in spec.columns.items():
        form = spec.times.get(column, "")
        for row, note in misfits.get(column, {}).items():
            if row in rows:
                continue
            found, value = piece[column].type, piece[column][row]
            reason = reason_of(expected(kind, time_zone, form), note)
            told = Reject(place(row), column, reason, shown_misfit(_python(value), spec.sensitive))
            if spec.on_invalid == "fail":
                if _never(found, kind, time_zone, form):
                    raise _of_no_type(name, place(row), column, kind, found)
                raise DeclarationError(f"Table {name}, {told}.{_advice(found, kind, time_zone, form)}")
            rows[row] = told._replace(raw=misfit_row(_row(piece, row), spec.sensitive))
    return dict(sorted(rows.items()))


def reason_of(what: str, note: str) -> str:
    """Why a value does not fit: what was expected, and what more there is to say of this one."""
    return f"expected {what}{note and f', {note},'} or a null"


def expected(kind: ColumnType, time_zone: str, form: str = "") -> str:
    """What a value of a declared type is, in words."""
    return wanted(time_zone, form) if kind is ColumnType.timestamp else _WORDS[kind]


def _advice(found: pa.DataType, kind: ColumnType, time_zone: str, form: str) -> str:
    zoned = pa.types.is_timestamp(found) and found.tz
    if kind is ColumnType.timestamp and not time_zone and not zoned and not form:
        return " State the zone of times without one in source.time_zone."
    return " Correct the row, or declare on_invalid: reject to set such rows aside."


def _mask(rows: int, rejected: Mapping[int, Reject]) -> pa.Array:
    return pa.array([row not in rejected for row in range(rows)], pa.bool_())


def _read(piece: pa.Table, column: str, spec: TableSpec, time_zone: str) -> Read:
    """A column's values as the declared type."""
    kind = spec.columns[column]
    if column not in piece.column_names:
        return Read(pa.nulls(piece.num_rows, TYPES[kind]))
    chunks = piece[column].chunks
    array = pa.concat_arrays(chunks) if chunks else pa.array([], piece[column].type)
    if array.null_count == len(array):
        return Read(pa.nulls(len(array), TYPES[kind]))
    read = read_as(array, kind, time_zone, spec.times.get(column, ""))
    return read or Read(pa.nulls(len(array), TYPES[kind]), array.is_null())


def read_as(array: pa.Array, kind: ColumnType, zone: str = "", form: str = "") -> Read | None:
    """The values of an array, shape (rows,), as a declared type; None where no value of its type becomes that one.

    Args:
        array: The values as the source gives them.
        kind: The declared type.
        zone: Zone of times that state none; empty refuses them.
        form: How times are written, as `read_times` has it.
    """
    plain, decimal = _plain(array)
    if kind is ColumnType.timestamp:
        return read_times(plain, zone, form)
    convert = _converter(plain.type, decimal, kind)
    return by_halving(plain, convert, TYPES[kind]) if convert else None


def _never(found: pa.DataType, kind: ColumnType, time_zone: str, form: str) -> bool:
    """Whether no value of a type becomes the declared one."""
    return read_as(pa.array([], found), kind, time_zone, form) is None


def _of_no_type(name: str, place: str, column: str, kind: ColumnType, found: pa.DataType) -> DeclarationError:
    epoch = kind is ColumnType.timestamp and (pa.types.is_integer(found) or pa.types.is_floating(found))
    advice = f"times: {{{column}: seconds}} (or another of {', '.join(EPOCHS)}) reads numbers since 1970. " * epoch
    return DeclarationError(
        f"Table {name}, {place}, column {column}: expected {_WORDS[kind]} (declared as {kind}), found the type "
        f"{found}. {advice}Declare the column's own type, or convert it in the query."
    )


def _plain(array: pa.Array) -> tuple[pa.Array, bool]:
    """An array without extension and dictionary, and whether it holds decimals written as text."""
    kind = array.type
    if isinstance(kind, pa.OpaqueType):
        return array.storage, kind.type_name == "numeric" and pa.types.is_string(kind.storage_type)
    if isinstance(kind, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string()), False
    if isinstance(kind, pa.BaseExtensionType):
        return array.storage, False
    if pa.types.is_dictionary(kind):
        return array.dictionary_decode(), False
    return array, False


def without_extension(kind: pa.DataType) -> pa.DataType:
    """The type that values are read from: without extension and dictionary, and a UUID is text."""
    return _plain(pa.array([], kind))[0].type


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _converter(kind: pa.DataType, decimal: bool, declared: ColumnType) -> Convert | None:
    """How a type becomes the declared one; None where it may not."""
    exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or decimal
    number = exact or pa.types.is_floating(kind)
    if declared is ColumnType.int64 and (number or pa.types.is_duration(kind)):
        return _whole_from_text if decimal else lambda array: pc.cast(array, pa.int64())
    if declared is ColumnType.double and number:
        return lambda array: pc.cast(array, pa.float64())
    if declared is ColumnType.string and (exact or _is_text(kind)):
        return _text
    if declared is ColumnType.string and (
        pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)
    ):
        return _time_as_text
    if declared is ColumnType.bool and pa.types.is_boolean(kind):
        return lambda array: array
    if declared is ColumnType.bool and pa.types.is_integer(kind):
        return _truth
    return None


def _whole_from_text(array: pa.Array) -> pa.Array:
    return pc.cast(pc.replace_substring_regex(array, r"\.0+$", ""), pa.int64())


def _text(array: pa.Array) -> pa.Array:
    text = pc.cast(array, pa.string())
    text.validate(full=True)
    return text


def _time_as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.tz:
        array = pc.cast(array, pa.timestamp(array.type.unit, "UTC"))
    text = pc.cast(array, pa.string())
    # Arrow writes what is beyond its calendar as `<value out of range: …>`.
    if pc.any(pc.starts_with(text, "<"), min_count=0).as_py():
        raise ValueError("no time of a calendar")
    return text


def _truth(array: pa.Array) -> pa.Array:
    if not pc.all(pc.is_in(array.drop_null(), pa.array([0, 1], array.type)), min_count=0).as_py():
        raise ValueError("neither 0 nor 1")
    return pc.cast(array, pa.bool_())
