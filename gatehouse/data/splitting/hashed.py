"""Divides by hash: rows of equal hash stay together, and a row's part follows from its own hash alone.

Only strata are cut by rank, so that their fractions hold to within one row; see `by_rank`.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.data.splitting.partition import NONE, TEST, TRAIN, VALIDATION, Codes, Partition, rows_of
from gatehouse.data.splitting.spec import Fractions
from gatehouse.data.splitting.stable_hash import Flags, Hashes

_SPACE = 1 << 64


def by_threshold(hashes: Hashes, fractions: Fractions) -> Codes:
    """The part of every row: its hash as a number from 0 to 1, held against the sums of the fractions.

    Hashes and parts have the shape (rows,).
    """
    bounds = np.array([int(Fraction(bound) * _SPACE) for bound in _bounds(fractions)], np.uint64)
    return np.searchsorted(bounds, hashes, side="right").astype(np.int8)


def by_rank(hashes: Hashes, strata: Hashes, fractions: Fractions) -> Codes:
    """The part of every row, where each stratum holds the fractions to within one row.

    Rows are ranked by hash within their stratum; a stratum of n rows is cut at n times the sums of the fractions,
    rounded half up. Rows of equal hash share a rank, so they stay together, and the order of rows does not matter.

    Args:
        hashes: Hash of each row's key, shape (rows,).
        strata: Hash of each row's stratum, same shape.
        fractions: The shares of the parts.
    """
    ranks, sizes = _ranks(hashes, strata)
    codes = np.zeros(len(hashes), np.int8)
    for bound in _bounds(fractions):
        codes += ranks >= np.floor(bound * sizes + 0.5)
    return codes


def _bounds(fractions: Fractions) -> tuple[float, float]:
    return fractions.train, fractions.train + fractions.validation


def _ranks(hashes: Hashes, strata: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rank of each row within its stratum, from 0, the least of equal hashes; and the size of its stratum."""
    count = len(hashes)
    numbers = pa.array(strata).dictionary_encode().indices.to_numpy()
    if count and int(numbers.max()) < 1 << 16:
        numbers = numbers.astype(np.uint16)  # numpy sorts these by radix.
    order = np.argsort(hashes)
    order = order[np.argsort(numbers[order], kind="stable")]
    places = np.arange(count)
    ordered, groups = hashes[order], numbers[order]
    new_group = np.ones(count, np.bool_)
    new_group[1:] = groups[1:] != groups[:-1]
    new_rank = new_group.copy()
    new_rank[1:] |= ordered[1:] != ordered[:-1]
    begins = np.maximum.accumulate(np.where(new_group, places, 0))
    least = np.maximum.accumulate(np.where(new_rank, places, 0))
    starts = np.flatnonzero(new_group)
    lengths = np.diff(np.append(starts, count))
    ranks, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    ranks[order] = least - begins
    sizes[order] = np.repeat(lengths, lengths)
    return ranks, sizes


def held_out(hashes: Hashes, fraction: float) -> Flags:
    """Whether each row is held out: the hashes below the fraction; shape (rows,)."""
    return hashes < np.uint64(int(Fraction(fraction) * _SPACE))


def fold_by_threshold(hashes: Hashes, folds: int) -> Codes:
    """The fold of every row, from 0, by its hash alone; shape (rows,)."""
    return ((hashes >> np.uint64(32)) * np.uint64(folds) >> np.uint64(32)).astype(np.int8)


def fold_by_rank(hashes: Hashes, strata: Hashes, folds: int, held_out: float = 0.0) -> tuple[Codes, Flags]:
    """The fold of every row, and whether it is held out; both to within one row in each stratum.

    Each stratum begins at a fold of its own, else small strata would all lie in the first.

    Args:
        hashes: Hash of each row's key, shape (rows,).
        strata: Hash of each row's stratum, same shape.
        folds: Their number.
        held_out: Share of each stratum that is held out: its first rows by hash.
    """
    ranks, sizes = _ranks(hashes, strata)
    cuts = np.floor(held_out * sizes + 0.5).astype(np.int64)
    first = fold_by_threshold(strata, folds).astype(np.int64)
    dealt = (ranks - cuts) * folds // np.maximum(sizes - cuts, 1)
    return ((dealt + first) % folds).astype(np.int8), ranks < cuts


def k_folds(fold_of: Codes, test: Flags, left_out: Flags, folds: int) -> Partition:
    """A test part and folds of the other rows.

    Args:
        fold_of: Fold of every row, shape (rows,); of no matter for rows of the test part.
        test: Whether a row is of the test part, shape (rows,).
        left_out: Whether a row is in no part, shape (rows,).
        folds: Their number. The last one's parts are those of the split.
    """

    def codes(number: int) -> Codes:
        chosen = np.where(fold_of == number, np.int8(VALIDATION), np.int8(TRAIN))
        chosen[test] = TEST
        chosen[left_out] = NONE
        return chosen

    def fold(number: int) -> dict[str, npt.NDArray[np.int64]]:
        found = rows_of(codes(number))
        return {name: found[name] for name in ("train", "validation")}

    return Partition(rows_of(codes(folds - 1)), folds=folds, fold=fold)
