"""What a CSV that nobody declared seems to be: encoding, delimiter, types, times. The whole file is looked at.

The delimiter is the one that cuts most rows into one number of cells, whatever the others are like. Which type a column
has is told by the very functions that read it into a snapshot, over all rows, so that what is declared here is what is
read there.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.components.artifacts.database import connect, out_of_memory
from gatehouse.components.snapshot.csv_shape import in_utf8, require_ending, shape_of
from gatehouse.components.snapshot.sources.csv_texts import read_texts
from gatehouse.components.snapshot.spec import ColumnType
from gatehouse.errors import SourceError

_ROWS_AT_ONCE = 50_000
_MOST_MISFITS = 0.005
_NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", "\\N", "#N/A", ".")
_DEFAULT_NULLS = ("", "NA")
_DELIVERED = "delivered_at"
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%b %d %Y", "%d %b %Y", "%d-%b-%Y", "%B %d, %Y")
_FORMATS = (*(f"{day}{clock}" for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S")), "%m/%d/%y")
_USUAL = (1e8, 4e9)
"""The years 1973 to 2096, in seconds since 1970: a column whose name says a time too is taken for one."""
_PLAUSIBLE = (631_152_000, 4_102_444_800)
"""The years 1990 to 2100, in seconds since 1970."""
_PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_TIME_WORDS = frozenset(
    ("time", "times", "date", "dates", "datetime", "timestamp", "when", "epoch", "created", "updated", "at", "ts")
)
_GLUED = re.compile(r"[a-z]{2,}(?:date|datetime|timestamp|epoch)")
"""A word of a time behind another one, as in orderdate: it counts only for numbers of the years 1990 to 2100.

One that ends in time alone may be a duration, as cputime, whose nanoseconds are numbers of such years too.
"""
_NOT_GLUED = frozenset(("candidate", "consolidate", "invalidate", "liquidate", "mandate", "update", "validate"))
_NO_TIMES = frozenset(("id", "ids", "by"))
"""Words that behind one of a time make it something else, as in created_by."""
_TOO_FINE = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{7,9}(?:Z|[+-]\d\d:?\d\d)?$"


@dataclass(frozen=True)
class SniffedColumn:
    """A column.

    Attributes:
        name: Its name in the header; a column without one is left out of a snapshot.
        kind: The type that its values have.
        form: How it writes times, as `times` of a table has it.
        decimal: The decimal sign of its doubles.
        naive: Whether its times state no zone.
        missing: Rows without a value.
        misfits: Those that have another type; they would be rejected.
        also: Another format that all its times fit too; empty for none.
        epoch: Of numbers the unit in which all are times of the years 1990 to 2100 since 1970; empty for none.
        too_fine: Whether its texts are times with more digits than a microsecond has.
    """

    name: str
    kind: ColumnType
    form: str = ""
    decimal: str = "."
    naive: bool = False
    missing: int = 0
    misfits: int = 0
    also: str = ""
    epoch: str = ""
    too_fine: bool = False


@dataclass(frozen=True)
class Sniffed:
    """A file.

    Attributes:
        encoding: Of its text.
        delimiter: Between its cells; empty for Parquet, which has types.
        decimal: Of its numbers.
        nulls: Texts that stand for a missing value.
        columns: In the order of the file.
        rows: How many rows it has, without those that are uneven.
        uneven: Rows that have more or fewer cells than the header; they would be rejected.
        event_time: The column whose times order the rows; empty for none.
        missing_as: Those of `nulls` that occur in a CSV, in which every missing value is one of them.
    """

    encoding: str
    delimiter: str
    decimal: str
    nulls: tuple[str, ...]
    columns: tuple[SniffedColumn, ...]
    rows: int
    uneven: int = 0
    event_time: str = ""
    missing_as: tuple[str, ...] = ()

    def ordered_by(self, time: str) -> "Sniffed":
        """The file with another column for its time, also of numbers since 1970; with none, its times are texts."""
        if time:
            columns = (
                replace(one, kind=ColumnType.timestamp, form=one.epoch) if one.name == time and one.epoch else one
                for one in self.columns
            )
            return replace(self, event_time=time, columns=tuple(columns))
        texts = (
            SniffedColumn(one.name, ColumnType.string, missing=one.missing) if one.kind is ColumnType.timestamp else one
            for one in self.columns
        )
        return replace(self, event_time="", columns=tuple(texts))

    @property
    def named(self) -> tuple[SniffedColumn, ...]:
        """The columns that have a name."""
        return tuple(column for column in self.columns if column.name)


@dataclass(frozen=True)
class _Candidate:
    """A way to read a column."""

    kind: ColumnType
    form: str = ""
    decimal: str = "."
    zone: str = ""


@dataclass
class _Column:
    """What is known of a column so far."""

    name: str
    candidates: dict[_Candidate, int]
    """Ways to read it that are still possible, with how many values do not fit."""
    rows: int = 0
    too_fine: bool = False
    nulls: Counter[str] = field(default_factory=Counter)
    low: float = float("inf")
    high: float = float("-inf")


def sniff(path: Path) -> Sniffed:
    """Look at a CSV file, also a gzipped one, or at Parquet. The first column of times orders the rows.

    Raises:
        SourceError: if it is no CSV with a header, and no Parquet.
    """
    found = _parquet(path) if path.suffix.lower() == ".parquet" and path.is_file() else _csv(path)
    return replace(found, event_time=next((one.name for one in found.named if one.kind is ColumnType.timestamp), ""))


def _parquet(path: Path) -> Sniffed:
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            missing = [0] * len(schema)
            for batch in file.iter_batches():
                missing = [count + cells.null_count for count, cells in zip(missing, batch.columns, strict=True)]
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{path}: is not intact Parquet: {error}. Fetch it again.") from error
    return Sniffed("utf-8", "", ".", _DEFAULT_NULLS, tuple(map(_typed, schema, missing)), rows)


def _typed(found: pa.Field, missing: int) -> SniffedColumn:
    """A column of Parquet; what is neither number, bool nor time is a text."""
    kinds = {
        ColumnType.bool: pa.types.is_boolean,
        ColumnType.int64: pa.types.is_integer,
        ColumnType.double: lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
        ColumnType.timestamp: lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date(kind),
    }
    kind = next((kind for kind, fits in kinds.items() if fits(found.type)), ColumnType.string)
    naive = kind is ColumnType.timestamp and getattr(found.type, "tz", None) is None
    return SniffedColumn(found.name, kind, naive=naive, missing=missing)


def _csv(path: Path) -> Sniffed:
    require_ending(path)
    if path.is_file() and not path.stat().st_size:
        raise SourceError(f"{path.name}: expected a header and rows below it, found an empty file.")
    with in_utf8(path) as (plain, encoding), connect() as connection:
        delimiter, header = shape_of(plain, path.name)
        columns = [_Column(name, dict.fromkeys(_candidates(), 0)) for name in header]
        rows = 0
        for batch in _batches(connection, plain, delimiter, len(header), path.name):
            rows += batch.num_rows
            for column, cells in zip(columns, batch.columns, strict=True):
                _look(column, cells)
        uneven = int(connection.execute("SELECT count(DISTINCT line) FROM reject_errors").fetchall()[0][0])
    if not rows:
        raise SourceError(f"{path.name}: expected rows below the header, found none.")
    told = [_told(column) for column in columns]
    decimal = next((column.decimal for column in told if column.decimal == ","), ".")
    told = [_with_decimal(column, one, decimal) for column, one in zip(columns, told, strict=True)]
    seen = {
        null
        for column, one in zip(columns, told, strict=True)
        for null in column.nulls
        if one.kind is not ColumnType.string
    }
    nulls = (*_DEFAULT_NULLS, *sorted(seen - set(_DEFAULT_NULLS)))
    missing_as = tuple(null for null in nulls if any(column.nulls[null] for column in columns))
    told = [
        replace(one, missing=sum(column.nulls[null] for null in nulls))
        for column, one in zip(columns, told, strict=True)
    ]
    return Sniffed(encoding, delimiter, decimal, nulls, tuple(told), rows, uneven, missing_as=missing_as)


def _batches(
    connection: duckdb.DuckDBPyConnection, plain: Path, delimiter: str, width: int, name: str
) -> Iterator[pa.RecordBatch]:
    """All rows of a file as texts; those of another width are left out, and stand in the table reject_errors."""
    types = ", ".join(f"'column{index}': 'VARCHAR'" for index in range(width))
    query = (
        f"SELECT * FROM read_csv('{plain}', auto_detect=false, header=true, columns={{{types}}}, "
        f"delim='{delimiter}', quote='\"', escape='\"', store_rejects=true, nullstr='')"
    )
    try:
        yield from connection.sql(query).to_arrow_reader(_ROWS_AT_ONCE)
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory(error, f"Reading {name}") or error from error
    except duckdb.InvalidInputException:  # Its words name a temporary file, and may quote a row.
        raise SourceError(
            f"{name}: expected rows of {width} columns separated by {delimiter!r}, found text that cannot be "
            "divided into rows, such as a lone carriage return within one. Write the file again with the same end of "
            "line everywhere, and quote cells that hold one."
        ) from None


def _candidates() -> Iterator[_Candidate]:
    yield _Candidate(ColumnType.bool)
    yield _Candidate(ColumnType.int64)
    yield _Candidate(ColumnType.double)
    yield _Candidate(ColumnType.double, decimal=",")
    yield _Candidate(ColumnType.timestamp)
    for form in ("", *_FORMATS):
        yield _Candidate(ColumnType.timestamp, form, zone="UTC")


def _look(column: _Column, cells: pa.Array) -> None:
    """Take some cells of a column into account."""
    nulls = pc.is_in(cells, pa.array(_NULLS))
    column.nulls[""] += cells.null_count
    column.nulls.update({each["values"]: each["counts"] for each in pc.value_counts(cells.filter(nulls)).to_pylist()})
    held = cells.filter(pc.and_(pc.invert(nulls), cells.is_valid())).cast(pa.binary())
    column.rows += len(held)
    if not len(held):
        return
    head = held.slice(0, 200)
    first = column.rows == len(held)
    column.too_fine = (first or column.too_fine) and bool(pc.all(pc.match_substring_regex(head, _TOO_FINE)).as_py())
    for candidate in list(column.candidates):
        if column.candidates[candidate] == 0 and _misfits(head, candidate) > len(head) // 2:
            del column.candidates[candidate]
            continue
        column.candidates[candidate] += _misfits(held, candidate)
        if column.candidates[candidate] > _MOST_MISFITS * max(column.rows, 200):
            del column.candidates[candidate]
    if any(one.kind is ColumnType.int64 or one.decimal == "." for one in column.candidates):
        span = pc.min_max(read_texts(held, ColumnType.double, decimal=".", zone="", form="").values).as_py()
        if span["min"] is not None:
            column.low, column.high = min(column.low, span["min"]), max(column.high, span["max"])


def _misfits(cells: pa.Array, candidate: _Candidate) -> int:
    read = read_texts(cells, candidate.kind, decimal=candidate.decimal, zone=candidate.zone, form=candidate.form)
    return 0 if read.fits is None else int(pc.sum(pc.invert(read.fits)).as_py() or 0)


def _told(column: _Column) -> SniffedColumn:
    """The first way to read a column of those that fit most of its values; a text where none does."""
    if not column.rows or not column.candidates:
        return SniffedColumn(column.name, ColumnType.string, too_fine=column.too_fine)
    fewest = min(column.candidates.values())
    best = [candidate for candidate, misfits in column.candidates.items() if misfits == fewest]
    chosen = best[0]
    if chosen.kind is ColumnType.bool and any(one.kind is ColumnType.int64 for one in best):
        chosen = next(one for one in best if one.kind is ColumnType.int64)  # 0 and 1
    if unit := _unit(column, chosen):
        chosen = _Candidate(ColumnType.timestamp, unit)
    others = [one.form for one in best if one.form and one != chosen and chosen.form in _FORMATS]
    naive = chosen.kind is ColumnType.timestamp and bool(chosen.zone)
    also = others[0] if others else ""
    epoch = _epoch(column, chosen, _PLAUSIBLE)
    return SniffedColumn(
        column.name, chosen.kind, chosen.form, chosen.decimal, naive, misfits=fewest, also=also, epoch=epoch
    )


def _epoch(column: _Column, chosen: _Candidate, years: tuple[float, float]) -> str:
    """The unit since 1970 in which all numbers of a column are in these years; empty for none."""
    if chosen.kind not in (ColumnType.int64, ColumnType.double) or chosen.decimal != ".":
        return ""
    low, high = years
    fits = (unit for unit, each in _PER_SECOND.items() if low * each <= column.low and column.high <= high * each)
    return next(fits, "")


def _unit(column: _Column, chosen: _Candidate) -> str:
    """The unit since 1970 that a column of numbers is in, where its name and all its values say so."""
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column.name).lower())
    glued = {word for word in words if _GLUED.fullmatch(word)} - _NOT_GLUED
    last = max((place for place, word in enumerate(words) if word in _TIME_WORDS | glued), default=len(words))
    if last == len(words) or _NO_TIMES.intersection(words[last:]):
        return ""
    return _epoch(column, chosen, _PLAUSIBLE if words[last] in glued else _USUAL)


def _with_decimal(column: _Column, told: SniffedColumn, decimal: str) -> SniffedColumn:
    """A column as it is with the decimal sign of the file: numbers with another one are texts."""
    wrong = told.kind is ColumnType.double and told.decimal != decimal
    return SniffedColumn(column.name, ColumnType.string) if wrong else told


def source_of(sniffed: Sniffed, path: Path, name: str, delivered: str) -> dict[str, Any]:
    """The declaration that reads a file as it was told, as `source` of a project has it.

    A file without times gets one that all its rows have, as the column delivered_at.

    Args:
        sniffed: What was told.
        path: The file.
        name: Of the source and its table.
        delivered: The time that all rows have where they have none of their own, ISO 8601 in UTC.

    Raises:
        SourceError: if no column has a name.
    """
    columns = {column.name: str(column.kind) for column in sniffed.named}
    if not columns:
        raise SourceError(f"{path.name}: expected columns with names, found none.")
    zone = {"time_zone": "UTC"} if any(column.naive for column in sniffed.named) else {}
    # A small file may lose two rows, a large one as many as told its types.
    limit = max(2 * _MOST_MISFITS, min(1.0, 2 / max(sniffed.rows + sniffed.uneven, 1)))
    limit = math.ceil(limit * 10**4) / 10**4
    table: dict[str, Any] = {"member": path.name, "on_invalid": "reject", "reject_limit": limit}
    if sniffed.event_time:
        table |= {"columns": columns, "event_time": sniffed.event_time}
    else:
        table |= {"columns": {_DELIVERED: "timestamp", **columns}, "event_time": _DELIVERED, "delivered": delivered}
    defaults = {"delimiter": "," if sniffed.delimiter else "", "decimal": ".", "encoding": "utf-8"}
    table |= {key: found for key, default in defaults.items() if (found := getattr(sniffed, key)) != default}
    if times := {column.name: column.form for column in sniffed.named if column.form}:
        table["times"] = times
    if len(sniffed.named) < len(sniffed.columns):
        table["guards"] = {"new_column": "accept"}  # what has no name
    nulls = {"nulls": list(sniffed.nulls)} if sniffed.nulls != _DEFAULT_NULLS else {}
    return {"name": name, "kind": "files", "path": str(path.parent), **zone, **nulls, "tables": {name: table}}
