"""The rules that compare a column with its baseline.

The bins are ranges between the baseline's deciles, or its most frequent values and all others together. Nulls, zeros
and values that are not finite have bins of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.data.distances import HISTOGRAM_DISTANCES, Histogram, mean_shift, spread_ratio

Statistics = Mapping[str, Any]
_LEAST_ROWS = 200


@dataclass(frozen=True)
class Movement:
    """A measure of the baseline's statistics and the statistics in its bins; in messages, `at most` follows the title.

    With fewer than `least_rows` on one side it is not judged: with n and m rows of one distribution in 12 bins, a
    population stability index is 11 (1/n + 1/m) on average, and the divergences are half of that or less.
    """

    measure: Callable[[Statistics, Statistics], float]
    title: str
    unit: str = ""
    least_rows: int = 0


def _of_histograms(name: str) -> Callable[[Statistics, Statistics], float]:
    distance: Callable[[Histogram, Histogram], float] = HISTOGRAM_DISTANCES[name].of

    def measure(baseline: Statistics, current: Statistics) -> float:
        before, now = _bins(baseline), _bins(current)
        names = sorted(before.keys() | now.keys())
        return distance([before.get(bin, 0) for bin in names], [now.get(bin, 0) for bin in names])

    return measure


def _bins(statistics: Statistics) -> dict[str, int]:
    bins = {"null": statistics["nulls"]}
    bins |= {key: statistics.get(key, 0) for key in ("zeros", "not_finite")}
    bins |= {f"bin {index:03d}": count for index, count in enumerate(statistics.get("counts", ()))}
    bins |= {f"value {value}": count for value, count in statistics.get("values", ())}
    return bins | {"other": statistics.get("other", 0)}


MOVEMENTS = {
    "mean_shift": Movement(
        lambda baseline, current: mean_shift(baseline.get("mean"), current.get("mean"), baseline.get("std")),
        "a mean that moved by",
        " deviations of the baseline",
    ),
    "spread_ratio": Movement(
        lambda baseline, current: spread_ratio(baseline.get("std"), current.get("std")),
        "a ratio of standard deviations of",
    ),
    "psi": Movement(_of_histograms("psi"), "a population stability index of", least_rows=_LEAST_ROWS),
    "kl": Movement(_of_histograms("kullback_leibler"), "a Kullback-Leibler divergence of", " nats", _LEAST_ROWS),
    "linf": Movement(_of_histograms("l_infinity"), "a share that changed by"),
    "js": Movement(_of_histograms("jensen_shannon"), "a Jensen-Shannon divergence of", " bits", _LEAST_ROWS),
}
