"""Measures how far a column moved between the reference and the newest rows: all distances, seasons, and a test."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gatehouse.data.distances.jensen_shannon import jensen_shannon
from gatehouse.data.distances.kolmogorov_smirnov import kolmogorov_smirnov
from gatehouse.data.distances.kullback_leibler import kullback_leibler
from gatehouse.data.distances.l_infinity import l_infinity
from gatehouse.data.distances.population_stability import population_stability
from gatehouse.data.distances.shares import Histogram
from gatehouse.data.distances.wasserstein import wasserstein
from gatehouse.monitoring.bins import CategoryBins, Numbers, NumericBins, numbers_of
from gatehouse.monitoring.clusters import Array
from gatehouse.monitoring.significance import Tested, bins_tested, numbers_tested

TITLES = {
    "psi": "PSI",
    "jensen_shannon": "Jensen-Shannon divergence",
    "kullback_leibler": "Kullback-Leibler divergence",
    "l_infinity": "L-infinity distance",
    "wasserstein": "Wasserstein distance",
    "kolmogorov_smirnov": "Kolmogorov-Smirnov distance",
}
_OF_BINS: dict[str, Callable[[Histogram, Histogram], float]] = {
    "psi": population_stability,
    "jensen_shannon": jensen_shannon,
    "kullback_leibler": kullback_leibler,
    "l_infinity": l_infinity,
}
_DIGITS = 9


@dataclass(frozen=True)
class Movement:
    """Measurements of how far one column moved.

    Attributes:
        distances: By measure: PSI, Jensen-Shannon (bits), Kullback-Leibler (nats); for categories also L-infinity; for
            numbers also Kolmogorov-Smirnov, and Wasserstein in standard deviations of the reference. Without NaN.
        seasonal: The largest distance of a block of the reference from the rest of the reference; 0 without blocks.
        tested: The test; None if none was requested.
    """

    distances: dict[str, float]
    seasonal: float
    tested: Tested | None


@dataclass(frozen=True)
class Units:
    """Number of each row's unit, for the reference and for the newest rows, from 0; each of shape (rows,)."""

    reference: Numbers
    current: Numbers


def movement(
    bins: NumericBins | CategoryBins,
    reference: pa.ChunkedArray,
    blocks: Numbers,
    current: pa.ChunkedArray,
    judging: str,
    units: Units | None,
) -> Movement:
    """Measure one column.

    Args:
        bins: Bins that were fitted on the reference.
        reference: The column in the reference.
        blocks: Number of the block of each reference row, from 0, shape (rows,); -1 for rows in no block.
        current: The column in the newest rows.
        judging: The measure for which seasons are computed.
        units: Units of rows that depend on each other; None for no test.
    """
    placed, placed_now = bins.place(reference), bins.place(current)
    everything, found = (np.bincount(each, minlength=len(bins.names)) for each in (placed, placed_now))
    numeric = isinstance(bins, NumericBins)
    distances = {name: of(everything, found) for name, of in _OF_BINS.items() if name != "l_infinity" or not numeric}
    values = _finite(numbers_of(reference), numbers_of(current)) if numeric else None
    if values is not None:
        (before, kept), (now, kept_now) = values
        scale = float(before.std()) if len(before) else 0.0
        distances["kolmogorov_smirnov"] = kolmogorov_smirnov(before, now)[0]
        distances["wasserstein"] = wasserstein(before, now) / scale if scale else math.nan
        seasonal = _seasonal_of_numbers(judging, before, blocks[kept], scale)
        if units is not None:
            tested = numbers_tested(before, units.reference[kept], now, units.current[kept_now])
            tested = _with_missing(tested, placed, placed_now, units)
    if values is None or judging in _OF_BINS:
        seasonal = _seasonal_of_bins(judging, everything, placed, blocks)
    if units is not None and values is None:
        tested = bins_tested(placed, units.reference, placed_now, units.current)
    known = {name: round(value, _DIGITS) for name, value in distances.items() if math.isfinite(value)}
    return Movement(known, round(seasonal, _DIGITS), tested if units is not None else None)


def _with_missing(tested: Tested, placed: Numbers, placed_now: Numbers, units: Units) -> Tested:
    """The tests of the values and of the share of missing ones combined: twice the smaller p-value (Bonferroni)."""
    known, known_now = (np.minimum(each, 1) for each in (placed, placed_now))
    if known.all() and known_now.all():
        return tested
    missing = bins_tested(known, units.reference, known_now, units.current)
    chance = min(1.0, 2 * min(tested.chance, missing.chance))
    return Tested(chance, min(tested.effective, missing.effective))


def _seasonal_of_bins(judging: str, everything: Numbers, placed: Numbers, blocks: Numbers) -> float:
    size, count, inside = len(everything), int(blocks.max(initial=-1)) + 1, blocks >= 0
    table = np.bincount(blocks[inside] * size + placed[inside], minlength=count * size).reshape(count, size)
    return max((_OF_BINS[judging](everything - block, block) for block in table), default=0.0)


def _seasonal_of_numbers(judging: str, values: Array, blocks: Numbers, scale: float) -> float:
    if judging in _OF_BINS:
        return 0.0
    found = []
    for block in range(int(blocks.max(initial=-1)) + 1):
        inside = blocks == block
        rest, part = values[~inside], values[inside]
        apart = kolmogorov_smirnov(rest, part)[0] if judging == "kolmogorov_smirnov" else wasserstein(rest, part)
        found.append(apart if judging == "kolmogorov_smirnov" else apart / (scale or 1.0))
    return max((each for each in found if math.isfinite(each)), default=0.0)


def _finite(*columns: Array) -> list[tuple[Array, Numbers]]:
    """The finite values of each column, and their row numbers."""
    return [(column[kept], kept) for column in columns for kept in [np.flatnonzero(np.isfinite(column))]]
