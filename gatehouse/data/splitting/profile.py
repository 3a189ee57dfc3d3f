"""Counts of one column by part and bin, and how far it drifted between parts.

The bins are fitted on train. At most 200,000 rows of a part are counted, evenly spaced.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.distances import population_stability
from gatehouse.data.splitting.divide import PARTS, Parts
from gatehouse.data.splitting.training_set import TrainingSet

Counts = npt.NDArray[np.int64]

MIN_ROWS = 500
_ROWS = 200_000
_BINS, _CATEGORIES, _COMPARED = 32, 1000, 30
_MISSING = "\0missing"


@dataclass(frozen=True)
class Profile:
    """Counts of one column.

    Attributes:
        counts: Rows by part and bin, shape (3, bins). Bin 0 is missing; bin 1 is zero, or all rare categories; the rest
            ascend, or are categories from the most frequent.
        compared: The number of bins that are compared one by one; further ones count as rare categories.
    """

    counts: Counts
    compared: int

    def psi(self, earlier: int, later: int) -> float | None:
        """PSI between two parts; None where one has fewer than `MIN_ROWS` rows, as it is then mostly noise."""
        bins = self.counts[:, : self.compared].copy()
        bins[:, 1] += self.counts[:, self.compared :].sum(axis=1)
        if min(bins[earlier].sum(), bins[later].sum()) < MIN_ROWS:
            return None
        return population_stability(bins[earlier], bins[later])


def profile_of(training_set: TrainingSet, name: str, parts: Parts) -> Profile:
    """Count one column by part and bin."""
    sample = {part: rows[:: max(1, -(-len(rows) // _ROWS))] for part, rows in parts.items()}
    if name in training_set.categorical:
        placed, size, compared = _categories(training_set.column(name), sample)
    else:
        placed, size, compared = _numbers(training_set.numbers(name), sample)
    return Profile(np.stack([np.bincount(placed[part], minlength=size) for part in PARTS]), compared)


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
    counts = pc.value_counts(texts["train"]).to_pylist()
    ranked = sorted((-row["counts"], row["values"]) for row in counts if row["values"] != _MISSING)[:_CATEGORIES]
    known = pa.array([name for _, name in ranked], pa.large_string())
    placed = {}
    for name in PARTS:
        codes = pc.fill_null(pc.index_in(texts[name], value_set=known), -1).to_numpy()
        missing = pc.equal(texts[name], _MISSING).to_numpy()
        placed[name] = np.where(missing, 0, codes + 2).astype(np.int64)
    size = len(known) + 2
    return placed, size, min(size, _COMPARED + 2)
