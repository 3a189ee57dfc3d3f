"""Turns Arrow data from anywhere into the declared columns, or says which row and column does not fit."""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.snapshot.spec import ColumnType
from gatehouse.errors import SourceError

Convert = Callable[[pa.Array], pa.Array]

TYPES = {
    ColumnType.int64: pa.int64(),
    ColumnType.double: pa.float64(),
    ColumnType.string: pa.string(),
    ColumnType.bool: pa.bool_(),
    ColumnType.timestamp: pa.timestamp("us", tz="UTC"),
}
_WITH_ZONE = r"\d{2}:\d{2}.*(Z|z|[+-]\d{2}(:?\d{2})?)$"
_WORDS = {
    ColumnType.int64: "a whole number of 64 bits",
    ColumnType.double: "a number that a double holds",
    ColumnType.string: "text in UTF-8",
    ColumnType.bool: "true or false",
    ColumnType.timestamp: "a time to the microsecond",
}


def declared(
    raw: pa.Table, columns: Mapping[str, ColumnType], *, name: str, place: Callable[[int], str], time_zone: str
) -> pa.Table:
    """The declared columns of a table, in the declared order and types. No value changes silently.

    Whole numbers may come as any integer, as decimals and doubles without a fraction; doubles as any number; text as
    text, UUID or JSON; bools also as 0 and 1; times as timestamps, dates (midnight) or text in ISO 8601. Nulls, NaN and
    infinities stay. Binary columns, and numbers that are text, are refused.

    Args:
        raw: The rows as the source gives them; columns that are not declared are left out.
        columns: Type of every wanted column.
        name: The table's name, for messages.
        place: Names a row by its index, for messages.
        time_zone: Zone of times that state none; empty refuses them.

    Raises:
        SourceError: naming table, row, column, what was expected and what was found.
    """
    missing = [column for column in columns if column not in raw.column_names]
    if missing:
        raise SourceError(
            f"Table {name}: the columns are not those declared (missing: {', '.join(missing)}; "
            f"found: {', '.join(raw.column_names)}). Correct source.tables."
        )
    converted = [
        _converted(raw[column].combine_chunks(), kind, f"column {column}", name, place, time_zone)
        for column, kind in columns.items()
    ]
    return pa.Table.from_arrays(converted, schema=schema_of(columns))


def schema_of(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """The Arrow schema of declared columns."""
    return pa.schema([(column, TYPES[kind]) for column, kind in columns.items()])


def _converted(
    values: pa.Array | pa.ChunkedArray,
    kind: ColumnType,
    column: str,
    name: str,
    place: Callable[[int], str],
    time_zone: str,
) -> pa.Array:
    array, decimal = _plain(pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), TYPES[kind])
    convert = _converter(array.type, decimal, kind, time_zone)
    if convert is None:
        found = "a decimal" if decimal else str(array.type)
        raise SourceError(
            f"Table {name}, {column}: expected {_WORDS[kind]} (declared as {kind}), found the type {found}. "
            "Declare the column's own type, or convert it in the query."
        )
    try:
        return convert(array)
    except (pa.ArrowInvalid, ValueError) as error:
        index = _first_failure(array, convert)
        value = array[index].as_py()
        where = f"Table {name}, {place(index)}, {column}"
        if kind is ColumnType.timestamp and not time_zone:
            raise SourceError(
                f"{where}: expected {_WORDS[kind]} with its zone, found {value!r}. "
                "State the zone of times without one in source.time_zone, or convert it in the query."
            ) from error
        raise SourceError(f"{where}: expected {_WORDS[kind]} or a null, found {value!r}.") from error


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

    if pa.types.is_timestamp(kind):
        return (lambda array: pc.cast(array, wanted)) if kind.tz else located
    if pa.types.is_date(kind):
        return located
    return parsed if _is_text(kind) else None


def _first_failure(array: pa.Array, convert: Convert) -> int:
    """Index of the first value that does not convert, by halving."""
    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            convert(array.slice(start, middle - start))
            start = middle
        except (pa.ArrowInvalid, ValueError):
            stop = middle
    return start
