"""The rules that compare a column with its baseline: what each measures, and how it is said."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.components.validation import drift

Statistics = Mapping[str, Any]
_LEAST_ROWS = 200


@dataclass(frozen=True)
class Movement:
    """One measure of how far a distribution moved: of the baseline's statistics and those in its bins.

    With fewer than `least_rows` on one side it is not judged: of n and m rows of one distribution in 12 bins a
    population stability index is 11 (1/n + 1/m) on average, and the divergences are half of that or less.
    """

    measure: Callable[[Statistics, Statistics], float]
    title: str
    unit: str = ""
    least_rows: int = 0


MOVEMENTS = {
    "mean_shift": Movement(drift.mean_shift, "a mean moved by", " deviations of the baseline"),
    "spread_ratio": Movement(drift.spread_ratio, "a ratio of standard deviations"),
    "psi": Movement(drift.psi, "a population stability index", least_rows=_LEAST_ROWS),
    "kl": Movement(drift.kullback_leibler, "a Kullback-Leibler divergence", " nats", _LEAST_ROWS),
    "linf": Movement(drift.l_infinity, "a change of any one share"),
    "js": Movement(drift.jensen_shannon, "a Jensen-Shannon divergence", " bits", _LEAST_ROWS),
}
