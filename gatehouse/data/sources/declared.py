"""Turns Arrow data from any source into the declared columns, and collects the rows that do not fit.

A value that would change on the way to its declared type does not fit.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.spec import EPOCHS, ColumnType, TableSpec
from gatehouse.data.sources.base import Raw
from gatehouse.errors import DeclarationError, MisfitError
from gatehouse.store.database import connect

TIME = pa.timestamp("us", tz="UTC")
TYPES = {
    ColumnType.int64: pa.int64(),
    ColumnType.double: pa.float64(),
    ColumnType.string: pa.string(),
    ColumnType.bool: pa.bool_(),
    ColumnType.timestamp: TIME,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_TIME, LAST_TIME = (
    (end.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
"""The first and last time that Python has, in microseconds since 1970."""
_PIECE = 4096
_TRUE, _FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")
_WHOLE = r"^-?0*\d{1,19}$"
_HEXADECIMAL = r"^[ \t]*0[xX]"
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_PERCENT = r"^[ \t]*[+-]?\d*[.,]?\d+[ \t]*%[ \t]*$"
_NOT_FINITE = r"(?i)^[+-]?(?:inf(?:inity)?|nan(?:\([0-9a-z_]*\))?)$"
_DATE = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)?"
_NAIVE = rf"^{_DATE}(?:[ T]{_CLOCK})?$"
_ZONED = rf"^{_DATE}[ T]{_CLOCK}(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)$"
_TRAILING_ZEROS = r"(:\d{2}\.\d{6})0+"
_FIRST_YEAR_OF_FOUR_DIGITS = (datetime(1000, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Read:
    """Values of one column after the cast, null where one does not fit; and which of them fit, None if all do."""

    values: pa.Array
    fits: pa.Array | None = None


def mask_of(source: pa.Array, fits: pa.Array) -> pa.Array | None:
    """`fits`, shape (rows,), where a null of the source fits too; None if all fit."""
    mask = pc.or_kleene(fits, source.is_null())
    # `fill_null` loads pandas, which takes longer than most tables.
    return None if not mask.null_count and pc.all(mask, min_count=0).as_py() else mask.fill_null(False)


def by_halving(array: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> Read:
    """Convert an array by halves until only values are left for which `convert` raises ArrowInvalid or ValueError."""
    try:
        return Read(convert(array))
    except (pa.ArrowInvalid, ValueError):
        if len(array) == 1:
            return Read(pa.nulls(1, kind), pa.array([False]))
    middle = len(array) // 2
    halves = [by_halving(half, convert, kind) for half in (array.slice(0, middle), array.slice(middle))]
    fits = [half.fits if half.fits is not None else pa.repeat(True, len(half.values)) for half in halves]
    return Read(pa.concat_arrays([half.values for half in halves]), pa.concat_arrays(fits))


def read_texts(
    cells: pa.Array, kind: ColumnType, *, decimal: str = ".", percent: bool = False, zone: str = "", form: str = ""
) -> Read:
    """Cast the cells of a CSV: texts as bytes, shape (rows,), null where a text stands for a missing value.

    Without a `zone` times that state none do not fit. `form` says how times are written, as `times` of a table has it.
    With `percent` numbers have a percent sign.
    """
    texts = cells.view(pa.string())
    if kind is ColumnType.string:
        return by_halving(cells, lambda piece: pc.cast(piece, pa.string()), pa.string())
    if kind is ColumnType.bool:
        truth = pc.is_in(texts, pa.array(_TRUE))
        values = pc.if_else(texts.is_valid(), truth, pa.scalar(None, pa.bool_()))
        return Read(values, mask_of(texts, pc.or_(truth, pc.is_in(texts, pa.array(_FALSE)))))
    if kind is ColumnType.int64:
        return _read_whole_numbers(texts)
    if kind is ColumnType.double:
        return _read_doubles(texts, decimal, percent)
    read = read_times(texts, zone, form)
    assert read is not None  # texts may always be times
    return read


def _read_whole_numbers(texts: pa.Array) -> Read:
    with suppress(pa.ArrowInvalid):
        values = _cast_in_pieces(texts, pa.int64())
        # Arrow reads 0x01 as 1 and 0xffffffffffffffff as -1: two keys would become one.
        data = texts.buffers()[2]
        letters = data is None or b"x" in (content := data.to_pybytes()) or b"X" in content
        if not (letters and pc.any(pc.match_substring_regex(texts, _HEXADECIMAL), min_count=0).as_py()):
            return Read(values)
    digits = pc.replace_substring_regex(pc.ascii_trim(texts, " \t"), r"^(-?)0+(\d)", r"\1\2")
    numbers = pc.cast(_only(digits, pc.match_substring_regex(digits, _WHOLE)), pa.decimal128(20))
    inside = pc.and_(pc.less_equal(numbers, pa.scalar(2**63 - 1)), pc.greater_equal(numbers, pa.scalar(-(2**63))))
    values = pc.cast(_only(numbers, inside), pa.int64())
    return Read(values, mask_of(texts, values.is_valid()))


def _read_doubles(texts: pa.Array, decimal: str, percent: bool) -> Read:
    numbers = texts
    if percent:
        signed = pc.match_substring_regex(texts, _PERCENT)
        numbers = pc.replace_substring_regex(_only(texts, signed), r"[ \t]*%[ \t]*$", "e-2")
    if decimal != ".":
        pointed = pc.match_substring(numbers, ".")
        numbers = pc.replace_substring(_only(numbers, pc.invert(pointed)), decimal, ".")
    try:
        values = _cast_in_pieces(numbers, pa.float64())
    except pa.ArrowInvalid:
        numbers = pc.ascii_trim(numbers, " \t")
        fits = pc.or_(pc.match_substring_regex(numbers, _NUMBER), pc.match_substring_regex(numbers, _NOT_FINITE))
        values = pc.cast(_only(numbers, fits), pa.float64())
    if pc.any(pc.is_inf(values), min_count=0).as_py():
        # Arrow reads a number that no double holds as an infinity.
        values = _only(values, pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring_regex(numbers, _NOT_FINITE)))
    return Read(values, mask_of(texts, values.is_valid()))


def _cast_in_pieces(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast texts; raises ArrowInvalid after the first piece with one that cannot be.

    Arrow goes on after a text that it cannot cast, and takes a hundred times as long for each.
    """
    if len(texts) <= _PIECE:
        return pc.cast(texts, kind)
    return pa.concat_arrays([pc.cast(texts.slice(at, _PIECE), kind) for at in range(0, len(texts), _PIECE)])


def _only(values: pa.Array, chosen: pa.Array) -> pa.Array:
    """The chosen values, with null in place of the others."""
    return pc.if_else(chosen, values, pa.scalar(None, values.type))


def read_times(array: pa.Array, zone: str = "", form: str = "") -> Read | None:
    """Cast to UTC to the microsecond, in the years 1 to 9999; None if the array has a type that never holds times.

    The array holds timestamps, dates (midnight), texts in ISO 8601 or the format `form`, or numbers if `form` is a unit
    of `EPOCHS` since 1970. Without a `zone` times that state none do not fit, and neither does one that the zone has
    twice or never.
    """
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values = array
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            nanoseconds = array.cast(pa.int64())
            microseconds = pc.divide(nanoseconds, 1000)
            exact = pc.equal(pc.multiply(microseconds, 1000), nanoseconds)
            values = _only(microseconds, exact).cast(pa.timestamp("us", kind.tz))
        zoned = pa.types.is_timestamp(kind) and kind.tz
        target = TIME if zoned else pa.timestamp("us")
        values = by_halving(values, lambda piece: pc.cast(piece, target), target).values
        return _in_calendar(values if zoned else _localized(values, zone), array)
    text = is_text(kind)
    if form in EPOCHS:
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return _in_calendar(_since_1970(array, EPOCHS[form]), array) if number or text else None
    if not text:
        return None
    array = pc.cast(array, pa.string())
    if form:
        values = _formatted(array, form)
        return _in_calendar(values if values.type.tz else _localized(values, zone), array)
    try:
        if zone:
            return _in_calendar(_localized(_cast_in_pieces(array, pa.timestamp("us")), zone), array)
        return _in_calendar(_cast_in_pieces(array, TIME), array)
    except pa.ArrowInvalid:
        exact = _only(array, _are_days(array))
        exact = pc.replace_substring_regex(exact, _TRAILING_ZEROS, r"\1")
        values = pc.cast(_only(exact, pc.match_substring_regex(exact, _ZONED)), TIME)
        if zone:
            naive = pc.cast(_only(exact, pc.match_substring_regex(exact, _NAIVE)), pa.timestamp("us"))
            values = pc.coalesce(values, _localized(naive, zone))
        return _in_calendar(values, array)


def _in_calendar(values: pa.Array, source: pa.Array) -> Read:
    microseconds = values.cast(pa.int64())
    first, last = pc.min_max(microseconds).as_py().values()
    # A comparison with a number loads pandas.
    if first is not None and not FIRST_TIME <= first <= last <= LAST_TIME:
        inside = pc.and_(pc.greater_equal(microseconds, FIRST_TIME), pc.less_equal(microseconds, LAST_TIME))
        values = _only(values, inside)
    return Read(values.cast(TIME), mask_of(source, values.is_valid()))


def _localized(naive: pa.Array, zone: str) -> pa.Array:
    """Times on the clocks of a zone as UTC; null where the clocks show a time twice or never, or without a zone."""
    if not zone or naive.null_count == len(naive):
        return pa.nulls(len(naive), TIME)
    try:
        values = pc.assume_timezone(naive, zone, ambiguous="raise", nonexistent="raise")
    except (pa.ArrowInvalid, ValueError):
        first, last = (
            pc.assume_timezone(naive, zone, ambiguous=end, nonexistent=end) for end in ("earliest", "latest")
        )
        values = _only(first, pc.equal(first.cast(pa.int64()), last.cast(pa.int64())))
    return pc.cast(values, TIME)


def _since_1970(array: pa.Array, digits: int) -> pa.Array:
    """Numbers as times; a microsecond is ten to the power of `-digits` of their unit."""
    if pa.types.is_floating(array.type):
        scaled = pc.round(pc.multiply(pc.cast(array, pa.float64()), 10.0**digits))
        return pc.cast(_only(scaled, pc.less(pc.abs(scaled), 2.0**62)), pa.int64()).cast(TIME)
    if is_text(array.type):
        fraction = rf"(?:\.\d{{1,{digits}}})?" if digits > 0 else ""
        fits = pc.match_substring_regex(array, rf"^-?\d{{1,{18 - min(digits, 0)}}}{fraction}$")
        array = pc.cast(_only(array, fits), pa.decimal128(38, 6))

    def scale(numbers: pa.Array) -> pa.Array:
        factor, exact = pa.scalar(10 ** abs(digits), pa.decimal256(8, 0)), pc.cast(numbers, pa.decimal256(40, 6))
        exact = pc.multiply(exact, factor) if digits >= 0 else pc.floor(pc.divide(exact, factor))
        inside = pc.and_(pc.greater(exact, pa.scalar(-(2**62))), pc.less(exact, pa.scalar(2**62)))
        return pc.cast(_only(exact, inside), pa.int64())

    return by_halving(array, scale, pa.int64()).values.cast(TIME)


def _are_days(texts: pa.Array) -> pa.Array:
    """Which texts begin with a day of the calendar, as 2024-02-29, in the years 1 to 9999."""
    days = _only(texts, pc.match_substring_regex(texts, rf"^{_DATE}"))
    with connect(threads=1) as database:
        rows = database.from_arrow(pa.table({"day": pc.utf8_slice_codeunits(days, 0, 10)}))
        dates = rows.project("coalesce(year(try_cast(day AS DATE)) >= 1, false)")
        return dates.to_arrow_table().column(0).combine_chunks()


def _formatted(texts: pa.Array, form: str) -> pa.Array:
    """Texts in a format as times, with a time zone if the format has %z."""
    # DuckDB takes `epoch` and `infinity` for times, reads no Z as %z, and for %Y takes 13 as the year 13.
    texts = _only(texts, pc.match_substring_regex(texts, r"\d"))
    if "%z" in form:
        texts = pc.replace_substring_regex(texts, r"Z\s*$", "+00")
    table = pa.table({"text": texts})
    with connect(threads=1) as database:
        database.execute("SET TimeZone = 'UTC'")
        rows = database.from_arrow(table).project(f"try_strptime(text, '{form.replace(chr(39), chr(39) * 2)}')")
        values = rows.to_arrow_table().column(0).combine_chunks()
    if "%Y" in form:
        values = _only(values, pc.greater_equal(values.cast(pa.int64()), _FIRST_YEAR_OF_FOUR_DIGITS))
    return values


def read_as(array: pa.Array, kind: ColumnType, zone: str = "", form: str = "") -> Read | None:
    """Cast values that have a type; None if no value of the array's type becomes one of the declared type.

    | declared | accepted |
    | --- | --- |
    | int64 | integers; decimals and doubles without a fraction; durations, in their own unit |
    | double | every number |
    | bool | bools, 0 and 1 |
    | string | text, UUID, JSON; integers, decimals, dates, times of day; timestamps, as ISO 8601 in UTC |
    """
    numeric_text = isinstance(array.type, pa.OpaqueType) and array.type.type_name == "numeric"
    array = plain_array(array)
    numeric_text = numeric_text and is_text(array.type)
    if kind is ColumnType.timestamp:
        return read_times(array, zone, form)
    source = array.type
    exact = pa.types.is_integer(source) or pa.types.is_decimal(source) or numeric_text
    number = exact or pa.types.is_floating(source)
    time = pa.types.is_timestamp(source) or pa.types.is_date(source) or pa.types.is_time(source)

    def convert(piece: pa.Array) -> pa.Array:
        if kind is ColumnType.int64 and numeric_text:
            return pc.cast(pc.replace_substring_regex(piece, r"\.0+$", ""), pa.int64())
        if kind is ColumnType.string and pa.types.is_timestamp(source) and source.tz:
            piece = pc.cast(piece, pa.timestamp(source.unit, "UTC"))
        if kind is ColumnType.double and pa.types.is_decimal(source):
            piece = pc.cast(piece, pa.string())  # Arrow's own cast gives a double beside the nearest one.
        values = pc.cast(piece, TYPES[kind])
        if kind is ColumnType.string:
            values.validate(full=True)
            # Arrow writes what is beyond its calendar as `<value out of range: …>`.
            if time and pc.any(pc.starts_with(values, "<"), min_count=0).as_py():
                raise ValueError("no time of a calendar")
        if kind is ColumnType.bool and pc.any(pc.not_equal(values.cast(source), piece), min_count=0).as_py():
            raise ValueError("neither 0 nor 1")
        return values

    possible = {
        ColumnType.int64: number or pa.types.is_duration(source),
        ColumnType.double: number,
        ColumnType.string: exact or time or is_text(source),
        ColumnType.bool: pa.types.is_boolean(source) or pa.types.is_integer(source),
    }
    return by_halving(array, convert, TYPES[kind]) if possible[kind] else None


def plain_array(array: pa.Array) -> pa.Array:
    """An array without extension and dictionary; a UUID is text."""
    if isinstance(array.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


RowPlace = Callable[[pa.Table, int, int], str]

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


def reason_of(kind: ColumnType, time_zone: str = "", form: str = "", decimal: str = "", percent: bool = False) -> str:
    """Why a value is rejected: what its column expects."""
    words = "text in UTF-8" if kind is ColumnType.string else str(kind)
    if decimal:
        words += f" with the decimal sign {decimal!r}{' and a percent sign' * percent}"
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


def declare(pieces: Iterable[pa.Table], spec: TableSpec, *, name: str, place: RowPlace, time_zone: str) -> Raw:
    """Cast a part to the declared columns, in the declared order. Undeclared columns are left out, absent ones null.

    `place` names a row for messages: from its piece, its number there, and its number within the part. By `on_invalid`,
    a row that does not fit is rejected, or raises MisfitError.
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
        misfits = first_misfits(columns)
        for row, column in misfits.items():
            value = shown_misfit(_python(piece[column][row]), spec.sensitive)
            reason = reason_of(spec.columns[column], time_zone, spec.times.get(column, ""))
            reject = Reject(place(piece, row, before + row), column, reason, value)
            if spec.on_invalid == "fail":
                raise _misfit(reject, name, piece[column].type, spec, time_zone)
            whole = {key: _python(piece[key][row]) for key in piece.column_names}
            rejects.append(reject._replace(raw=misfit_row(whole, spec.sensitive)))
        table = pa.Table.from_arrays([read.values for read in columns.values()], schema=schema_of(spec.columns))
        if misfits:
            table = table.filter(pa.array([row not in misfits for row in range(len(table))]))
        tables.append(table)
        before += piece.num_rows
    return Raw(pa.concat_tables(tables).combine_chunks(), rejected_table(rejects))


def first_misfits(columns: Mapping[str, Read]) -> dict[int, str]:
    """The rows with a value that does not fit, in order, each with the first column that has one."""
    rows: dict[int, str] = {}
    for column, read in columns.items():
        odd = pc.indices_nonzero(pc.invert(read.fits)).to_pylist() if read.fits is not None else ()
        for row in odd:
            rows.setdefault(row, column)
    return dict(sorted(rows.items()))


def _misfit(reject: Reject, table: str, delivered: pa.DataType, spec: TableSpec, time_zone: str) -> MisfitError:
    kind, form = spec.columns[reject.column], spec.times.get(reject.column, "")
    if read_as(pa.array([], delivered), kind, time_zone, form) is not None:
        return MisfitError(
            f"Table {table}, {reject}. Correct the row, or declare on_invalid: reject to set such rows aside."
        )
    return MisfitError(
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
