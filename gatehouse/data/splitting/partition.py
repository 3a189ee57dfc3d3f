"""What a strategy gives: the rows of each part, of each fold, and how many rows are in none, by reason."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

PARTS = ("train", "validation", "test")
PAIRS = (("train", "validation"), ("train", "test"), ("validation", "test"))
TRAIN, VALIDATION, TEST, NONE = 0, 1, 2, -1

Rows = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Parts = dict[str, Rows]


@dataclass(frozen=True)
class Partition:
    """Rows by part; row numbers ascend.

    Attributes:
        parts: Rows of `train`, `validation` and `test`.
        left_out: How many rows are in none of them, by reason.
        folds: How many folds there are besides.
        fold: Rows of a fold's `train` and `validation`, by its number; made when asked, for they are large together.
    """

    parts: Parts
    left_out: dict[str, int] = field(default_factory=dict)
    folds: int = 0
    fold: Callable[[int], Parts] = lambda number: {}

    def every_fold(self) -> Iterator[tuple[int, Parts]]:
        """Number and parts of each fold; row numbers of shape (rows of the part,)."""
        for number in range(self.folds):
            yield number, self.fold(number)


def rows_of(codes: Codes) -> Parts:
    """Rows of each part from the part of each row: 0 train, 1 validation, 2 test, -1 none; shape (rows,)."""
    return {name: np.flatnonzero(codes == code).astype(np.int64) for code, name in enumerate(PARTS)}
