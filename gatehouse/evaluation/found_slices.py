"""The worst slices of the test rows that nobody named: of values of one feature, or of two together.

After Slice Finder (Chung et al. 2019): every slice that is large enough is tested for a greater mean loss than the
other rows have. Of what remains after Holm's correction, slices that mostly tell of the same rows are shown once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtr

from gatehouse.evaluation.holm import holm
from gatehouse.evaluation.slice_columns import CROSS, NULL
from gatehouse.metrics.catalogue.metric import Array

_BINS, _VALUES, _PAIRED = 4, 10, 20
_LEVEL, _OVERLAP = 0.05, 0.5


@dataclass(frozen=True)
class Found:
    """A slice: its name, the numbers of its rows, and the adjusted p-value of its mean loss being no greater."""

    name: str
    rows: Array
    p_value: float


@dataclass(frozen=True)
class _Divided:
    """A feature as values: their names, and the number of that of each row."""

    names: Sequence[str]
    members: Array


def find_slices(
    table: pa.Table, features: Mapping[str, bool], losses: Array, most: int, least_rows: int, variance: float = 1.0
) -> list[Found]:
    """The worst slices, by mean loss; of two of which one is mostly in the other, only the surer.

    Numbers are cut at their quartiles, and of other features the ten most frequent values count; rows without a value
    are a slice too. Pairs are of the first 20 features. The test is Welch's, one-sided.

    Args:
        table: The rows.
        features: Columns of it, by whether they are numeric.
        losses: Of each row, shape (rows,), higher for worse.
        most: At most so many slices.
        least_rows: A slice has at least so many.
        variance: By what the variance of a mean grows as rows are not independent.
    """
    divided = {name: _divided(table[name], numeric) for name, numeric in features.items()}
    candidates = [each for name, one in divided.items() for each in _tested(name, one, losses, least_rows, variance)]
    for first, second in combinations(list(divided)[:_PAIRED], 2):
        crossed = _crossed(divided[first], divided[second], first, second)
        candidates += _tested("", crossed, losses, least_rows, variance)
    if not candidates or not most:
        return []
    adjusted = holm(ndtr([-each[3] for each in candidates]))
    ordered = sorted(zip(candidates, adjusted, strict=True), key=lambda each: (-each[0][3], each[0][0]))
    kept: list[tuple[float, Found]] = []
    for (name, (one, number), mean, _), p_value in ordered:
        if p_value >= _LEVEL or len(kept) == most:
            break
        rows = np.flatnonzero(one.members == number)
        if not any(_overlap(rows, other.rows) > _OVERLAP for _, other in kept):
            kept.append((mean, Found(name, rows, float(p_value))))
    return [found for _, found in sorted(kept, key=lambda each: (-each[0], each[1].name))]


_Candidate = tuple[str, tuple[_Divided, int], float, float]


def _tested(prefix: str, one: _Divided, losses: Array, least: int, variance: float) -> Iterator[_Candidate]:
    """Name, place, mean loss and test statistic of each value that is large enough and leaves as many rows besides."""
    rows, sums, squares = (
        np.bincount(one.members, weights=weights, minlength=len(one.names)) for weights in (None, losses, losses**2)
    )
    others, inside = len(losses) - rows, rows >= least
    for number in np.flatnonzero(inside & (others >= least) & (rows > 1) & (others > 1)).tolist():
        n, m = rows[number], others[number]
        mean, rest = sums[number] / n, (losses.sum() - sums[number]) / m
        spread = (squares[number] / n - mean**2) / (n - 1)
        spread += ((np.sum(losses**2) - squares[number]) / m - rest**2) / (m - 1)
        if spread > 0:
            sure = float((mean - rest) / np.sqrt(spread * variance))
            name = f"{prefix}={one.names[number]}" if prefix else one.names[number]
            yield name, (one, number), float(mean), sure


def _divided(column: pa.ChunkedArray, numeric: bool) -> _Divided:
    if not numeric:
        values, members = np.unique(pc.fill_null(pc.cast(column, pa.string()), NULL).to_pylist(), return_inverse=True)
        counts = np.bincount(members)
        place = np.full(len(values), min(_VALUES, len(values)))
        kept = np.argsort(-counts, kind="stable")[:_VALUES]
        place[kept] = np.arange(len(kept))
        return _Divided([*(str(values[each]) for each in kept), "(other)"], place[members])
    numbers = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    known = np.isfinite(numbers)
    if not known.any():
        return _Divided([NULL], np.zeros(len(numbers), np.int64))
    edges = np.unique(np.quantile(numbers[known], np.arange(1, _BINS) / _BINS))
    members = np.searchsorted(edges, numbers, side="left")
    members[~known] = len(edges) + 1
    texts = [f"{edge:.4g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(texts)]
    return _Divided([f"up to {texts[0]}", *between, f"over {texts[-1]}", NULL], members)


def _crossed(one: _Divided, other: _Divided, first: str, second: str) -> _Divided:
    names = [f"{first}={a}{CROSS}{second}={b}" for a in one.names for b in other.names]
    return _Divided(names, one.members * len(other.names) + other.members)


def _overlap(one: Array, other: Array) -> float:
    """Rows that both have, as a share of the smaller one."""
    return len(np.intersect1d(one, other, assume_unique=True)) / min(len(one), len(other))
