"""Counts of one column by part, bin and outcome: how far it drifted between parts, and what it tells of the label.

The bins are fitted on train. At most 200,000 rows of a part are counted, evenly spaced, which is enough for both.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.distances import population_stability
from gatehouse.data.splitting.partition import PARTS, Parts
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.metrics.arithmetic.intervals import wilson
from gatehouse.metrics.roc_auc import roc_auc

Counts = npt.NDArray[np.int64]

MIN_ROWS = 500
_ROWS = 200_000
_BINS, _CATEGORIES, _COMPARED = 32, 1000, 30
_SMOOTHING = 20.0
_ONE_SIDED = 1.644854
_MISSING = "\0missing"


@dataclass(frozen=True)
class Profile:
    """Counts of one column.

    Attributes:
        name: The column.
        counts: Rows by part, bin and outcome of the label, shape (3, bins, outcomes). Bin 0 is missing; bin 1 is zero,
            or all rare categories; the rest ascend, or are categories from the most frequent.
        compared: How many of the bins drift is measured over; further ones count as rare categories.
    """

    name: str
    counts: Counts
    compared: int

    def psi(self, earlier: int, later: int) -> float | None:
        """PSI between two parts.

        None where a part has fewer than `MIN_ROWS` rows: the index of so few is mostly noise.
        """
        table = self.counts.sum(axis=2)
        bins = table[:, : self.compared].copy()
        bins[:, 1] += table[:, self.compared :].sum(axis=1)
        found, others = bins[earlier], bins[later]
        if min(found.sum(), others.sum()) < MIN_ROWS:
            return None
        return population_stability(found, others)

    def auc(self) -> "Area | None":
        """ROC AUC on validation of the outcome's rate that the row's bin has in train, shrunk by 20 rows to the mean.

        Of several outcomes that of one against the others whose interval begins highest. None where train or
        validation have one only.
        """
        outcomes = range(self.counts.shape[2]) if self.counts.shape[2] > 2 else (1,)
        areas = [area for outcome in outcomes if (area := self._area(outcome)) is not None]
        return max(areas, key=lambda area: area.low, default=None)

    def _area(self, outcome: int) -> "Area | None":
        """For one outcome against the others, which train and validation must have both."""
        (train, hits), (rows, positive) = ((part.sum(axis=1), part[:, outcome]) for part in self.counts[:2])
        negative = rows - positive
        if not (hits.any() and (train - hits).any() and positive.any() and negative.any()):
            return None
        mean = hits.sum() / train.sum()
        scores = (hits + _SMOOTHING * mean) / (train + _SMOOTHING)
        levels, place = np.unique(-scores, return_inverse=True)
        by_score = tuple(np.bincount(place, counts, len(levels)) for counts in (positive, rows))
        return Area.of(roc_auc.of_counts([by_score]), int(min(positive.sum(), negative.sum())))


@dataclass(frozen=True)
class Area:
    """A ROC AUC, and the ends of its 90 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, rows: int) -> "Area":
        """With the interval of `wilson`, as if `value` were a share of `rows`, the rows of the rarer outcome.

        The variance of a ROC AUC A is at most A (1 - A) / rows (Birnbaum and Klose 1957), so that the interval is wide
        enough; unlike a normal one it is not empty at 1.
        """
        return cls(value, *wilson(value, rows, _ONE_SIDED))


def sampled(parts: Parts) -> Parts:
    """Evenly spaced rows of each part, all of them where there are no more than 200,000."""
    return {name: rows[:: max(1, -(-len(rows) // _ROWS))] for name, rows in parts.items()}


def profile_of(training_set: TrainingSet, name: str, outcomes: Counts, parts: Parts) -> Profile:
    """Count one column by part, bin and outcome.

    Args:
        training_set: Has the column.
        name: The column.
        outcomes: Number of each row's outcome from 0, shape (rows,).
        parts: Row numbers by part, from `sampled`.
    """
    if name in training_set.categorical:
        placed, size, compared = _categories(training_set.column(name), parts)
    else:
        placed, size, compared = _numbers(training_set.numbers(name), parts)
    width = max(2, int(outcomes.max(initial=0)) + 1)
    counts = np.zeros((len(PARTS), size, width), np.int64)
    for index, part in enumerate(PARTS):
        cells = placed[part] * width + outcomes[parts[part]]
        counts[index] = np.bincount(cells, minlength=size * width).reshape(size, width)
    return Profile(name, counts, compared)


def _numbers(values: npt.NDArray[np.float64], parts: Parts) -> tuple[dict[str, Counts], int, int]:
    """Bins between quantiles; zero has its own, for where most values are zero the quantiles fall into one."""
    train = values[parts["train"]]
    known = train[np.isfinite(train) & (train != 0)]
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.unique(np.quantile(known, inner, method="lower")) if len(known) else np.empty(0)
    placed = {}
    for name in PARTS:
        rows = values[parts[name]]
        between = np.searchsorted(edges, rows, side="right") + 2
        placed[name] = np.where(~np.isfinite(rows), 0, np.where(rows == 0, 1, between))
    return placed, len(edges) + 3, len(edges) + 3


def _categories(column: pa.ChunkedArray, parts: Parts) -> tuple[dict[str, Counts], int, int]:
    """A bin for each frequent category of train."""
    texts = {name: pc.fill_null(pc.cast(column.take(parts[name]), pa.large_string()), _MISSING) for name in PARTS}
    counted = pc.value_counts(texts["train"]).to_pylist()
    ranked = sorted((-one["counts"], one["values"]) for one in counted if one["values"] != _MISSING)[:_CATEGORIES]
    known = pa.array([name for _, name in ranked], pa.large_string())
    placed = {}
    for name in PARTS:
        codes = pc.fill_null(pc.index_in(texts[name], value_set=known), -1).to_numpy()
        missing = pc.equal(texts[name], _MISSING).to_numpy()
        placed[name] = np.where(missing, 0, codes + 2).astype(np.int64)
    size = len(known) + 2
    return placed, size, min(size, _COMPARED + 2)
