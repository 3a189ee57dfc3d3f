"""How far a column moved: its bins, all distances, the seasons of the reference, and a test for chance.

The test compares counts in bins and treats the rows of a unit, such as a day, as dependent. The effective number of
rows is estimated from the reference and the newest rows together, because one or two days do not show how much days
differ.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import gammaincc
from scipy.stats import false_discovery_control

from gatehouse.data.distances import HISTOGRAM_DISTANCES, kolmogorov_smirnov, wasserstein
from gatehouse.metrics.arithmetic import holm

_DIGITS = 9
TITLES = {
    **{name: distance.title for name, distance in HISTOGRAM_DISTANCES.items()},
    "wasserstein": "Wasserstein distance",
    "kolmogorov_smirnov": "Kolmogorov-Smirnov distance",
}
Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
"""Numbers of bins, units or blocks of time, one per row, from 0."""


@dataclass(frozen=True)
class NumericBins:
    """Bins of a numeric column: one for missing or non-finite values, one for zero, and quantile bins for the rest.

    Without the zero bin, all quantiles of a feature that is mostly zero (precipitation) would be equal.
    """

    edges: Array

    @classmethod
    def fit(cls, values: pa.ChunkedArray, bins: int) -> "NumericBins":
        """Compute quantile edges of the finite values other than zero, from values of shape (rows,)."""
        numbers = numbers_of(values)
        numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
        levels = np.linspace(0, 1, bins + 1)[1:-1]
        return cls(np.unique(np.quantile(numbers, levels)) if len(numbers) else np.empty(0))

    @property
    def size(self) -> int:
        """Number of bins."""
        return len(self.edges) + 3

    def place(self, values: pa.ChunkedArray) -> Numbers:
        """Number of each row's bin, shape (rows,)."""
        numbers = numbers_of(values)
        inner = np.searchsorted(self.edges, numbers, side="right") + 2
        return np.where(~np.isfinite(numbers), 0, np.where(numbers == 0, 1, inner)).astype(np.int64)


@dataclass(frozen=True)
class CategoryBins:
    """Bins of a categorical column: one for missing, one for all rare or new values, one for each frequent value."""

    values: tuple[str, ...]

    @classmethod
    def fit(cls, values: pa.ChunkedArray, categories: int) -> "CategoryBins":
        """Take the `categories` most frequent values of a column of shape (rows,); ties are sorted by name."""
        counted = pc.value_counts(pc.drop_null(pc.cast(values, pa.string()))).to_pylist()
        ranked = sorted((-item["counts"], item["values"]) for item in counted)
        return cls(tuple(sorted(name for _, name in ranked[:categories])))

    @property
    def size(self) -> int:
        """Number of bins."""
        return len(self.values) + 2

    def place(self, values: pa.ChunkedArray) -> Numbers:
        """Number of each row's bin, shape (rows,)."""
        texts = pc.cast(values, pa.string())
        codes = pc.fill_null(pc.index_in(texts, value_set=pa.array(self.values, pa.string())), -1).to_numpy()
        return np.where(texts.is_valid().to_numpy(), codes + 2, 0).astype(np.int64)


def numbers_of(values: pa.ChunkedArray) -> Array:
    """A column as numbers, shape (rows,); missing values are NaN."""
    plain = pc.cast(values, pa.int8()) if pa.types.is_boolean(values.type) else values
    numbers: npt.NDArray[Any] = pc.cast(plain, pa.float64(), safe=False).to_numpy()
    return numbers


def blocks_of(moments: npt.NDArray[np.datetime64], span: np.timedelta64, min_rows: int) -> Numbers:
    """Cut rows, decided at `moments`, into consecutive blocks of time as long as `span`.

    Returns:
        Number of each row's block, shape (rows,), without gaps; -1 for rows of a block with fewer than `min_rows`. All
        are -1 with fewer than two blocks.
    """
    none = np.full(len(moments), -1, dtype=np.int64)
    if len(moments) == 0 or span <= np.timedelta64(0, "us"):
        return none
    periods = ((moments - moments.min()) // span).astype(np.int64)
    large = np.flatnonzero(np.bincount(periods) >= min_rows)
    if len(large) < 2:
        return none
    numbers = np.full(int(periods.max()) + 1, -1, dtype=np.int64)
    numbers[large] = np.arange(len(large))
    blocks: Numbers = numbers[periods]
    return blocks


@dataclass(frozen=True)
class Tested:
    """The p-value of a test, and the number of independent rows that the newest rows are worth."""

    chance: float
    effective: float


@dataclass(frozen=True)
class Movement:
    """Measurements of how far one column moved.

    Attributes:
        distances: By measure: PSI, Jensen-Shannon (bits), Kullback-Leibler (nats); for categories also L-infinity; for
            numbers also Kolmogorov-Smirnov, and Wasserstein in standard deviations of the reference. Without NaN.
        seasonal: The largest distance of a block of the reference from the rest of the reference; 0 without blocks.
    """

    distances: dict[str, float]
    seasonal: float
    tested: Tested | None


def movement(
    bins: NumericBins | CategoryBins,
    reference: pa.ChunkedArray,
    blocks: Numbers,
    current: pa.ChunkedArray,
    judging: str,
    units: tuple[Numbers, Numbers] | None,
) -> Movement:
    """Measure one column, in bins that were fitted on the reference.

    Args:
        blocks: Number of the block of each reference row, shape (rows,); -1 for rows in no block.
        judging: The measure for which seasons are computed.
        units: Number of the unit of each reference row and of each newest row; None for no test.
    """
    placed, placed_now = bins.place(reference), bins.place(current)
    before, now = (np.bincount(rows, minlength=bins.size) for rows in (placed, placed_now))
    blocks_count = int(blocks.max(initial=-1)) + 1
    distances = {name: distance.of(before, now) for name, distance in HISTOGRAM_DISTANCES.items()}
    seasons = [0.0]
    if judging in HISTOGRAM_DISTANCES:
        inside = blocks >= 0
        counts = np.bincount(blocks[inside] * bins.size + placed[inside], minlength=blocks_count * bins.size)
        of = HISTOGRAM_DISTANCES[judging].of
        seasons += [of(before - block, block) for block in counts.reshape(blocks_count, bins.size)]
    if isinstance(bins, NumericBins):
        del distances["l_infinity"]
        numbers, numbers_now = numbers_of(reference), numbers_of(current)
        finite = np.isfinite(numbers)
        numbers, blocks, numbers_now = numbers[finite], blocks[finite], numbers_now[np.isfinite(numbers_now)]
        scale = float(numbers.std()) if len(numbers) else 0.0
        samples: dict[str, Callable[[Array, Array], float]] = {
            "kolmogorov_smirnov": kolmogorov_smirnov,
            "wasserstein": lambda left, right: wasserstein(left, right) / scale if scale else math.nan,
        }
        distances |= {name: distance(numbers, numbers_now) for name, distance in samples.items()}
        if judging in samples:
            chosen = (blocks == block for block in range(blocks_count))
            seasons += [samples[judging](numbers[~block], numbers[block]) for block in chosen]
    return Movement(
        distances={name: round(value, _DIGITS) for name, value in distances.items() if math.isfinite(value)},
        seasonal=round(max(season for season in seasons if math.isfinite(season)), _DIGITS),
        tested=None if units is None else chi_square(placed, units[0], placed_now, units[1]),
    )


def chi_square(before: Numbers, units_before: Numbers, now: Numbers, units_now: Numbers) -> Tested:
    """Pearson's chi-square test of bin counts, corrected for dependent rows of a unit (Rao and Scott 1981).

    The statistic is divided by the mean design effect of each sample or of both, whichever is larger, because few units
    are less normal than the test assumes. If units move bins together, as one daily factor does, few directions hold
    all the variance, and the degrees of freedom are reduced to that number (Satterthwaite, the second-order
    correction).

    `before` and `now` are the bins of the reference and of the newest rows, shapes (rows,) and (rows now,).
    """
    untested = Tested(1.0, float(len(now)))
    if min(len(before), len(now)) < 2:
        return untested
    size = int(max(before.max(), now.max())) + 1
    present = np.bincount(before, minlength=size) + np.bincount(now, minlength=size) > 0
    if present.sum() < 2:
        return untested
    shares, effects, totals = [], [], []
    for bins, units in ((before, units_before), (now, units_now)):
        count = int(units.max()) + 1
        table = np.bincount(units * size + bins, minlength=count * size).reshape(count, size)[:, present]
        share = table.sum(axis=0) / len(bins)
        # By unit and bin, the rows beyond the bin's share of all rows.
        residual = table - table.sum(axis=1, keepdims=True) * share
        effect = design_effects(residual, len(bins) * share * (1 - share), len(bins))
        defined = np.isfinite(effect)
        effects.append(float(np.average(effect[defined], weights=(1 - share)[defined])) if defined.any() else math.nan)
        shares.append(share)
        totals.append(residual)
    # The design effect of each sample if units explain the same share of the variance in both. Without a design effect
    # of any sample, a unit counts as one row. Units with more rows count more in the mean of rows per unit.
    units_rows = [np.bincount(units) * 1.0 for units in (units_before, units_now)]
    sizes = pooled_effects = [float(np.square(counts).sum() / counts.sum()) for counts in units_rows]
    freedoms = [
        len(counts) - 1 if np.isfinite(effect) else 0 for effect, counts in zip(effects, units_rows, strict=True)
    ]
    most = sum(freedom * (size - 1) for freedom, size in zip(freedoms, sizes, strict=True))
    if most:
        excess = sum(freedom * (effect - 1) for freedom, effect in zip(freedoms, effects, strict=True) if freedom)
        pooled_effects = [1 + (size - 1) * min(excess / most, 1.0) for size in sizes]
    worth = np.fmax(effects, pooled_effects)
    rows, rows_now = float(len(before) / worth[0]), float(len(now) / worth[1])
    pooled = (rows * shares[0] + rows_now * shares[1]) / (rows + rows_now)
    joint = rows * rows_now / (rows + rows_now)
    statistic = float(joint * np.sum(np.square(shares[0] - shares[1]) / pooled))
    freedom = float(present.sum() - 1)
    if rows + rows_now < len(before) + len(now):
        scaled = np.concatenate(totals) / np.sqrt(pooled)
        spread = scaled.T @ scaled
        # The squared sum of the covariance's eigenvalues, divided by the sum of their squares.
        directions = min(float(np.trace(spread) ** 2 / np.square(spread).sum()), freedom)
        statistic, freedom = statistic * directions / freedom, directions
    return Tested(round(float(gammaincc(freedom / 2, statistic / 2)), _DIGITS), round(rows_now, _DIGITS))


def design_effects(totals: Array, of_rows: Array, rows: int) -> Array:
    """The variance of each mean when units are sampled, divided by that when rows are sampled (Kish 1965); (columns,).

    The variance over units is that of their residual totals (Cochran 1977, section 9A). With few units it is uncertain,
    so it is multiplied by (units - 1) / (units - 3). No effect is below one: units that balance each other by chance
    are no reason to trust rows more.

    Args:
        totals: By unit and column, the sum of the deviations from the mean, shape (units, columns).
        of_rows: The sum of squared deviations of single rows, shape (columns,).
        rows: Number of rows.
    """
    count = len(totals)
    if count >= rows:
        return np.ones(len(of_rows))
    few = (count - 1) / (count - 3) if count > 3 else float(count)
    of_units = np.square(totals).sum(axis=0) * count / max(count - 1, 1) * few
    effects = np.divide(of_units, of_rows, out=np.full(len(of_rows), np.nan), where=of_rows > 0)
    at_least_one: Array = np.maximum(effects, 1.0)
    return at_least_one


def mean_error(values: Array, units: Numbers) -> float:
    """Standard error of the mean of values, shape (rows,), when units are sampled; infinite with fewer than two."""
    count = int(units.max(initial=-1)) + 1
    if count < 2:
        return math.inf
    apart = values - values.mean()
    totals: Array = np.bincount(units, weights=apart, minlength=count).astype(np.float64)[:, None]
    effect = design_effects(totals, np.square(apart).sum(keepdims=True), len(values))[0]
    return float(np.sqrt(np.nan_to_num(effect, nan=1.0) * values.var(ddof=1) / len(values)))


def corrected(chances: Mapping[str, float], correction: str) -> dict[str, float]:
    """The p-values of tests, by name, corrected for their number by `holm` (1979) or `benjamini_hochberg` (1995)."""
    values = np.array([*chances.values()])
    adjusted = holm(values) if correction == "holm" else false_discovery_control(values)
    return {name: round(float(value), _DIGITS) for name, value in zip(chances, adjusted, strict=True)}
