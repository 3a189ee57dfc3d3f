"""Rows of a ranking by their place in their group: all that a ranking says of a label, or of a feature."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def above_median(labels: Floats, groups: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Whether each label is above the median of its group, and whether the group has different labels; shape (rows,).

    Where no label is above it, because most have the largest, those at the median count.

    Args:
        labels: Shape (rows,), without NaN.
        groups: Number of each row's group, shape (rows,); from 0, and every number occurs.
    """
    order = np.lexsort((labels, groups))
    starts, sizes = _extents(groups)
    ordered = labels[order]
    ends = starts + sizes - 1
    median = ((ordered[starts + (sizes - 1) // 2] + ordered[starts + sizes // 2]) / 2)[groups]
    largest, smallest = ordered[ends][groups], ordered[starts][groups]
    above = np.where(median == largest, labels >= median, labels > median)
    return above.astype(np.int64), smallest != largest


def places(values: Floats, groups: Integers) -> Floats:
    """Place of each value in its group, from 0 to 1, shape (rows,); equal values share the mean of their places.

    Args:
        values: Shape (rows,), without NaN.
        groups: Shape (rows,).
    """
    order = np.lexsort((values, groups))
    held, where = values[order], groups[order]
    begins = np.flatnonzero(np.r_[True, (held[1:] != held[:-1]) | (where[1:] != where[:-1])])
    ends = np.r_[begins[1:], len(held)]
    mean = np.repeat((begins + ends) / 2, ends - begins)  # place among all rows, in the middle of those with its value
    first = np.flatnonzero(np.r_[True, where[1:] != where[:-1]])
    sizes = np.diff(np.r_[first, len(where)])
    placed = np.empty(len(values))
    placed[order] = (mean - np.repeat(first, sizes)) / np.repeat(sizes, sizes)
    return placed


def _extents(groups: Integers) -> tuple[Integers, Integers]:
    """Where the rows of each group start among rows in the order of groups, and how many they are."""
    sizes = np.bincount(groups)
    return np.cumsum(sizes) - sizes, sizes
