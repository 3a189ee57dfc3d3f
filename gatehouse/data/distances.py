"""Distances between two distributions: of histograms, of numbers, and of means and deviations.

Sums are exact and logarithms are those of the C library, so a distance has the same bits on every machine.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Histogram = Iterable[int]
"""Rows in each bin. Two histograms that are compared have the same bins in the same order."""
Numbers = npt.NDArray[Any]
_LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class Distance:
    """A distance between two histograms, with its title and unit."""

    title: str
    of: Callable[[Histogram, Histogram], float]
    unit: str = ""


def population_stability(before: Histogram, now: Histogram) -> float:
    """The population stability index (PSI): the sum over bins of (q - p) ln(q / p), of smoothed shares.

    As used in credit scoring (Siddiqi, Credit Risk Scorecards, 2006); the Kullback-Leibler divergence summed over both
    directions (Jeffreys, 1946). From 0 (equal shares) up; NaN if one side has no rows.
    """
    return _total((q - p) * math.log(q / p) for p, q in _smoothed(before, now))


def kullback_leibler(before: Histogram, now: Histogram) -> float:
    """The divergence of `now` from `before` in nats: the sum over bins of q ln(q / p), of smoothed shares.

    Kullback and Leibler, On information and sufficiency (1951). From 0 up; NaN if one side has no rows.
    """
    return _total(q * math.log(q / p) for p, q in _smoothed(before, now))


def jensen_shannon(before: Histogram, now: Histogram) -> float:
    """The mean divergence of both sides from their mixture, in bits (Lin, 1991).

    From 0 (equal shares) to 1 (no bin in common); NaN if one side has no rows.
    """
    pairs = _shares(before, now)
    distance = _total(share * math.log2(2 * share / (p + q)) / 2 for p, q in pairs for share in (p, q) if share > 0)
    return min(distance, 1.0) if pairs else distance


def l_infinity(before: Histogram, now: Histogram) -> float:
    """The largest change of the share of any bin, from 0 to 1; NaN if one side has no rows."""
    return max((abs(q - p) for p, q in _shares(before, now)), default=math.nan)


HISTOGRAM_DISTANCES = {
    "psi": Distance("PSI", population_stability),
    "jensen_shannon": Distance("Jensen-Shannon divergence", jensen_shannon, "bits"),
    "kullback_leibler": Distance("Kullback-Leibler divergence", kullback_leibler, "nats"),
    "l_infinity": Distance("L-infinity distance", l_infinity),
}
"""All distances between histograms, by the name that settings give them."""


def kolmogorov_smirnov(before: Numbers, now: Numbers) -> float:
    """The largest difference between the shares of rows up to a value (Smirnov, 1948), of finite values.

    From 0 (equal distributions) to 1 (no overlap); NaN if one side has no values.
    """
    if not len(before) or not len(now):
        return math.nan
    values = np.unique(np.concatenate([before, now]))
    return float(np.abs(_shares_up_to(values, before) - _shares_up_to(values, now)).max())


def wasserstein(before: Numbers, now: Numbers) -> float:
    """The area between both cumulative distributions of finite values (Kantorovich, 1942), in the unit of the values.

    From 0 (equal distributions) up; NaN if one side has no values.
    """
    if not len(before) or not len(now):
        return math.nan
    values = np.sort(np.concatenate([before, now]))
    apart = np.abs(_shares_up_to(values[:-1], before) - _shares_up_to(values[:-1], now))
    return math.fsum((apart * np.diff(values)).tolist())


def mean_shift(mean_before: float | None, mean_now: float | None, deviation_before: float | None) -> float:
    """How far a mean moved, in standard deviations of the rows before; infinite if these were constant.

    NaN if one side has no mean.
    """
    if mean_before is None or mean_now is None:
        return math.nan
    moved = abs(mean_now - mean_before)
    if deviation_before:
        return float(moved / deviation_before)
    return math.inf if moved else 0.0


def spread_ratio(deviation_before: float | None, deviation_now: float | None) -> float:
    """The larger of two standard deviations divided by the smaller; infinite if only one of them is 0.

    NaN if one side has fewer than two values.
    """
    if deviation_before is None or deviation_now is None:
        return math.nan
    least, greatest = sorted((float(deviation_before), float(deviation_now)))
    return greatest / least if least else (math.inf if greatest else 1.0)


def _shares(before: Histogram, now: Histogram) -> list[tuple[float, float]]:
    """The share of rows before and now in each bin that has any; empty if one side has no rows."""
    pairs = [(int(p), int(q)) for p, q in zip(before, now, strict=True)]
    rows, rows_now = sum(p for p, _ in pairs), sum(q for _, q in pairs)
    return [(p / rows, q / rows_now) for p, q in pairs if p or q] if rows and rows_now else []


def _smoothed(before: Histogram, now: Histogram) -> list[tuple[float, float]]:
    """Shares raised to 1e-4 at least and scaled to sum to one, so that a new value is at a finite distance."""
    raised = [(max(p, _LEAST_SHARE), max(q, _LEAST_SHARE)) for p, q in _shares(before, now)]
    sum_before, sum_now = math.fsum(p for p, _ in raised), math.fsum(q for _, q in raised)
    return [(p / sum_before, q / sum_now) for p, q in raised]


def _total(terms: Iterable[float]) -> float:
    """The sum of terms, at least 0, because rounding may give less; NaN without terms."""
    numbers = list(terms)
    return max(0.0, math.fsum(numbers)) if numbers else math.nan


def _shares_up_to(values: Numbers, numbers: Numbers) -> Numbers:
    """The share of numbers up to each value."""
    return np.searchsorted(np.sort(numbers), values, side="right") / len(numbers)
