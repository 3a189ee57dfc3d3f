"""Exact counts: the distinct values of some rows, in order, and how many rows have each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.statistics.kinds import Numbers

Counts = npt.NDArray[np.int64]

# A column with more distinct values, or more bytes of distinct text, is sketched.
MOST_VALUES = 65_536
MOST_BYTES = 8 * 2**20
_NARROW = 65_536


@dataclass(frozen=True)
class CountedNumbers:
    """Distinct numbers in ascending order, int64 or float64 and finite, with their row counts."""

    values: Numbers
    counts: Counts

    @classmethod
    def of(cls, values: Numbers) -> "CountedNumbers":
        """Count numbers, shape (rows,): a narrow range of whole numbers in one array, anything else by sorting."""
        if not len(values):
            return cls(values, np.empty(0, np.int64))
        if values.dtype == np.int64:
            low, high = int(values.min()), int(values.max())
            if high - low < max(len(values), _NARROW):
                found = np.bincount(values - low)
                held = np.flatnonzero(found)
                return cls(held + low, found[held])
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

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return int(self.counts.sum())

    @property
    def fits(self) -> bool:
        """Whether there are few enough values to keep all of them."""
        return len(self.values) <= MOST_VALUES


def _starts(ordered: Numbers) -> Counts:
    """Where each run of equal values begins."""
    differs = np.empty(len(ordered), np.bool_)
    differs[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return np.flatnonzero(differs)


@dataclass(frozen=True)
class CountedTexts:
    """Distinct texts in order of appearance, as `large_string`, with their row counts."""

    values: pa.Array
    counts: Counts

    @classmethod
    def of(cls, values: pa.Array) -> "CountedTexts":
        """Count texts, shape (rows,), possibly dictionary encoded, without nulls."""
        found = pc.value_counts(values)
        texts = found.field("values")
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        return cls(texts.cast(pa.large_string()), np.asarray(found.field("counts").to_numpy()))

    def merged(self, other: "CountedTexts") -> "CountedTexts":
        """The counts of both."""
        encoded = pa.concat_arrays([self.values, other.values]).dictionary_encode()
        counts = np.zeros(len(encoded.dictionary), np.int64)
        np.add.at(counts, encoded.indices.to_numpy(), np.concatenate((self.counts, other.counts)))
        return CountedTexts(encoded.dictionary, counts)

    def ranked(self, most: int) -> list[list[Any]]:
        """The most frequent texts with their counts, of equals the first in the order of code points."""
        table = pa.table({"value": self.values, "count": self.counts})
        order = pc.sort_indices(table, [("count", "descending"), ("value", "ascending")])[:most]
        best = table.take(order)
        return [list(pair) for pair in zip(best["value"].to_pylist(), best["count"].to_pylist(), strict=True)]

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return int(self.counts.sum())

    @property
    def fits(self) -> bool:
        """Whether there are few and short enough values to keep all of them."""
        return len(self.values) <= MOST_VALUES and text_bytes(self.values) <= MOST_BYTES


def text_bytes(values: pa.Array) -> int:
    """Bytes of all texts, shape (rows,), together, whatever buffers they lie in."""
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)
