"""Infers the types of columns that nobody declared, with the casts that read them into a snapshot.

All rows are looked at. If at most one value of twenty does not fit, the others still decide the type.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.spec import EPOCHS, ColumnType
from gatehouse.data.sources.casts import plain_array, read_as, read_texts

NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", "\\N", "#N/A", ".")
_MOST_MISFITS = 0.05
_HEAD = 200
_LIKE_A_DAY = r"^(?:\d{1,4}|[A-Za-z]{3,9})[-./ ](?:\d{1,2}|[A-Za-z]{3}),?[-./ ]\d"
_PADDED = r"^[ \t]*[+-]?0\d+[ \t]*$"
_LONG = r"^[ \t]*[+-]?0*[1-9]\d{15,}[ \t]*$"
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%b %d %Y", "%d %b %Y", "%d-%b-%Y", "%B %d, %Y")
_FORMATS = (*(f"{day}{clock}" for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S")), "%m/%d/%y")
_THOUSANDS = {sign: rf"^[+-]?[1-9]\d{{0,2}}(?:[{sign}]\d{{3}})+$" for sign in ".,"}
_TIME_WORD = re.compile("times?|dates?|datetime|timestamp|when|epoch|created|updated|at|ts")
_NO_TIMES = {"id", "ids", "by"}
"""Words that, after a word for a time, make it something else, as in created_by."""
_YEARS = (631_152_000, 4_102_444_800)
"""The years 1990 to 2100, in seconds since 1970."""


@dataclass(frozen=True)
class SniffedColumn:
    """A column.

    Attributes:
        form: How it writes times, as `times` of a table has it.
        naive: Whether its times state no zone.
        misfits: Values of another type; their rows would be rejected, or they make the column a text.
        almost: The type that most values of a text column have.
        why_text: Why numbers of it are read as text.
        also: Another format that all its times fit.
        epoch: The unit in which its numbers are times of the years 1990 to 2100 since 1970.
        number: The type of the numbers that its name made times.
    """

    name: str
    kind: ColumnType
    form: str = ""
    decimal: str = "."
    naive: bool = False
    missing: int = 0
    misfits: int = 0
    almost: str = ""
    why_text: str = ""
    also: str = ""
    epoch: str = ""
    left_out: str = ""
    number: ColumnType | None = None


@dataclass(frozen=True)
class _Candidate:
    """A way to read a column."""

    kind: ColumnType
    form: str = ""
    decimal: str = "."
    zone: str = ""

    def misfits(self, cells: pa.Array) -> pa.Array:
        read = read_texts(cells, self.kind, decimal=self.decimal, zone=self.zone, form=self.form)
        return cells.slice(0, 0) if read.fits is None else cells.filter(pc.invert(read.fits))


_CANDIDATES = (
    _Candidate(ColumnType.int64),
    _Candidate(ColumnType.bool),
    _Candidate(ColumnType.double),
    _Candidate(ColumnType.double, decimal=","),
    _Candidate(ColumnType.timestamp),
    *(_Candidate(ColumnType.timestamp, form, zone="UTC") for form in ("", *_FORMATS)),
)


class TextColumn:
    """The cells of a column of a CSV so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nulls: Counter[str] = Counter()
        """Cells that may stand for a missing value."""
        self.clear = {".": False, ",": False}
        """Whether a value has this sign where it cannot stand between thousands."""
        self._signed = {".": False, ",": False}
        self._misfits = dict.fromkeys(_CANDIDATES, 0)
        """Ways to read the column that are still possible, with how many values do not fit."""
        self._rows = self._padded = self._long = 0
        self._low, self._high = float("inf"), float("-inf")

    def look(self, cells: pa.Array, marks: pa.Array) -> None:
        """Add cells, shape (rows,), null if empty; `marks` are texts that may stand for a missing value."""
        missing = pc.is_in(cells, marks)
        counts = pc.value_counts(cells.filter(missing)).to_pylist()
        self.nulls.update({count["values"]: count["counts"] for count in counts})
        self.nulls[""] += cells.null_count
        texts = cells.filter(pc.and_(pc.invert(missing), cells.is_valid()))
        data = texts.cast(pa.binary())
        if not len(data):
            return
        if not self._rows:
            sample = data.take(pa.array(range(0, len(data), -(-len(data) // _HEAD))))
            like_days = 2 * _matching(sample, _LIKE_A_DAY) >= len(sample)  # Each format takes long to try.
            possible = (candidate for candidate in _CANDIDATES if like_days or not candidate.form)
            self._misfits = {way: 0 for way in possible if 2 * len(way.misfits(sample)) <= len(sample)}
        self._rows += len(data)
        for candidate in list(self._misfits):
            self._misfits[candidate] += len(candidate.misfits(data))
            if 2 * self._misfits[candidate] > self._rows:
                del self._misfits[candidate]
        if any(candidate.kind is not ColumnType.timestamp for candidate in self._misfits):
            self._padded += _matching(texts, _PADDED)
            self._long += _matching(texts, _LONG)
            span = pc.min_max(read_texts(data, ColumnType.double).values).as_py()
            if span["min"] is not None:
                self._low, self._high = min(self._low, span["min"]), max(self._high, span["max"])
            for sign, pattern in _THOUSANDS.items():
                signed = texts.filter(pc.match_substring(texts, sign))
                self._signed[sign] |= len(signed) > 0
                self.clear[sign] |= _matching(signed, pattern) < len(signed)

    def sniffed(self) -> SniffedColumn:
        """The first way to read the column among those that fit nearly all of its values; a text if none does."""
        text = SniffedColumn(self.name, ColumnType.string)
        if not self._rows or not self._misfits:
            return text
        fewest = min(self._misfits.values())
        best = [candidate for candidate, misfits in self._misfits.items() if misfits == fewest]
        chosen = best[0]
        number = chosen.kind in (ColumnType.int64, ColumnType.double)
        if number and self._padded:
            return replace(text, why_text=f"{self._padded:,} of its numbers begin with 0, which a number would lose")
        if chosen.kind is ColumnType.double and self._long:
            return replace(text, why_text=f"{self._long:,} of its numbers have over 15 digits, which a double loses")
        text = replace(text, misfits=fewest)
        if fewest > max(1, _MOST_MISFITS * self._rows):
            return replace(text, almost=str(chosen.kind))
        column = replace(text, kind=chosen.kind, form=chosen.form, decimal=chosen.decimal)
        if chosen.kind is ColumnType.timestamp:
            also = next((other.form for other in best[1:] if chosen.form and other.form), "")
            return replace(column, naive=bool(chosen.zone), also=also)
        return with_epoch(column, self._low, self._high) if number and chosen.decimal == "." else column

    def with_decimal(self, column: SniffedColumn, decimal: str, delimiter: str, sure: bool) -> SniffedColumn:
        """The column with the decimal sign of the file; numbers that it may change a thousandfold stay texts.

        Next to semicolons points often stand between thousands, unless some column makes `sure` that they are decimal
        signs.
        """
        ambiguous = self._signed[column.decimal] and not self.clear[column.decimal]
        if column.kind is not ColumnType.double:
            return column
        if column.decimal != decimal:
            why = f"its numbers have the decimal sign {column.decimal!r}, the file has {decimal!r}"
        elif ambiguous and not sure and (decimal == "," or delimiter == ";"):
            why = f"its signs {decimal!r} may stand between thousands or before decimals"
        else:
            return column
        return SniffedColumn(column.name, ColumnType.string, why_text=why)


def _matching(texts: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0)


def with_epoch(column: SniffedColumn, low: float, high: float) -> SniffedColumn:
    """A column of numbers from `low` to `high` as times, if its name suggests it and all are of the years 1990 to 2100.

    Without such a name, `epoch` says that they may be.
    """
    first, last = _YEARS
    factors = {unit: 10 ** (6 - digits) for unit, digits in EPOCHS.items()}
    unit = next((unit for unit, factor in factors.items() if first * factor <= low <= high <= last * factor), "")
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column.name).lower())
    named = max((place for place, word in enumerate(words) if _TIME_WORD.fullmatch(word)), default=len(words))
    if unit and named < len(words) and not _NO_TIMES.intersection(words[named:]):
        return replace(column, kind=ColumnType.timestamp, form=unit, number=column.kind)
    return replace(column, epoch=unit)


def typed_column(name: str, declared: pa.DataType) -> SniffedColumn:
    """How a column of Parquet is read, by its type."""
    kind = plain_array(pa.array([], declared)).type
    types = pa.types
    if types.is_boolean(kind):
        chosen = ColumnType.bool
    elif types.is_integer(kind) or types.is_duration(kind) or (types.is_decimal(kind) and kind.scale <= 0):
        chosen = ColumnType.int64
    elif types.is_floating(kind) or types.is_decimal(kind):
        chosen = ColumnType.double
    elif types.is_timestamp(kind) or types.is_date(kind):
        return SniffedColumn(name, ColumnType.timestamp, naive=getattr(kind, "tz", None) is None)
    elif types.is_null(kind) or read_as(pa.array([], kind), ColumnType.string):
        chosen = ColumnType.string
    else:
        return SniffedColumn(name, ColumnType.string, left_out=f"a snapshot cannot hold the type {kind}")
    return SniffedColumn(name, chosen)
