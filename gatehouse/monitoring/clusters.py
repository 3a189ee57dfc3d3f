"""Rows of one unit, such as a day, depend on each other: computes how many independent rows they are worth."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def design_effects(indicators: Array, units: Numbers) -> Array:
    """The variance of each mean when units are sampled, divided by that when rows are sampled (Kish 1965); (columns,).

    The variance over units is that of their residual totals (Cochran 1977, section 9A). With few units it is uncertain;
    its degrees of freedom account for this: it is multiplied by (units - 1) / (units - 3). No effect is below one:
    units that balance each other by chance are no reason to trust rows more.

    Args:
        indicators: One number per row and column, shape (rows, columns).
        units: Number of each row's unit, from 0, shape (rows,).

    Returns:
        Values from 1 up; 1 if each row is a unit, NaN for a constant column.
    """
    count = int(units.max(initial=-1)) + 1
    apart = indicators - indicators.mean(axis=0)
    totals = np.array([np.bincount(units, weights=column, minlength=count) for column in apart.T])
    return _effects(totals.T, np.square(apart).sum(axis=0), len(indicators))


def bin_effects(placed: Numbers, units: Numbers, size: int) -> Array:
    """The design effect of the share of each bin, shape (bins,).

    Args:
        placed: Number of each row's bin, shape (rows,).
        units: Number of each row's unit, from 0, shape (rows,).
        size: Number of bins.
    """
    shares = np.bincount(placed, minlength=size) / len(placed)
    return _effects(residual_totals(placed, units, size), len(placed) * shares * (1 - shares), len(placed))


def residual_totals(placed: Numbers, units: Numbers, size: int) -> Array:
    """By unit and bin, the number of rows beyond the bin's share of all rows, shape (units, bins).

    Args:
        placed: Number of each row's bin, shape (rows,).
        units: Number of each row's unit, from 0, shape (rows,).
        size: Number of bins.
    """
    count = int(units.max(initial=-1)) + 1
    table = np.bincount(units * size + placed, minlength=count * size).reshape(count, size)
    totals: Array = table - table.sum(axis=1, keepdims=True) * (table.sum(axis=0) / len(placed))
    return totals


def _effects(totals: Array, of_rows: Array, rows: int) -> Array:
    """Design effects from residual totals, shape (units, columns), and sums of squares by rows, shape (columns,)."""
    count = len(totals)
    if count >= rows:
        return np.ones(len(of_rows))
    few = (count - 1) / (count - 3) if count > 3 else float(count)
    of_units = np.square(totals).sum(axis=0) * count / max(count - 1, 1) * few
    found = np.divide(of_units, of_rows, out=np.full(len(of_rows), np.nan), where=of_rows > 0)
    effects: Array = np.maximum(found, 1.0)
    return effects


def pooled_effects(effects: Sequence[float], units: Sequence[Numbers]) -> list[float]:
    """The design effect of each sample, assuming that units explain the same share of the variance in all samples.

    One week alone cannot show how much days differ. The days of all samples can, and they are alike if nothing moved.

    Args:
        effects: The design effect of each sample; NaN if it could not be computed.
        units: For each sample the number of each row's unit, shape (rows of the sample,).

    Returns:
        If no sample has an effect, the number of rows per unit: a unit then counts as one row.
    """
    sizes = [_unit_size(each) for each in units]
    counted = [int(each.max()) if np.isfinite(effect) else 0 for effect, each in zip(effects, units, strict=True)]
    apart = sum(freedom * (size - 1) for freedom, size in zip(counted, sizes, strict=True))
    if not apart:
        return sizes
    found = sum(freedom * (effect - 1) for freedom, effect in zip(counted, effects, strict=True) if freedom)
    return [1 + (size - 1) * min(found / apart, 1.0) for size in sizes]


def _unit_size(units: Numbers) -> float:
    """Mean rows per unit, weighted by rows: units with more rows count more."""
    counts = np.bincount(units)
    return float(np.square(counts.astype(np.float64)).sum() / counts.sum())


def mean_error(values: Array, units: Numbers) -> float:
    """Standard error of the mean of values, shape (rows,), when units are sampled; infinite with fewer than two."""
    count = int(units.max(initial=-1)) + 1
    if count < 2:
        return float("inf")
    effect = float(np.nan_to_num(design_effects(values[:, None], units)[0], nan=1.0))
    return float(np.sqrt(effect * values.var(ddof=1) / len(values)))
