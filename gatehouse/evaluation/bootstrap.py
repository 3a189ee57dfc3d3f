"""The bootstrap: units of the test rows are drawn with replacement, and every number is measured on the same draws.

Efron (1979); for units of several rows it is the cluster bootstrap (Davison and Hinkley 1997, section 3.8).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtr, stdtrit

from gatehouse.data.splitting.parts import Part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.calibration_interval import calibration_interval
from gatehouse.metrics.catalogue.metric import Array, Metric, Predictions, all_on_draws

LEVEL = 0.95
SPANS = ("day", "week")


@dataclass(frozen=True)
class Units:
    """What is drawn with replacement.

    Attributes:
        name: What a unit is: `row`, `group` of a ranking, `day`, `week`, or a column whose values are drawn whole.
        number: How many there are.
        of_row: Number of the unit of each row, shape (rows,); None where each row is one.
    """

    name: str
    number: int
    of_row: Array | None = None

    @classmethod
    def of(cls, part: Part, resample_by: str, decision_time: str, key: str = "evaluation.resample_by") -> "Units":
        """The units of the test rows.

        Args:
            part: The test rows.
            resample_by: A column whose values are drawn whole, `day`, `week`, or nothing: then rows, or groups of
                a ranking.
            decision_time: The column whose day or week it is.
            key: Where `resample_by` is set, for messages.

        Raises:
            ConfigurationError: if there is no such column, or if it would split a group of a ranking.
        """
        if not resample_by:
            return cls.single(len(part.rows), part.groups)
        column = decision_time if resample_by in SPANS else resample_by
        if column not in part.table.column_names:
            raise ConfigurationError(
                f"{key}: expected `day`, `week` or a column of the training set "
                f"({', '.join(part.table.column_names)}), found {resample_by}."
            )
        values = part.table[column]
        if resample_by in SPANS:
            values = pc.floor_temporal(values, unit=resample_by)
        numbers = _numbered(values)
        if part.groups is not None:
            pairs = np.unique(np.column_stack([part.groups, numbers]), axis=0)
            if len(pairs) > len(np.unique(part.groups)):
                raise ConfigurationError(
                    f"{key}: {resample_by}: expected the same value in all rows of a group, because the bootstrap "
                    "draws whole groups. Name a column that is constant within a group."
                )
        return cls._named(resample_by, numbers)

    @classmethod
    def of_split(cls, part: Part, columns: Sequence[str]) -> "Units":
        """The units where nobody names one: rows that a split keeps together, by columns whose values are their group.

        Of a ranking each group, and without columns each row.
        """
        if part.groups is not None or not columns or not {*columns} <= {*part.table.column_names}:
            return cls.single(len(part.rows), part.groups)
        numbers = np.column_stack([_numbered(part.table[name]) for name in columns])
        units = cls._named(" and ".join(columns), np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1))
        return units if units.number < len(part.rows) else cls.single(len(part.rows), None)

    @classmethod
    def single(cls, rows: int, groups: Array | None) -> "Units":
        """Each row alone; of a ranking each group, given by the number of that of each row, shape (rows,)."""
        return cls("row", rows) if groups is None else cls._named("group", groups)

    @classmethod
    def _named(cls, name: str, numbers: Array) -> "Units":
        found, of_row = np.unique(numbers, return_inverse=True)
        return cls(name, len(found), of_row)

    def among(self, rows: Array) -> int:
        """How many units some rows are of, given by their numbers, shape (some,)."""
        return len(rows) if self.of_row is None else len(np.unique(self.of_row[rows]))

    def draws(self, samples: int, seed: int) -> Iterator[Array]:
        """How often each row is drawn, float64, shape (rows,), of each draw; the same whenever it is asked."""
        generator = np.random.default_rng(seed)
        for _ in range(samples):
            drawn = generator.integers(0, self.number, self.number)
            times = np.bincount(drawn, minlength=self.number).astype(np.float64)
            yield times if self.of_row is None else times[self.of_row]


def _numbered(values: pa.ChunkedArray) -> Array:
    """A number for each value, the same for equal ones and for missing ones, shape (rows,)."""
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Measured:
    """Numbers that are measured on every draw: of the rows from `start` to `stop`, in the order that is asked for."""

    on_draw: Callable[[Array], float | Sequence[float]]
    start: int = 0
    stop: int | None = None


def on_draws(measured: Sequence[Measured], units: Units, samples: int, seed: int, order: Array | None = None) -> Array:
    """What is measured on each draw, shape (samples, numbers); a draw is held no longer than it is looked at.

    Args:
        measured: What to measure.
        units: What is drawn.
        samples: Number of draws.
        seed: Of the draws: with one seed, calls see the same ones.
        order: Numbers of the rows in the order in which `measured` counts them, shape (rows,); None for their own.
    """
    found = []
    for times in units.draws(samples, seed):
        ordered = times if order is None else times[order]
        found.append(np.hstack([each.on_draw(ordered[each.start : each.stop]) for each in measured]))
    return np.array(found)


def percentiles(drawn: Array, outside: float, units: int | None = None) -> tuple[float, float]:
    """The lower and the upper percentile of draws that each leave a share of the truths outside.

    Of B draws it is the one of rank `outside` (B + 1) (Davison and Hinkley 1997, section 5.2). Draws of n units vary by
    (n - 1) / n of what samples do, and n also stand for a t distribution: the expanded percentile interval (Hesterberg
    2015, What Teachers Should Know About the Bootstrap) takes both into the level, which so is further outside.

    Args:
        drawn: A number of each draw, shape (samples,); NaN does not count, and without any other both ends are NaN.
        outside: Share, below a half.
        units: How many units were drawn from; None for so many that it makes no difference.
    """
    known = drawn[~np.isnan(drawn)]
    if len(known) == 0:
        return math.nan, math.nan
    outside = _level(outside, units)
    low, high = np.quantile(known, (outside, 1 - outside), method="weibull")
    return float(low), float(high)


def interval(metric: Metric, drawn: Array, units: int, labels: Array, predictions: Predictions) -> tuple[float, float]:
    """The 95 % interval of a metric: percentiles of its draws. For a calibration error a test is inverted instead.

    The interval of the debiased calibration error is widened to hold that error, which the test alone may not.

    Args:
        metric: The metric.
        drawn: What `all_on_draws` gave of it, shape (samples, 1 + groups); of one draw at least a number.
        units: How many units were drawn from.
        labels: Shape (rows,).
        predictions: For the rows.
    """
    known = drawn[~np.isnan(drawn[:, 0])]
    if not metric.groups:
        return percentiles(known[:, 0], (1 - LEVEL) / 2, units)
    once = all_on_draws([metric], labels, predictions)(np.ones(len(labels)))
    low, high = calibration_interval(np.array(once[1:]), known[:, 1:], _level((1 - LEVEL) / 2, units))
    return (min(low, once[0]), max(high, once[0])) if metric.has_interval else (low, high)


def _level(outside: float, units: int | None) -> float:
    if units is None or units < 2:
        return outside
    return float(ndtr(math.sqrt(units / (units - 1)) * stdtrit(units - 1, outside)))
