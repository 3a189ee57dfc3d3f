"""What is exact about texts however many there are: lengths, extremes, and rows that have one of some known texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.statistics.counted import CountedTexts

# Characters of a text that is listed among frequent ones.
LONGEST_TEXT = 256


@dataclass(frozen=True)
class Lengths:
    """Lengths in characters: the shortest, the longest, and the sum over all rows."""

    least: int
    most: int
    total: int

    @classmethod
    def of(cls, counted: CountedTexts) -> "Lengths":
        """Measure counted texts, of which there is at least one."""
        lengths = np.asarray(pc.utf8_length(counted.values).to_numpy()).astype(np.int64)
        return cls(int(lengths.min()), int(lengths.max()), int((lengths * counted.counts).sum()))

    def merged(self, other: "Lengths") -> "Lengths":
        """The lengths of both."""
        return Lengths(min(self.least, other.least), max(self.most, other.most), self.total + other.total)


def extremes_of(values: pa.Array) -> tuple[str, str]:
    """The first and the last of texts, shape (rows,), in the order of code points."""
    found = pc.min_max(values).as_py()
    return found["min"], found["max"]


def counts_of_known(counted: CountedTexts, known: Sequence[Any] | None) -> npt.NDArray[np.int64]:
    """How many rows have each of the known texts; shape (known,)."""
    found = pc.index_in(pa.array(known or (), pa.large_string()), value_set=counted.values)
    places = pc.fill_null(found, -1).to_numpy()
    counts: npt.NDArray[np.int64] = np.append(counted.counts, 0)[places]
    return counts
