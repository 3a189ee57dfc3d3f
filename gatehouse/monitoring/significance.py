"""Tests whether chance alone can move a column as far, with dependent rows counted at their worth.

The worth of a row is estimated on the units of the reference and the newest rows together. If both have the same
distribution, as the test assumes, their units explain the same share of the variance. One or two days alone cannot show
how much days differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, kolmogorov

from gatehouse.data.distances.kolmogorov_smirnov import kolmogorov_smirnov
from gatehouse.evaluation.bootstrap import holm
from gatehouse.monitoring.clusters import Array, Numbers, bin_effects, design_effects, pooled_effects, residual_totals

_DIGITS = 9


@dataclass(frozen=True)
class Tested:
    """The result of a test.

    Attributes:
        chance: The p-value: the probability that chance alone moves the column as far.
        effective: How many independent rows the newest rows are worth.
    """

    chance: float
    effective: float


def numbers_tested(before: Array, units_before: Numbers, now: Array, units_now: Numbers) -> Tested:
    """The Kolmogorov-Smirnov test of finite values, in the form of Stephens (1970) for any number of rows.

    The worth of a row comes from the design effect of the indicator "below a value". The value is the point where both
    samples differ most; in each sample it is the quantile of the mean level there, because at the point itself samples
    that are far apart would have no variance.

    Args:
        before: Values of the reference, shape (rows,).
        units_before: Number of each value's unit, shape (rows,).
        now: The newest values, shape (rows now,).
        units_now: Number of each value's unit, shape (rows now,).
    """
    if min(len(before), len(now)) < 2:
        return Tested(1.0, float(len(now)))
    distance, at = kolmogorov_smirnov(before, now)
    level = float(np.mean([np.mean(values <= at) for values in (before, now)]))
    effects = pooled_effects(
        [_effect_at(level, before, units_before), _effect_at(level, now, units_now)], (units_before, units_now)
    )
    sizes = [len(before) / effects[0], len(now) / effects[1]]
    root = np.sqrt(sizes[0] * sizes[1] / (sizes[0] + sizes[1]))
    chance = float(kolmogorov((root + 0.12 + 0.11 / root) * distance))
    return Tested(round(chance, _DIGITS), round(sizes[1], _DIGITS))


def _effect_at(level: float, values: Array, units: Numbers) -> float:
    """The design effect of being below the quantile of a level."""
    below = values <= np.quantile(values, level, method="inverted_cdf")
    if below.all():  # With few distinct values the quantile may be the maximum, which has no variance.
        below = values < values.max()
    return float(design_effects(below[:, None].astype(np.float64), units)[0])


def bins_tested(before: Numbers, units_before: Numbers, now: Numbers, units_now: Numbers) -> Tested:
    """Pearson's chi-square test of bin counts, corrected for dependent rows of a unit (Rao and Scott 1981).

    The statistic is divided by the mean design effect of this sample or of both, whichever is larger, because few units
    are less normal than the test assumes. If units move bins together, as one daily factor does, few directions hold
    all the variance, and the degrees of freedom are reduced to that number (Satterthwaite, the second-order
    correction).

    Args:
        before: Number of each reference row's bin, shape (rows,).
        units_before: Number of each reference row's unit, shape (rows,).
        now: Number of each newest row's bin, shape (rows now,).
        units_now: Number of each newest row's unit, shape (rows now,).
    """
    if min(len(before), len(now)) < 2:
        return Tested(1.0, float(len(now)))
    size = int(max(before.max(), now.max())) + 1
    held = np.bincount(before, minlength=size) + np.bincount(now, minlength=size) > 0
    if held.sum() < 2:
        return Tested(1.0, float(len(now)))
    shares, effects, totals = [], [], []
    for placed, units in ((before, units_before), (now, units_now)):
        share, found = np.bincount(placed, minlength=size) / len(placed), bin_effects(placed, units, size)
        known = np.isfinite(found)
        effects.append(float(np.average(found[known], weights=(1 - share)[known])) if known.any() else np.nan)
        shares.append(share[held])
        totals.append(residual_totals(placed, units, size)[:, held])
    worth = np.fmax(effects, pooled_effects(effects, (units_before, units_now)))
    sizes = [float(len(before) / worth[0]), float(len(now) / worth[1])]
    pooled = (sizes[0] * shares[0] + sizes[1] * shares[1]) / sum(sizes)
    joint = sizes[0] * sizes[1] / sum(sizes)
    statistic = float(joint * np.sum(np.square(shares[0] - shares[1]) / pooled))
    freedom = float(held.sum() - 1)
    if sum(sizes) < len(before) + len(now):
        statistic *= (kept := _directions(np.concatenate(totals) / np.sqrt(pooled)) / freedom)
        freedom *= kept
    return Tested(round(float(gammaincc(freedom / 2, statistic / 2)), _DIGITS), round(sizes[1], _DIGITS))


def _directions(totals: Array) -> float:
    """Effective number of directions of the variance of residual totals, shape (units, bins); at most bins - 1.

    It is the squared sum of the covariance's eigenvalues, divided by the sum of their squares.
    """
    spread = totals.T @ totals
    found = float(np.trace(spread) ** 2 / np.square(spread).sum())
    return min(found, float(totals.shape[1] - 1))


def corrected(chances: Mapping[str, float], correction: str) -> dict[str, float]:
    """The p-values of many tests, by name, corrected for their number.

    Args:
        chances: p-values by name.
        correction: `holm` (1979), or `benjamini_hochberg` (1995).
    """
    values = np.array([*chances.values()])
    found = holm(values) if correction == "holm" else _benjamini_hochberg(values)
    return {name: round(float(each), _DIGITS) for name, each in zip(chances, found, strict=True)}


def _benjamini_hochberg(values: Array) -> Array:
    """The k-th smallest of n values is multiplied by n / k, and limited by the results of larger ones."""
    order = np.argsort(values, kind="stable")[::-1]
    factors = len(values) / np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.minimum.accumulate(values[order] * factors), 1.0)
    return adjusted
