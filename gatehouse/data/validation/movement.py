"""The rules that compare a column with its baseline: what each measures, and how it is said.

The bins are those of the baseline's statistics: ranges between its deciles, or its most frequent values and all others
together. Nulls, zeros and values that are not finite have bins of their own, and so no bin is conditional on another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.data.distances.jensen_shannon import jensen_shannon
from gatehouse.data.distances.kullback_leibler import kullback_leibler
from gatehouse.data.distances.l_infinity import l_infinity
from gatehouse.data.distances.mean_shift import mean_shift
from gatehouse.data.distances.population_stability import population_stability
from gatehouse.data.distances.shares import Histogram
from gatehouse.data.distances.spread_ratio import spread_ratio

Statistics = Mapping[str, Any]
_LEAST_ROWS = 200


@dataclass(frozen=True)
class Movement:
    """One measure of how far a distribution moved: of the baseline's statistics and those in its bins.

    With fewer than `least_rows` on one side it is not judged: of n and m rows of one distribution in 12 bins a
    population stability index is 11 (1/n + 1/m) on average, and the divergences are half of that or less. After the
    title stands `at most`, and the bound with its unit.
    """

    measure: Callable[[Statistics, Statistics], float]
    title: str
    unit: str = ""
    least_rows: int = 0


def _of_histograms(distance: Callable[[Histogram, Histogram], float]) -> Callable[[Statistics, Statistics], float]:
    def measure(baseline: Statistics, current: Statistics) -> float:
        before, now = _bins(baseline), _bins(current)
        names = sorted(before.keys() | now.keys())
        return distance([before.get(name, 0) for name in names], [now.get(name, 0) for name in names])

    return measure


def _bins(statistics: Statistics) -> dict[str, int]:
    bins = {"null": statistics["nulls"]}
    bins |= {key: statistics.get(key, 0) for key in ("zeros", "not_finite")}
    bins |= {f"bin {index:03d}": count for index, count in enumerate(statistics.get("counts", ()))}
    bins |= {f"value {value}": count for value, count in statistics.get("values", ())}
    return bins | {"other": statistics.get("other", 0)}


def _mean_shift(baseline: Statistics, current: Statistics) -> float:
    return mean_shift(baseline.get("mean"), current.get("mean"), baseline.get("std"))


def _spread_ratio(baseline: Statistics, current: Statistics) -> float:
    return spread_ratio(baseline.get("std"), current.get("std"))


MOVEMENTS = {
    "mean_shift": Movement(_mean_shift, "a mean that moved by", " deviations of the baseline"),
    "spread_ratio": Movement(_spread_ratio, "a ratio of standard deviations of"),
    "psi": Movement(_of_histograms(population_stability), "a population stability index of", least_rows=_LEAST_ROWS),
    "kl": Movement(_of_histograms(kullback_leibler), "a Kullback-Leibler divergence of", " nats", _LEAST_ROWS),
    "linf": Movement(_of_histograms(l_infinity), "a share that changed by"),
    "js": Movement(_of_histograms(jensen_shannon), "a Jensen-Shannon divergence of", " bits", _LEAST_ROWS),
}
