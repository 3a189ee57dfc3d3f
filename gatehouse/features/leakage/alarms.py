"""Measures how well one feature alone predicts the label; too well is a sign of leakage."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.metrics.classification import roc_auc
from gatehouse.metrics.tasks import Task

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_SMOOTHING = 20.0
_LEAST_ROWS = 100


def single_feature_auc(
    training_set: pa.Table, label: str, task: Task, numeric: list[str], categorical: list[str], group: str = ""
) -> dict[str, float]:
    """ROC AUC of every feature alone against the label, from 0.5 to 1, by name.

    In a ranking only the order within `group` counts: a row's outcome is whether its label is above the median of its
    group, and a feature is its place in the group. Rows of a group with equal labels are left out.

    With several classes, it is the largest area of any class that has 100 rows and leaves 100 rows to the others.

    A numeric feature is scored by its value in the better direction, with all nulls lowest or all highest, whichever
    predicts better (so a null that gives the label away counts). A categorical feature is scored by the label's rate in
    its category; null is a category, and rates are shrunk by 20 rows towards the mean rate. Where all labels are equal,
    every feature has 0.5.
    """
    labels = pc.cast(training_set[label], pa.float64()).to_numpy()
    groups = np.zeros(0, np.int64)
    if group:
        groups = pc.rank(training_set[group], tiebreaker="dense").to_numpy().astype(np.int64) - 1
        outcome, differ = above_median(labels, groups)
        training_set, outcome, groups = training_set.filter(pa.array(differ)), outcome[differ], groups[differ]
    else:
        outcome = task.outcomes(labels, labels)
    counts = np.bincount(outcome, minlength=2)
    targets = [outcome == number for number in ((1,) if len(counts) == 2 else range(len(counts)))]
    # A class with few rows is predicted well by chance.
    least = 1 if len(counts) == 2 else _LEAST_ROWS
    targets = [y for y in targets if least <= y.sum() <= len(y) - least]

    def area(y: np.ndarray, scores: np.ndarray) -> float:
        return roc_auc(y, places(scores, groups) if len(groups) else scores)

    areas = dict.fromkeys((*numeric, *categorical), 0.5)
    for name in numeric:
        values = pc.cast(training_set[name], pa.float64()).to_numpy(zero_copy_only=False)
        unknown = np.isnan(values)
        for stand_in in (-np.inf, np.inf) if unknown.any() else (0.0,):
            for y in targets:
                score = area(y, np.where(unknown, stand_in, values))
                areas[name] = max(areas[name], score, 1 - score)
    for name in categorical:
        texts = pc.fill_null(pc.cast(training_set[name], pa.string()), "\0null").combine_chunks()
        codes = texts.dictionary_encode().indices.to_numpy()
        counts = np.bincount(codes)
        for y in targets:
            rates = (np.bincount(codes, weights=y) + _SMOOTHING * y.mean()) / (counts + _SMOOTHING)
            areas[name] = max(areas[name], area(y, rates[codes]))
    return areas


def above_median(labels: Floats, groups: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Whether each label is above the median of its group, and whether the group has different labels; shape (rows,).

    Where no label is above it, because most have the largest, those at the median count. `labels` have no NaN, and
    `groups` has the number of each row's group, from 0, where every number occurs.
    """
    ordered = labels[np.lexsort((labels, groups))]
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    median = ((ordered[starts + (sizes - 1) // 2] + ordered[starts + sizes // 2]) / 2)[groups]
    largest, smallest = ordered[starts + sizes - 1][groups], ordered[starts][groups]
    above = np.where(median == largest, labels >= median, labels > median)
    return above.astype(np.int64), smallest != largest


def places(values: Floats, groups: Integers) -> Floats:
    """Place of each value in its group, from 0 to 1, shape (rows,); equal values share the mean of their places."""
    order = np.lexsort((values, groups))
    ordered, where = values[order], groups[order]
    begins = np.flatnonzero(np.r_[True, (ordered[1:] != ordered[:-1]) | (where[1:] != where[:-1])])
    ends = np.r_[begins[1:], len(ordered)]
    mean = np.repeat((begins + ends) / 2, ends - begins)  # place among all rows, in the middle of its equals
    first = np.flatnonzero(np.r_[True, where[1:] != where[:-1]])
    sizes = np.diff(np.r_[first, len(where)])
    placed = np.empty(len(values))
    placed[order] = (mean - np.repeat(first, sizes)) / np.repeat(sizes, sizes)
    return placed
