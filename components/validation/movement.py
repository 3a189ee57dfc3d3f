"""The rules that compare a column with its baseline: what each measures, and how it is said."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.components.validation import drift

Statistics = Mapping[str, Any]


@dataclass(frozen=True)
class Movement:
    """One measure of how far a distribution moved: of the baseline's statistics and those in its bins."""

    measure: Callable[[Statistics, Statistics], float]
    title: str
    unit: str = ""


MOVEMENTS = {
    "mean_shift": Movement(drift.mean_shift, "a mean moved by", " deviations of the baseline"),
    "spread_ratio": Movement(drift.spread_ratio, "a ratio of standard deviations"),
    "psi": Movement(drift.psi, "a population stability index"),
    "kl": Movement(drift.kullback_leibler, "a Kullback-Leibler divergence", " nats"),
    "linf": Movement(drift.l_infinity, "a change of any one share"),
    "js": Movement(drift.jensen_shannon, "a Jensen-Shannon divergence", " bits"),
}
