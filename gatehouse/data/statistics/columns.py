"""Exact statistics of a part of one column: its kind, its distinct values with their row counts, and moments."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]

# A column with more distinct values, or more bytes of distinct text, is sketched.
MOST_VALUES = 65_536
MOST_BYTES = 8 * 2**20
LONGEST_TEXT = 256
"""Characters of a text that is listed among frequent ones."""
_NARROW = 65_536
_EPOCH = datetime(1970, 1, 1)


class Kind(StrEnum):
    """The kinds of columns. Of `other` (lists, structs, bytes, durations) only nulls are counted."""

    WHOLE = "whole"
    REAL = "real"
    TEXT = "text"
    TRUTH = "truth"
    TIME = "time"
    OTHER = "other"


def kind_of(arrow: pa.DataType) -> Kind:
    """The kind of an Arrow type; a dictionary has the kind of its values."""
    types = pa.types
    if types.is_dictionary(arrow):
        return kind_of(arrow.value_type)
    if types.is_boolean(arrow):
        return Kind.TRUTH
    if types.is_integer(arrow):
        # An unsigned number of 64 bits does not fit into a signed one; as a double it blurs above 2^53.
        return Kind.REAL if types.is_uint64(arrow) else Kind.WHOLE
    if types.is_floating(arrow) or types.is_decimal(arrow):
        return Kind.REAL
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return Kind.TEXT
    if types.is_timestamp(arrow) or types.is_date(arrow):
        return Kind.TIME
    return Kind.OTHER


def numbers_of(values: pa.Array, kind: Kind) -> Numbers:
    """Values without nulls as int64 or float64, shape (rows,).

    Truth values are 0 and 1, times microseconds since 1970 in UTC.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind is Kind.TIME:
        values = pc.cast(values, pa.timestamp("us"), safe=False)
    elif kind is Kind.REAL:
        # Adding zero turns -0.0 into 0.0, which it equals.
        return np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy()) + 0.0
    numbers: Numbers = pc.cast(values, pa.int64()).to_numpy()
    return numbers


def time_text(microseconds: int, arrow: str) -> str:
    """Microseconds since 1970 as ISO 8601: a date for a date column, with its zone if the Arrow type `arrow` has one.

    Years that Python's calendar does not reach are written as numpy does.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return str(np.datetime64(microseconds, "us"))
    if arrow.startswith("date"):
        return moment.date().isoformat()
    return (moment.replace(tzinfo=UTC) if "tz=" in arrow else moment).isoformat()


@dataclass(frozen=True)
class ColumnPlan:
    """The plan for one column; a sensitive one is measured by rows, nulls and distinct values only.

    The baseline's bins have `edges`, its histogram has `display` as edges, and `listed` are the values that it lists.
    """

    name: str
    arrow: str
    kind: Kind
    sensitive: bool = False
    edges: tuple[float, ...] | None = None
    display: tuple[float, ...] = ()
    listed: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, field: pa.Field, sensitive: bool, baseline: Mapping[str, Any]) -> "ColumnPlan":
        """Plan a column; a baseline of another kind gives no bins."""
        kind, plan = kind_of(field.type), cls(field.name, str(field.type), kind_of(field.type), sensitive)
        if sensitive:
            return plan
        if kind in (Kind.WHOLE, Kind.REAL) and "edges" in baseline:
            display = baseline.get("histogram", {}).get("edges", ())
            return cls(plan.name, plan.arrow, kind, edges=tuple(baseline["edges"]), display=tuple(display))
        if kind in (Kind.TEXT, Kind.TRUTH) and "values" in baseline:
            python_type = str if kind is Kind.TEXT else bool
            values = tuple(value for value, _ in baseline["values"] if isinstance(value, python_type))
            return cls(plan.name, plan.arrow, kind, listed=values)
        return plan


@dataclass(frozen=True)
class Counted:
    """Distinct values of a column, shape (values,), with the rows of each."""

    values: Any
    counts: Counts

    @property
    def rows(self) -> int:
        """Number of rows that were counted."""
        return int(self.counts.sum())

    @property
    def fits(self) -> bool:
        """Whether there are few enough values to keep all of them."""
        return len(self.values) <= MOST_VALUES


@dataclass(frozen=True)
class CountedNumbers(Counted):
    """Distinct numbers in ascending order, int64 or float64 and finite."""

    @classmethod
    def of(cls, values: Numbers) -> "CountedNumbers":
        """Count numbers, shape (rows,): a narrow range of whole numbers in one array, anything else by sorting."""
        if not len(values):
            return cls(values, np.empty(0, np.int64))
        if values.dtype == np.int64:
            low, high = int(values.min()), int(values.max())
            if high - low < max(len(values), _NARROW):
                counts = np.bincount(values - low)
                present = np.flatnonzero(counts)
                return cls(present + low, counts[present])
        ordered = np.sort(values)
        starts = _starts(ordered)
        return cls(ordered[starts], np.diff(starts, append=len(ordered)))

    def merged(self, other: "CountedNumbers") -> "CountedNumbers":
        """The counts of both."""
        if not len(self.values) or not len(other.values):
            return self if len(self.values) else other
        values = np.concatenate((self.values, other.values))
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        starts = _starts(ordered)
        counts = np.concatenate((self.counts, other.counts))[order]
        return CountedNumbers(ordered[starts], np.add.reduceat(counts, starts))

    def points(self) -> tuple[Numbers, Numbers]:
        """Ascending values, shape (points,), and the rows of each, same shape."""
        return self.values, self.counts


def _starts(ordered: Numbers) -> Counts:
    """Index of the first of each run of equal values."""
    differs = np.empty(len(ordered), np.bool_)
    differs[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return np.flatnonzero(differs)


@dataclass(frozen=True)
class CountedTexts(Counted):
    """Distinct texts in order of appearance, as `large_string`."""

    @classmethod
    def of(cls, values: pa.Array) -> "CountedTexts":
        """Count texts without nulls, shape (rows,), possibly dictionary encoded."""
        counted = pc.value_counts(values)
        texts = counted.field("values")
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        return cls(texts.cast(pa.large_string()), np.asarray(counted.field("counts").to_numpy()))

    def merged(self, other: "CountedTexts") -> "CountedTexts":
        """The counts of both."""
        encoded = pa.concat_arrays([self.values, other.values]).dictionary_encode()
        counts = np.zeros(len(encoded.dictionary), np.int64)
        np.add.at(counts, encoded.indices.to_numpy(), np.concatenate((self.counts, other.counts)))
        return CountedTexts(encoded.dictionary, counts)

    def ranked(self, most: int) -> list[list[Any]]:
        """The most frequent texts with their counts; ties are sorted by code points."""
        table = pa.table({"value": self.values, "count": self.counts})
        order = pc.sort_indices(table, [("count", "descending"), ("value", "ascending")])[:most]
        best = table.take(order)
        return [list(pair) for pair in zip(best["value"].to_pylist(), best["count"].to_pylist(), strict=True)]

    @property
    def fits(self) -> bool:
        """Whether there are few and short enough values to keep all of them."""
        return super().fits and int(pc.sum(pc.binary_length(self.values)).as_py() or 0) <= MOST_BYTES

    def rows_of(self, texts: Sequence[Any] | None) -> Counts:
        """Rows that have each of the texts, shape (texts,)."""
        indices = pc.index_in(pa.array(texts or (), pa.large_string()), value_set=self.values)
        rows: Counts = np.append(self.counts, 0)[pc.fill_null(indices, -1).to_numpy()]
        return rows


def ranks(values: Numbers, weights: Numbers, edges: Sequence[float], side: Any) -> Numbers:
    """Rows below each edge (`left`), or up to it (`right`); `weights` are the rows of each ascending value."""
    cumulated = np.concatenate((np.zeros(1, weights.dtype), np.cumsum(weights)))
    rows: Numbers = cumulated[np.searchsorted(values, np.asarray(edges, np.float64), side=side)]
    return rows


def exact_sum(values: npt.NDArray[np.float64]) -> float:
    """The sum of values, shape (values,), rounded once; infinite if it is beyond a double."""
    try:
        return math.fsum(values.tolist())
    except OverflowError:
        return math.inf
    except ValueError:  # Infinities of both signs.
        return math.nan


def fast_sum(values: npt.NDArray[np.float64]) -> float:
    """The sum of values, shape (values,), by pairs: twenty times faster, and rounded more often."""
    return float(values.sum())


@dataclass(frozen=True)
class Moments:
    """Of finite numbers: rows, their sum (exact for whole numbers), mean, and squared distances from the mean."""

    rows: int
    total: int | float
    mean: float
    squares: float

    @classmethod
    def of(cls, counted: CountedNumbers, add: Callable[[npt.NDArray[np.float64]], float] = exact_sum) -> "Moments":
        """Moments of counted numbers.

        Floats are summed by `exact_sum`, so that no order of rows changes a digit, or by `fast_sum`.
        """
        values, counts, rows = counted.values, counted.counts, counted.rows
        if rows == 0:
            return cls(0, 0, 0.0, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            if values.dtype == np.int64:
                whole = _whole_sum(values, counts)
                distances = _distances(values, whole, rows)
                return cls(rows, whole, whole / rows, add(distances * distances * counts))
            total = add(values * counts)
            # The mean may be a double although the sum is beyond the largest one.
            mean = total / rows if math.isfinite(total) else add(values * (counts / rows))
            distances = values - mean
            return cls(rows, total, mean, add(distances * distances * counts))

    def merged(self, other: "Moments") -> "Moments":
        """Moments of both (Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm, 1979)."""
        if self.rows == 0 or other.rows == 0:
            return self if self.rows else other
        rows, total = self.rows + other.rows, self.total + other.total
        apart = other.mean - self.mean
        mean = total / rows if isinstance(total, int) else self.mean + apart * (other.rows / rows)
        squares = self.squares + other.squares + apart * apart * (self.rows * (other.rows / rows))
        return Moments(rows, total, mean, squares)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the sample; None below two rows."""
        return math.sqrt(self.squares / (self.rows - 1)) if self.rows > 1 else None


def _whole_sum(values: npt.NDArray[np.int64], counts: Counts) -> int:
    """Sum of products without overflow: high and low halves of the values apart, as long as they fit 64 bits."""
    if int(counts.sum()) >= 2**31:
        return sum(value * count for value, count in zip(values.tolist(), counts.tolist(), strict=True))
    high, low = values >> 32, values & 0xFFFF_FFFF
    return (int((high * counts).sum()) << 32) + int((low * counts).sum())


def _distances(values: npt.NDArray[np.int64], total: int, rows: int) -> npt.NDArray[np.float64]:
    """Distances from the mean; of numbers above 2^53 they are taken before rounding to doubles."""
    base = total // rows
    beyond = (total - base * rows) / rows
    if int(values[-1]) - int(values[0]) < 2**63:
        return (values - base).astype(np.float64) - beyond
    return values.astype(np.float64) - total / rows


@dataclass(frozen=True)
class NumberSummary:
    """Finite numbers of a column, at least one: extremes, zeros, moments, and rows in the baseline's bins.

    `up_to` counts numbers other than zero up to each edge of the bins; `below` counts those below each edge of the
    histogram, and up to the last.
    """

    low: Any
    high: Any
    zeros: int
    moments: Moments
    up_to: Counts
    below: Counts

    @classmethod
    def of(cls, counted: CountedNumbers, plan: ColumnPlan, add: Callable[[Any], float] = exact_sum) -> "NumberSummary":
        """Summarise counted numbers; floats are summed by `add`."""
        values, counts = counted.values, counted.counts
        zero = values == 0
        up_to = ranks(values[~zero], counts[~zero], plan.edges or (), "right")
        below = ranks(values, counts, plan.display, "left")
        below[-1:] = ranks(values, counts, plan.display[-1:], "right")
        low, high, zeros = values[0].item(), values[-1].item(), int(counts[zero].sum())
        return cls(low, high, zeros, Moments.of(counted, add), up_to, below)

    def merged(self, other: "NumberSummary") -> "NumberSummary":
        """The summary of both."""
        return NumberSummary(
            min(self.low, other.low),
            max(self.high, other.high),
            self.zeros + other.zeros,
            self.moments.merged(other.moments),
            self.up_to + other.up_to,
            self.below + other.below,
        )


@dataclass(frozen=True)
class TextSummary:
    """Texts of a column, at least one: extremes by code points, lengths in characters, rows of the baseline's values.

    `length` is that of all rows together.
    """

    rows: int
    low: str
    high: str
    shortest: int
    longest: int
    length: int
    listed: Counts

    @classmethod
    def of(cls, counted: CountedTexts, plan: ColumnPlan) -> "TextSummary":
        """Summarise counted texts."""
        ends = pc.min_max(counted.values).as_py()
        lengths = np.asarray(pc.utf8_length(counted.values).to_numpy()).astype(np.int64)
        shortest, longest, length = int(lengths.min()), int(lengths.max()), int((lengths * counted.counts).sum())
        return cls(counted.rows, ends["min"], ends["max"], shortest, longest, length, counted.rows_of(plan.listed))

    def merged(self, other: "TextSummary") -> "TextSummary":
        """The summary of both."""
        return TextSummary(
            self.rows + other.rows,
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.shortest, other.shortest),
            max(self.longest, other.longest),
            self.length + other.length,
            self.listed + other.listed,
        )
