"""Rows of one unit, such as a day, depend on each other: as how many independent rows they count."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def design_effects(indicators: Array, units: Numbers) -> Array:
    """The variance of each mean as units are drawn, over that as rows are drawn (Kish 1965), shape (columns,).

    The variance over units is that of their residual totals (Cochran 1977, section 9A); with few units it is uncertain,
    which the degrees of freedom of its estimate account for: it grows by (units - 1) / (units - 3). No effect is below
    one, as units that happen to balance each other are no reason to trust rows more.

    Args:
        indicators: A number of each row, shape (rows, columns).
        units: Number of the unit of each row, from 0, shape (rows,).

    Returns:
        From 1 up; 1 where each row is a unit, NaN for a column that is constant.
    """
    count = int(units.max(initial=-1)) + 1
    apart = indicators - indicators.mean(axis=0)
    totals = np.array([np.bincount(units, weights=column, minlength=count) for column in apart.T])
    return _effects(totals.T, np.square(apart).sum(axis=0), len(indicators))


def bin_effects(placed: Numbers, units: Numbers, size: int) -> Array:
    """The design effect of the share of each bin, shape (bins,).

    Args:
        placed: Number of the bin of each row, shape (rows,).
        units: Number of the unit of each row, from 0, shape (rows,).
        size: Number of bins.
    """
    shares = np.bincount(placed, minlength=size) / len(placed)
    return _effects(residual_totals(placed, units, size), len(placed) * shares * (1 - shares), len(placed))


def residual_totals(placed: Numbers, units: Numbers, size: int) -> Array:
    """How many more rows of each unit are in each bin than its share of all says, shape (units, bins).

    Args:
        placed: Number of the bin of each row, shape (rows,).
        units: Number of the unit of each row, from 0, shape (rows,).
        size: Number of bins.
    """
    count = int(units.max(initial=-1)) + 1
    table = np.bincount(units * size + placed, minlength=count * size).reshape(count, size)
    totals: Array = table - table.sum(axis=1, keepdims=True) * (table.sum(axis=0) / len(placed))
    return totals


def _effects(totals: Array, of_rows: Array, rows: int) -> Array:
    """From residual totals, shape (units, columns), and sums of squares by rows, shape (columns,)."""
    count = len(totals)
    if count >= rows:
        return np.ones(len(of_rows))
    few = (count - 1) / (count - 3) if count > 3 else float(count)
    of_units = np.square(totals).sum(axis=0) * count / max(count - 1, 1) * few
    found = np.divide(of_units, of_rows, out=np.full(len(of_rows), np.nan), where=of_rows > 0)
    effects: Array = np.maximum(found, 1.0)
    return effects


def pooled_effects(effects: Sequence[float], units: Sequence[Numbers]) -> list[float]:
    """The design effect of each sample, where the units of all have the same share of the variance in common.

    A week alone cannot tell how much days differ; the days of all samples, which are alike where nothing moved, can.

    Args:
        effects: The design effect that was found in each sample; NaN where none could be.
        units: Number of the unit of each row of each sample.

    Returns:
        The rows of a unit where no sample tells: a unit then counts as one row.
    """
    sizes = [_unit_size(each) for each in units]
    counted = [int(each.max()) if np.isfinite(effect) else 0 for effect, each in zip(effects, units, strict=True)]
    apart = sum(freedom * (size - 1) for freedom, size in zip(counted, sizes, strict=True))
    if not apart:
        return sizes
    found = sum(freedom * (effect - 1) for freedom, effect in zip(counted, effects, strict=True) if freedom)
    return [1 + (size - 1) * min(found / apart, 1.0) for size in sizes]


def _unit_size(units: Numbers) -> float:
    """Rows of a unit, as a row sees it: units with more rows count more."""
    counts = np.bincount(units)
    return float(np.square(counts.astype(np.float64)).sum() / counts.sum())


def mean_error(values: Array, units: Numbers) -> float:
    """Standard error of the mean of values, shape (rows,), whose units are drawn; infinite of fewer than two."""
    count = int(units.max(initial=-1)) + 1
    if count < 2:
        return float("inf")
    effect = float(np.nan_to_num(design_effects(values[:, None], units)[0], nan=1.0))
    return float(np.sqrt(effect * values.var(ddof=1) / len(values)))
