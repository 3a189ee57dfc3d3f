"""Whether chance alone moves a column as far: tests that count dependent rows for what they are worth.

What a row is worth is estimated on the units of the reference and the newest ones together: the tests ask whether both
are the same, and then their units share as much of the variance. One day, or two, cannot tell how much days differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, kolmogorov

from gatehouse.components.distances.kolmogorov_smirnov import kolmogorov_smirnov
from gatehouse.components.evaluation.holm import holm
from gatehouse.components.monitoring.clusters import (
    Array,
    Numbers,
    bin_effects,
    design_effects,
    pooled_effects,
    residual_totals,
)

_DIGITS = 9


@dataclass(frozen=True)
class Tested:
    """The result of a test.

    Attributes:
        chance: The p-value: how likely chance alone moves as far.
        effective: As how many independent rows the newest ones count.
    """

    chance: float
    effective: float


def numbers_tested(before: Array, units_before: Numbers, now: Array, units_now: Numbers) -> Tested:
    """Kolmogorov and Smirnov's test of finite values, in the form that Stephens (1970) gives for any number of rows.

    What a row is worth is the design effect of lying below a value: in each sample, below the quantile of the level
    that both have on average where they differ most. There itself, samples that lie apart would have no variance.

    Args:
        before: Values of the reference, shape (rows,).
        units_before: Number of the unit of each of them, shape (rows,).
        now: The newest values, shape (rows now,).
        units_now: Number of the unit of each of them, shape (rows now,).
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
    """The design effect of lying below the quantile of a level."""
    below = values <= np.quantile(values, level, method="inverted_cdf")
    if below.all():  # Among few distinct values the quantile may be the largest, which says nothing.
        below = values < values.max()
    return float(design_effects(below[:, None].astype(np.float64), units)[0])


def bins_tested(before: Numbers, units_before: Numbers, now: Numbers, units_now: Numbers) -> Tested:
    """Pearson's chi-square of the bins of rows, corrected for what rows of a unit share (Rao and Scott 1981).

    It is divided by the mean design effect, that of the sample or that of both, whichever is larger: few units are less
    normal than the test takes them to be. Where units move bins together, as one daily factor does, few directions
    hold all the variance, and the degrees of freedom are as few (Satterthwaite, their second order).

    Args:
        before: Number of the bin of each row of the reference, shape (rows,).
        units_before: Number of the unit of each of them, shape (rows,).
        now: Number of the bin of each of the newest rows, shape (rows now,).
        units_now: Number of the unit of each of them, shape (rows now,).
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
    """Among how many directions the variance of residual totals, shape (units, bins), is spread: at most all but one.

    It is the square of the sum of the eigenvalues of their covariance, over the sum of their squares.
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
    """The k-th smallest of n is multiplied by n / k, and none is above one that is larger."""
    order = np.argsort(values, kind="stable")[::-1]
    factors = len(values) / np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.minimum.accumulate(values[order] * factors), 1.0)
    return adjusted
