"""The bootstrap: draws units of the test rows with replacement, and measures intervals and comparisons on the draws.

Efron (1979); for units of several rows it is the cluster bootstrap (Davison and Hinkley 1997, section 3.8).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtr, stdtrit

from gatehouse.data.splitting.parts import Part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.gate import Comparison
from gatehouse.metrics.metric import Array, Metric, Predictions, all_on_draws

LEVEL = 0.95
SPANS = ("day", "week")
_STEPS = 16
_SEED = 7


@dataclass(frozen=True)
class Units:
    """What is drawn with replacement.

    Attributes:
        name: What a unit is: `row`, `group` of a ranking, `day`, `week`, or a column whose values are drawn whole.
        of_row: Number of the unit of each row, shape (rows,); None if each row is a unit.
    """

    name: str
    number: int
    of_row: Array | None = None

    @classmethod
    def of(cls, part: Part, resample_by: str, decision_time: str, key: str = "evaluation.resample_by") -> "Units":
        """Rows with the same value of a column, or of the `day` or `week` of the decision time, at this key of a file.

        Without `resample_by` these are rows, or groups of a ranking. Raises ConfigurationError if there is no such
        column, or if it would split a group of a ranking.
        """
        if not resample_by:
            return cls.single(len(part.rows), part.groups)
        column = decision_time if resample_by in SPANS else resample_by
        if column not in part.columns.column_names:
            raise ConfigurationError(
                f"{key}: expected `day`, `week` or a column of the training set "
                f"({', '.join(part.columns.column_names)}), found {resample_by}."
            )
        values = part.columns[column]
        if resample_by in SPANS:
            values = pc.floor_temporal(values, unit=resample_by)
        numbers = _numbered(values)
        if part.groups is not None:
            pairs = np.unique(np.column_stack([part.groups, numbers]), axis=0)
            if len(pairs) > len(np.unique(part.groups)):
                raise ConfigurationError(
                    f"{key}: {resample_by}: expected the same value in all rows of a group, which is drawn as a whole."
                )
        return cls._named(resample_by, numbers)

    @classmethod
    def of_split(cls, part: Part, columns: Sequence[str]) -> "Units":
        """The default units: rows of the same group or entity, which have the same values in these columns.

        For a ranking each group; without columns each row.
        """
        if part.groups is not None or not columns or not {*columns} <= {*part.columns.column_names}:
            return cls.single(len(part.rows), part.groups)
        numbers = np.column_stack([_numbered(part.columns[name]) for name in columns])
        units = cls._named(" and ".join(columns), np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1))
        return units if units.number < len(part.rows) else cls.single(len(part.rows), None)

    @classmethod
    def single(cls, rows: int, groups: Array | None) -> "Units":
        """Each row alone, or each group of a ranking; `groups` has the number of each row's group, shape (rows,)."""
        return cls("row", rows) if groups is None else cls._named("group", groups)

    @classmethod
    def _named(cls, name: str, numbers: Array) -> "Units":
        distinct, of_row = np.unique(numbers, return_inverse=True)
        return cls(name, len(distinct), of_row)

    def __str__(self) -> str:
        kind = f"{self.name}s" if self.name in ("row", "group", *SPANS) else f"values of {self.name}"
        return f"{self.number:,} {kind}"

    def among(self, rows: Array) -> int:
        """Number of units that rows, given by their numbers, shape (some,), belong to."""
        return len(rows) if self.of_row is None else len(np.unique(self.of_row[rows]))

    def draws(self, numbers: Iterable[int], seed: int) -> Iterator[Array]:
        """How often each row is drawn, float64, shape (rows,), of the draws of these numbers; the same on every call.

        Each draw has its own generator, so it does not depend on the draws before it.
        """
        for number in numbers:
            drawn = np.random.default_rng([seed, number]).integers(0, self.number, self.number)
            times = np.bincount(drawn, minlength=self.number).astype(np.float64)
            yield times if self.of_row is None else times[self.of_row]


def _numbered(values: pa.ChunkedArray) -> Array:
    """A number for each value, the same for equal ones and for missing ones, shape (rows,)."""
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False))


def on_draws(
    measure: Callable[[Array], Sequence[float] | Array], units: Units, numbers: Iterable[int], seed: int
) -> Array:
    """What a function measures on the draws of these numbers, shape (draws, measured).

    Calls with the same seed use the same draws; only one draw is in memory at a time.
    """
    return np.array([measure(times) for times in units.draws(numbers, seed)])


def percentiles(drawn: Array, outside: float, units: int | None = None) -> tuple[float, float]:
    """The lower and the upper percentile of draws that each leave a share of the truths outside.

    With B draws it is the one of rank `outside` (B + 1) (Davison and Hinkley 1997, section 5.2). Draws of n units vary
    by (n - 1) / n of what samples do, and few units call for a t distribution: the expanded percentile interval
    (Hesterberg 2015, What Teachers Should Know About the Bootstrap) corrects the level for both.

    Args:
        drawn: A number of each draw, shape (samples,). NaN is left out; without other numbers both ends are NaN.
        outside: Share, below a half.
        units: How many units were drawn from; None for no correction.
    """
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) == 0:
        return math.nan, math.nan
    outside = _level(outside, units)
    low, high = np.quantile(drawn, (outside, 1 - outside), method="weibull")
    return float(low), float(high)


def _level(outside: float, units: int | None) -> float:
    if units is None or units < 2:
        return outside
    return float(ndtr(math.sqrt(units / (units - 1)) * stdtrit(units - 1, outside)))


def interval(metric: Metric, drawn: Array, units: int, labels: Array, predictions: Predictions) -> tuple[float, float]:
    """The 95 % interval of a metric: percentiles of its draws. For a calibration error a test is inverted instead.

    The interval of the debiased calibration error is widened to hold that error, which the test alone may not.

    Args:
        drawn: Its columns of `all_on_draws`, shape (samples, 1 + groups), at least one of them a number.
    """
    drawn = drawn[~np.isnan(drawn[:, 0])]
    if not metric.groups:
        return percentiles(drawn[:, 0], (1 - LEVEL) / 2, units)
    once = all_on_draws([metric], labels, predictions)(np.ones(len(labels)))
    low, high = calibration_interval(np.array(once[1:]), drawn[:, 1:], _level((1 - LEVEL) / 2, units))
    return (min(low, once[0]), max(high, once[0])) if metric.has_interval else (low, high)


def calibration_interval(gaps: Array, drawn: Array, outside: float) -> tuple[float, float]:
    """All true calibration errors for which the error of the rows is not among the extreme ones.

    A test is inverted (Davison and Hinkley 1997, section 5.6; Carpenter 1999): under a true error e the error of a
    sample is that of gaps of size e plus the noise of rates, which draws show. For an error of 0 it is the test of
    Brocker and Smith (2007), by consistency resampling, so the interval of a calibrated model begins at 0. How e is
    divided among the gaps is unknown, and drawn: with normal gaps and noise, the true gaps are normal around a shrunken
    form of the observed ones (empirical Bayes, Efron and Morris 1973).

    The error of the rows may lie above the interval, because chance enlarges it.

    Args:
        gaps: Distance of probability and rate in each bin times its share of the rows, shape (bins,).
        drawn: The same of each draw of the bootstrap, shape (samples, bins).
    """
    noise, observed = drawn - gaps, float(np.abs(gaps).sum())
    spread = noise.var(axis=0)
    signal = max(float(np.mean(gaps**2 - spread)), 0.0)
    kept = signal / (signal + float(np.mean(spread)) or 1.0)
    normal = np.random.default_rng(_SEED).normal(size=noise.shape)
    shapes = kept * gaps + np.sqrt(kept * spread) * normal
    sizes = np.abs(shapes).sum(axis=1, keepdims=True)
    shapes = np.divide(shapes, sizes, out=np.full(shapes.shape, 1 / len(gaps)), where=sizes > 0)

    def true_error(share: float) -> float:
        """The least true error for which at most this share of samples has an error below the observed one."""
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            errors = np.abs(middle * shapes + noise).sum(axis=1)
            below = np.quantile(errors, share, method="weibull") < observed
            low, high = (middle, high) if below else (low, middle)
        return 0.0 if math.isclose(high, 0.5**_STEPS) else high

    return true_error(1 - outside), true_error(outside)


def compared(
    metric: Metric,
    candidate: float,
    champion: float,
    on_draws: tuple[Array, Array],
    confidence: float,
    units: int | None = None,
) -> Comparison:
    """Compare two models in a metric by the paired bootstrap (Efron 1979): both are measured on the same draws.

    Args:
        on_draws: The values of candidate and champion on each draw, shape (samples,) each.
        units: How many units were drawn from; None for no correction.
    """
    candidate_values, champion_values = on_draws
    sign = 1.0 if metric.better == "lower" else -1.0
    worse_by = sign * (candidate_values - champion_values)
    worse_by = worse_by[~np.isnan(worse_by)]
    best, worst = percentiles(worse_by, 1 - confidence, units)
    return Comparison(
        metric=metric.name,
        candidate=candidate,
        champion=champion,
        worse_by=metric.worse_by(candidate, champion),
        worst_bound=worst,
        best_bound=best,
        standard_error=float(worse_by.std(ddof=1)) if len(worse_by) > 1 else np.nan,
        units=units,
    )


def shuffled(predictions: Predictions, rows: int, seed: int, number: int) -> Predictions:
    """The predictions dealt to other rows, in a ranking to other rows of their group; each number is another deal."""
    groups = np.zeros(rows, np.int64) if predictions.groups is None else predictions.groups
    # A third word that is not 0 makes it independent of all draws, which have two.
    generator = np.random.default_rng([seed, number, 1])
    taken = np.empty(rows, np.int64)
    taken[np.argsort(groups, kind="stable")] = np.lexsort((generator.random(rows), groups))
    return replace(predictions.take(taken), groups=predictions.groups)
