"""Distances: how far a column's distribution moved from its baseline, over the same bins.

The bins are those of the baseline's statistics: ranges between its deciles, or its most frequent values and all others
together. Nulls, zeros and values that are not finite have bins of their own, and so no bin is conditional on another.
Without a row on one side there is no distribution there, and the distance is NaN.
"""

import math
from collections.abc import Mapping
from typing import Any

_LEAST_SHARE = 1e-4
Shares = list[tuple[float, float]]


def psi(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """The population stability index: the sum over bins of (q - p) * ln(q / p), of smoothed shares p before and q now.

    As used in credit scoring (Siddiqi, Credit Risk Scorecards, 2006); it is the Kullback-Leibler divergence summed over
    both directions (Jeffreys, 1946). A share below 1e-4 counts as 1e-4, before all are scaled to sum to one again.

    Args:
        baseline: Statistics of the column in the baseline.
        current: Statistics of the same column now, counted in the baseline's bins.
    """
    return _sum((q - p) * math.log(q / p) for p, q in _smoothed(_shares(baseline, current)))


def kullback_leibler(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """The divergence of now from the baseline, the sum of q * ln(q / p), in nats (Kullback and Leibler, 1951).

    Shares are smoothed as in `psi`: a value that the baseline never saw would else be infinitely far.
    """
    return _sum(q * math.log(q / p) for p, q in _smoothed(_shares(baseline, current)))


def jensen_shannon(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """The Jensen-Shannon divergence in bits, from 0 to 1 (Lin, Divergence measures based on entropy, 1991)."""
    terms = []
    for p, q in _shares(baseline, current):
        terms += [share * math.log2(2 * share / (p + q)) / 2 for share in (p, q) if share > 0]
    return min(_sum(terms), 1.0) if terms else math.nan


def l_infinity(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """The largest change of the share of any one bin or value, from 0 to 1: the Chebyshev distance of the shares."""
    return max((abs(q - p) for p, q in _shares(baseline, current)), default=math.nan)


def mean_shift(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """How far the mean moved, in standard deviations of the baseline: |m_now - m_before| / s_before.

    Infinite where a column that was constant has another mean; NaN where one of them has no mean.
    """
    before, now = baseline.get("mean"), current.get("mean")
    if before is None or now is None:
        return math.nan
    moved, spread = abs(now - before), baseline.get("std") or 0.0
    return float(moved / spread) if spread else (math.inf if moved else 0.0)


def spread_ratio(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """The ratio of the standard deviations now and in the baseline, the larger by the smaller, so at least 1.

    Infinite where only one of them is constant; NaN where one has fewer than two values.
    """
    before, now = baseline.get("std"), current.get("std")
    if before is None or now is None:
        return math.nan
    least, greatest = sorted((float(before), float(now)))
    return greatest / least if least else (math.inf if greatest else 1.0)


def _sum(terms: Any) -> float:
    found = list(terms)
    return max(0.0, math.fsum(found)) if found else math.nan


def _smoothed(shares: Shares) -> Shares:
    """No share is zero, and both sides still sum to one, without which a divergence could be negative."""
    raised = [(max(p, _LEAST_SHARE), max(q, _LEAST_SHARE)) for p, q in shares]
    before, now = math.fsum(p for p, _ in raised), math.fsum(q for _, q in raised)
    return [(p / before, q / now) for p, q in raised]


def _shares(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> Shares:
    """The share of the rows before and now in each bin that has any; empty where one side has no rows."""
    before, now = _bins(baseline), _bins(current)
    rows_before, rows_now = sum(before.values()), sum(now.values())
    if not rows_before or not rows_now:
        return []
    keys = sorted(key for key in before.keys() | now.keys() if before.get(key) or now.get(key))
    return [(before.get(key, 0) / rows_before, now.get(key, 0) / rows_now) for key in keys]


def _bins(statistics: Mapping[str, Any]) -> dict[str, int]:
    bins = {"null": statistics["nulls"]}
    bins |= {key: statistics.get(key, 0) for key in ("zeros", "not_finite")}
    bins |= {f"bin {index:03d}": count for index, count in enumerate(statistics.get("counts", ()))}
    bins |= {f"value {value}": count for value, count in statistics.get("values", ())}
    return bins | {"other": statistics.get("other", 0)}
