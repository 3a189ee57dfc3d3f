"""Turns Arrow data from anywhere into the declared columns, or says which row and column does not fit."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.snapshot.sources.base import Raw
from gatehouse.components.snapshot.spec import ColumnType, TableSpec
from gatehouse.errors import SourceError

Convert = Callable[[pa.Array], pa.Array]
Place = Callable[[pa.Table, int, int], str]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = {
    ColumnType.int64: pa.int64(),
    ColumnType.double: pa.float64(),
    ColumnType.string: pa.string(),
    ColumnType.bool: pa.bool_(),
    ColumnType.timestamp: pa.timestamp("us", tz="UTC"),
}
FIRST_TIME, LAST_TIME = (
    (end.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
"""The times that Python has, in microseconds since 1970."""
_WITH_ZONE = r"\d{2}:\d{2}.*(Z|z|[+-]\d{2}(:?\d{2})?)$"
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
        SourceError: naming what is missing or not declared, where a guard says `fail`.
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
        raise SourceError(
            f"Table {name}: the columns are not those declared ({'; '.join(problems)}). Correct source.tables."
        )


def declare(pieces: Iterable[pa.Table], spec: TableSpec, *, name: str, place: Place, time_zone: str) -> Raw:
    """The declared columns of a part, in the declared order and types. No value changes silently.

    Whole numbers may come as any integer, as decimals and doubles without a fraction; doubles as any number; text as
    text, UUID or JSON; bools also as 0 and 1; times as timestamps, dates (midnight) or text in ISO 8601. Nulls, NaN and
    infinities stay. Binary columns, and numbers that are text, are refused. Columns that are not declared are left out,
    absent ones are null.

    Args:
        pieces: The part's rows as the source gives them.
        spec: The declaration; by `on_invalid`, a row that does not fit is an error or is set aside.
        name: The table's name, for messages.
        place: Names a row for messages: from its piece, its number there, and its number within the part.
        time_zone: Zone of times that state none; empty refuses them.

    Raises:
        SourceError: naming table, row, column, what was expected and what was found.
    """
    tables = [schema_of(spec.columns).empty_table()]
    rejected: list[dict[str, Any]] = []
    before = 0
    for piece in pieces:
        reasons = _reasons(piece, spec, name, partial(_placed, place, piece, before), time_zone)
        rejected += [
            {"row": before + row, "reason": reason, "raw": as_text(_row(piece, row), spec.sensitive)}
            for row, reason in sorted(reasons.items())
        ]
        kept = piece.filter(_mask(piece.num_rows, reasons)) if reasons else piece
        tables.append(_converted(kept, spec, time_zone))
        before += piece.num_rows
    return Raw(pa.concat_tables(tables).combine_chunks(), rejected_table(rejected))


def _placed(place: Place, piece: pa.Table, before: int, row: int) -> str:
    return place(piece, row, before + row)


def rejected_table(rows: list[dict[str, Any]]) -> pa.Table | None:
    """Rows that were set aside, as `Raw` keeps them."""
    schema = pa.schema([("row", pa.int64()), ("reason", pa.string()), ("raw", pa.string())])
    return pa.Table.from_pylist(rows, schema) if rows else None


def shown(column: str, value: Any, sensitive: Collection[str]) -> str:
    """A value for a message; of a sensitive column, that it is not shown."""
    return "a value that is not shown" if column in sensitive else repr(value)


def as_text(row: Mapping[str, Any], sensitive: Collection[str]) -> str:
    """A row as the source gave it without what is sensitive, in JSON where JSON has its values and else as text."""
    row = {column: "***" if column in sensitive else value for column, value in row.items()}
    return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _row(piece: pa.Table, row: int) -> dict[str, Any]:
    return {name: _python(piece[name][row]) for name in piece.column_names}


def _python(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # Python has no such time: PostgreSQL's infinity, for one
        return "a time that is not in the years 1 to 9999"


def schema_of(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow schema of declared columns."""
    return pa.schema([(column, TYPES[kind]) for column, kind in columns.items()])


def _reasons(
    piece: pa.Table, spec: TableSpec, name: str, place: Callable[[int], str], time_zone: str
) -> dict[int, str]:
    """Why rows do not fit, by their number in the piece.

    Raises:
        SourceError: for the first such row, where the declaration does not set them aside.
    """
    reasons: dict[int, str] = {}
    for column, kind in spec.columns.items():
        array, convert = _prepared(piece, column, kind, time_zone)
        if convert is None and spec.on_invalid == "fail":
            _require_null(array, column, kind, name, place)
        for row in _filled(array) if convert is None else _failures(array, convert):
            found = shown(column, _python(array[row]), spec.sensitive)
            reason = f"column {column}: expected {expected(kind, time_zone)} or a null, found {found}"
            if spec.on_invalid == "fail":
                raise SourceError(f"Table {name}, {place(row)}, {reason}.{_advice(array.type, kind, time_zone)}")
            reasons.setdefault(row, reason)
    return reasons


def expected(kind: ColumnType, time_zone: str) -> str:
    """What a value of a declared type is, in words."""
    return _WORDS[kind] + (" with its zone" if kind is ColumnType.timestamp and not time_zone else "")


def _advice(found: pa.DataType, kind: ColumnType, time_zone: str) -> str:
    zoned = pa.types.is_timestamp(found) and found.tz
    if kind is ColumnType.timestamp and not time_zone and not zoned:
        return " State the zone of times without one in source.time_zone."
    return " Correct the row, or declare on_invalid: reject to set such rows aside."


def _mask(rows: int, reasons: Mapping[int, str]) -> pa.Array:
    return pa.array([row not in reasons for row in range(rows)], pa.bool_())


def _converted(piece: pa.Table, spec: TableSpec, time_zone: str) -> pa.Table:
    arrays = []
    for column, kind in spec.columns.items():
        array, convert = _prepared(piece, column, kind, time_zone)
        arrays.append(pa.nulls(len(array), TYPES[kind]) if convert is None else convert(array))
    return pa.Table.from_arrays(arrays, schema=schema_of(spec.columns))


def _prepared(piece: pa.Table, column: str, kind: ColumnType, time_zone: str) -> tuple[pa.Array, Convert | None]:
    """A column's values, and how they become the declared type; None where all are null, or their type never does."""
    if column not in piece.column_names:
        return pa.nulls(piece.num_rows), None
    chunks = piece[column].chunks
    array, decimal = _plain(pa.concat_arrays(chunks) if chunks else pa.array([], piece[column].type))
    return array, None if pa.types.is_null(array.type) else _converter(array.type, decimal, kind, time_zone)


def _require_null(array: pa.Array, column: str, kind: ColumnType, name: str, place: Callable[[int], str]) -> None:
    """Raise SourceError for a type that never becomes the declared one."""
    if pa.types.is_null(array.type):
        return
    where = next((f", {place(row)}" for row in _filled(array)), "")
    raise SourceError(
        f"Table {name}{where}, column {column}: expected {_WORDS[kind]} (declared as {kind}), found the type "
        f"{array.type}. Declare the column's own type, or convert it in the query."
    )


def _filled(array: pa.Array) -> list[int]:
    rows: list[int] = pc.indices_nonzero(array.is_valid()).to_pylist()
    return rows


def _failures(array: pa.Array, convert: Convert, start: int = 0) -> list[int]:
    """Rows whose values do not convert, by halving."""
    try:
        convert(array)
    except (pa.ArrowInvalid, ValueError):
        if len(array) == 1:
            return [start]
        half = len(array) // 2
        return _failures(array.slice(0, half), convert, start) + _failures(array.slice(half), convert, start + half)
    return []


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


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _converter(kind: pa.DataType, decimal: bool, wanted: ColumnType, time_zone: str) -> Convert | None:
    """How a type becomes the declared one; None where it may not."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or decimal
    if wanted is ColumnType.int64 and number:
        return _whole_from_text if decimal else lambda array: pc.cast(array, pa.int64())
    if wanted is ColumnType.double and number:
        return lambda array: pc.cast(array, pa.float64())
    if wanted is ColumnType.string and _is_text(kind) and not decimal:
        return _text
    if wanted is ColumnType.bool and pa.types.is_boolean(kind):
        return lambda array: array
    if wanted is ColumnType.bool and pa.types.is_integer(kind):
        return _truth
    if wanted is ColumnType.timestamp:
        return _time_converter(kind, time_zone)
    return None


def _whole_from_text(array: pa.Array) -> pa.Array:
    return pc.cast(pc.replace_substring_regex(array, r"\.0+$", ""), pa.int64())


def _text(array: pa.Array) -> pa.Array:
    text = pc.cast(array, pa.string())
    text.validate(full=True)
    return text


def _truth(array: pa.Array) -> pa.Array:
    if not pc.all(pc.is_in(array.drop_null(), pa.array([0, 1], array.type)), min_count=0).as_py():
        raise ValueError("neither 0 nor 1")
    return pc.cast(array, pa.bool_())


def times_of_text(column: pa.ChunkedArray, time_zone: str) -> pa.Array:
    """Times that are text in ISO 8601, those without a zone in `time_zone`; ArrowInvalid where one is no time."""
    convert = _time_converter(pa.string(), time_zone)
    assert convert is not None
    return convert(column.combine_chunks())


def _time_converter(kind: pa.DataType, time_zone: str) -> Convert | None:
    wanted = TYPES[ColumnType.timestamp]

    def located(array: pa.Array) -> pa.Array:
        if len(array) == array.null_count:
            return pa.nulls(len(array), wanted)
        if not time_zone:
            raise ValueError("no zone")
        naive = pc.cast(array, pa.timestamp("us"))
        return pc.cast(pc.assume_timezone(naive, time_zone, ambiguous="raise", nonexistent="raise"), wanted)

    def parsed(array: pa.Array) -> pa.Array:
        array = pc.cast(array, pa.string())
        zoned = pc.match_substring_regex(array, _WITH_ZONE)
        nothing = pa.scalar(None, pa.string())
        aware = pc.cast(pc.if_else(zoned, array, nothing), wanted)
        return pc.coalesce(aware, located(pc.if_else(zoned, nothing, array)))

    def within(convert: Convert) -> Convert:
        def converted(array: pa.Array) -> pa.Array:
            times = convert(array)
            found = pc.min_max(pc.cast(times, pa.int64())).as_py()
            if found["min"] is not None and not (found["min"] >= FIRST_TIME and found["max"] <= LAST_TIME):
                raise pa.ArrowInvalid("a time that is not in the years 1 to 9999")
            return times

        return converted

    if pa.types.is_timestamp(kind) and kind.tz:
        return within(lambda array: pc.cast(array, wanted))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return within(located)
    return within(parsed) if _is_text(kind) else None
