"""What type a column of texts that nobody declared seems to have: told by the functions that read it into a snapshot.

All rows are looked at. Where at most one value of twenty does not fit, such as `nil`, the others still tell the type.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.epoch_units import unit_by_name, unit_of_our_years
from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.snapshot.written_numbers import COMMAS, DECIMAL_COMMA, POINTS, THOUSANDS, WrittenNumbers
from gatehouse.data.sources.csv_texts import read_texts
from gatehouse.runtime.counting import counted

_MOST_MISFITS = 0.05
_HEAD = 200
_WORDS_COUNTED, _LONGEST_WORD = 20, 20
_LIKE_A_DAY = r"^(?:\d{1,4}|[A-Za-z]{3,9})[-./ ](?:\d{1,2}|[A-Za-z]{3}),?[-./ ]\d"
_PADDED = r"^[ \t]*[+-]?0\d+[ \t]*$"
_LONG = r"^[ \t]*[+-]?0*[1-9]\d{15,}[ \t]*$"
NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", "\\N", "#N/A", ".")
_MARKS = pa.array(NULLS)
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%b %d %Y", "%d %b %Y", "%d-%b-%Y", "%B %d, %Y")
_FORMATS = (*(f"{day}{clock}" for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S")), "%m/%d/%y")
_TOO_FINE = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{7,9}(?:Z|[+-]\d\d:?\d\d)?$"


@dataclass(frozen=True)
class SniffedColumn:
    """A column.

    Attributes:
        name: Its name in the header.
        kind: The type that its values have.
        form: How it writes times, as `times` of a table has it.
        decimal: The decimal sign of its doubles.
        naive: Whether its times state no zone.
        missing: Rows without a value.
        misfits: Those that have another type; they would be rejected, or make the column a text.
        such_as: One of the misfits, where it is short; else empty.
        mostly: The text that most misfits are, where it stands more than once and is short; else empty.
        mostly_rows: How many these are.
        almost: The type that most values of a text column have; empty for none.
        why_text: Why it is a text, though its values seem to be something else; empty where they do not.
        also: Another format that all its times fit too; empty for none.
        epoch: Of numbers the unit in which all are times of the years 1990 to 2100 since 1970; empty for none.
        too_fine: Whether its texts are times with more digits than a microsecond has.
        left_out: Why it is left out of a snapshot; empty where it is not.
        note: What more there is to say of how it is read.
        marks: Signs in its numbers for which they are not read as numbers; empty for none.
        doubtful: Whether its decimal signs may also stand between thousands.
    """

    name: str
    kind: ColumnType
    form: str = ""
    decimal: str = "."
    naive: bool = False
    missing: int = 0
    misfits: int = 0
    such_as: str = ""
    mostly: str = ""
    mostly_rows: int = 0
    almost: str = ""
    why_text: str = ""
    also: str = ""
    epoch: str = ""
    too_fine: bool = False
    left_out: str = ""
    note: str = ""
    marks: tuple[str, ...] = ()
    doubtful: bool = False


@dataclass(frozen=True)
class _Candidate:
    """A way to read a column."""

    kind: ColumnType
    form: str = ""
    decimal: str = "."
    zone: str = ""


@dataclass
class Texts:
    """What is known of a column so far."""

    name: str
    candidates: dict[_Candidate, int] = field(default_factory=lambda: dict.fromkeys(_candidates(), 0))
    """Ways to read it that are still possible, with how many values do not fit."""
    odd: dict[_Candidate, Counter[bytes]] = field(default_factory=dict)
    """What does not fit and is frequent."""
    rows: int = 0
    padded: int = 0
    long: int = 0
    too_fine: bool = False
    nulls: Counter[str] = field(default_factory=Counter)
    low: float = float("inf")
    high: float = float("-inf")
    numbers: WrittenNumbers = field(default_factory=WrittenNumbers)
    signs: Counter[str] = field(default_factory=Counter)
    """Values with a point or a comma, by this sign."""
    decimals: Counter[str] = field(default_factory=Counter)
    """Those in which it cannot stand between thousands."""


def _candidates() -> Iterator[_Candidate]:
    yield _Candidate(ColumnType.bool)
    yield _Candidate(ColumnType.int64)
    yield _Candidate(ColumnType.double)
    yield _Candidate(ColumnType.double, decimal=",")
    yield _Candidate(ColumnType.timestamp)
    for form in ("", *_FORMATS):
        yield _Candidate(ColumnType.timestamp, form, zone="UTC")


def look(column: Texts, cells: pa.Array, marks: pa.Array = _MARKS) -> None:
    """Take some cells of a column into account; `marks` are texts that may stand for a missing value."""
    nulls = pc.is_in(cells, marks)
    column.nulls[""] += cells.null_count
    column.nulls.update({each["values"]: each["counts"] for each in pc.value_counts(cells.filter(nulls)).to_pylist()})
    texts = cells.filter(pc.and_(pc.invert(nulls), cells.is_valid()))
    held = texts.cast(pa.binary())
    column.rows += len(held)
    if not len(held):
        return
    first = column.rows == len(held)
    fine = pc.match_substring_regex(held.slice(0, _HEAD), _TOO_FINE)
    column.too_fine = (first or column.too_fine) and bool(pc.all(fine).as_py())
    if first:
        _leave_out(column, held.take(pa.array(range(0, len(held), -(-len(held) // _HEAD)))))
    no_numbers = {}
    for candidate in list(column.candidates):
        odd = _odd(held, candidate)
        if candidate.kind is ColumnType.double:
            no_numbers[candidate.decimal] = odd
        column.candidates[candidate] += len(odd)
        if column.candidates[candidate] > column.rows // 2:
            del column.candidates[candidate]
        elif len(odd):
            column.odd.setdefault(candidate, Counter()).update(_most_frequent(odd))
    if any(one.kind in (ColumnType.int64, ColumnType.double) for one in column.candidates):
        column.padded += _matching(texts, _PADDED)
        column.long += _matching(texts, _LONG)
        span = pc.min_max(read_texts(held, ColumnType.double, decimal=".", zone="", form="").values).as_py()
        if span["min"] is not None:
            column.low, column.high = min(column.low, span["min"]), max(column.high, span["max"])
    if no_numbers:
        column.numbers.count(min(no_numbers.values(), key=len).view(pa.string()))
    else:
        column.numbers.look(texts)
    for sign, pattern in THOUSANDS.items():
        if sign in no_numbers:
            signed = texts.filter(pc.match_substring(texts, sign))
            column.signs[sign] += len(signed)
            column.decimals[sign] += len(signed) - _matching(signed, pattern)


def _leave_out(column: Texts, sample: pa.Array) -> None:
    """Leave out the ways to read a column that do not fit most of a sample of it."""
    most = len(sample) // 2
    if len(sample) - _matching(sample, _LIKE_A_DAY) > most:  # Each format would take longer to try.
        column.candidates = {each: 0 for each in column.candidates if not each.form}
    column.candidates = {each: 0 for each in column.candidates if len(_odd(sample, each)) <= most}


def _matching(texts: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0)


def _odd(cells: pa.Array, candidate: _Candidate) -> pa.Array:
    """The cells that do not fit."""
    read = read_texts(cells, candidate.kind, decimal=candidate.decimal, zone=candidate.zone, form=candidate.form)
    return cells.slice(0, 0) if read.fits is None else cells.filter(pc.invert(read.fits))


def _most_frequent(cells: pa.Array) -> dict[bytes, int]:
    counts = pc.value_counts(cells)
    order = pc.array_sort_indices(counts.field("counts"), order="descending")[:_WORDS_COUNTED]
    return {each["values"]: each["counts"] for each in counts.take(order).to_pylist()}


def type_of(column: Texts) -> SniffedColumn:
    """The first way to read a column of those that fit nearly all of its values; a text where none does."""
    told = _type_of(column)
    marks = () if too_many(column.numbers.others, column.rows) else column.numbers.told()
    # A few odd values do not tell what the signs of all others are.
    signs, decimals = column.signs[told.decimal], column.decimals[told.decimal]
    doubtful = told.kind is ColumnType.double and signs > 0 and decimals <= _MOST_MISFITS * signs
    return replace(told, marks=marks, doubtful=doubtful)


def _type_of(column: Texts) -> SniffedColumn:
    text = SniffedColumn(column.name, ColumnType.string, too_fine=column.too_fine)
    if not column.rows or not column.candidates:
        return text
    fewest = min(column.candidates.values())
    best = [candidate for candidate, misfits in column.candidates.items() if misfits == fewest]
    chosen = best[0]
    if chosen.kind is ColumnType.bool and any(one.kind is ColumnType.int64 for one in best):
        chosen = next(one for one in best if one.kind is ColumnType.int64)  # 0 and 1
    if digits := _digits(column, chosen):
        return replace(text, why_text=digits)
    such_as, rows = _frequent_word(column.odd.get(chosen, Counter()))
    mostly = such_as if rows > 1 and 2 * rows >= fewest else ""
    with_odd = partial(replace, misfits=fewest, such_as=such_as, mostly=mostly, mostly_rows=rows if mostly else 0)
    if too_many(fewest, column.rows):
        return with_odd(text, almost=str(chosen.kind))
    number = chosen.kind in (ColumnType.int64, ColumnType.double) and chosen.decimal == "."
    if number and (unit := unit_by_name(column.name, column.low, column.high)):
        chosen, number = _Candidate(ColumnType.timestamp, unit), False
    others = [one.form for one in best if one.form and one != chosen and chosen.form in _FORMATS]
    found = SniffedColumn(
        column.name,
        chosen.kind,
        chosen.form,
        chosen.decimal,
        naive=chosen.kind is ColumnType.timestamp and bool(chosen.zone),
        also=others[0] if others else "",
        epoch=unit_of_our_years(column.low, column.high) if number else "",
    )
    return with_odd(found)


def too_many(misfits: int, rows: int) -> bool:
    """Whether so many values do not fit that the others do not tell the type."""
    return misfits > max(1, _MOST_MISFITS * rows)


def _digits(column: Texts, chosen: _Candidate) -> str:
    """Why its numbers are texts that would lose digits; empty where they would not."""
    if chosen.kind not in (ColumnType.int64, ColumnType.double):
        return ""
    if column.padded:
        begin = "begins" if column.padded == 1 else "begin"
        return f"{counted(column.padded, 'value')} {begin} with 0, which a number would lose"
    if column.long and chosen.kind is ColumnType.double:
        of = "a whole number" if column.long == 1 else "whole numbers"
        is_or_are = "is" if column.long == 1 else "are"
        return f"{counted(column.long, 'value')} {is_or_are} {of} of more than 15 digits, which a double would lose"
    return ""


def _frequent_word(odd: Counter[bytes]) -> tuple[str, int]:
    """The text that most values that do not fit are, and how many; none where it is long."""
    ((word, count),) = odd.most_common(1) or [(b"", 0)]
    text = word.decode(errors="replace")
    return (text, count) if len(text) <= _LONGEST_WORD else ("", 0)


def with_decimal(told: SniffedColumn, decimal: str, delimiter: str, *, sure: bool) -> SniffedColumn:
    """A column as it is with the decimal sign of the file: numbers with another one are texts.

    Args:
        told: The column.
        decimal: The decimal sign.
        delimiter: Between cells; where it is a semicolon, points may well stand between thousands.
        sure: Whether some column shows that this is the decimal sign.
    """
    if told.kind is not ColumnType.double:
        return told
    own = told.decimal == decimal
    marks: tuple[str, ...] = (COMMAS,) if told.decimal == "," else (POINTS,)
    if own and told.doubtful and not sure and delimiter == ";":
        why = "its points may stand between thousands or before decimals"
    elif own:
        note = "its commas may stand between thousands, and are read as decimal, as those of other columns are"
        return replace(told, note=note) if told.doubtful and decimal == "," else told
    elif told.doubtful and told.decimal == ",":
        clear = "its commas stand between thousands: numbers of other columns have a decimal point"
        why = clear if sure else "its commas may stand between thousands or before decimals"
    elif told.decimal == ",":
        why, marks = "its numbers have a decimal comma, and commas separate the cells", (DECIMAL_COMMA,)
    else:
        why, marks = "its numbers have a decimal point, those of other columns a comma", ()
    doubtful = told.doubtful and not sure
    return SniffedColumn(told.name, ColumnType.string, why_text=why, marks=marks, doubtful=doubtful)
