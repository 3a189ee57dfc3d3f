"""The population stability index of a feature between a reference and current rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_FLOOR = 1e-4


def population_stability(expected: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    """PSI of two histograms over the same bins: sum of (q - p) ln(q / p), shares floored at 1e-4 (Siddiqi 2006).

    Args:
        expected: Counts of the reference, shape (bins,).
        found: Counts of the current rows, shape (bins,).
    """
    p = np.maximum(expected / max(expected.sum(), 1), _FLOOR)
    q = np.maximum(found / max(found.sum(), 1), _FLOOR)
    return float(np.sum((q - p) * np.log(q / p)))


def numeric_histograms(
    reference: pa.ChunkedArray, current: pa.ChunkedArray, bins: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Counts over the reference's quantile bins, with bins of their own for missing values and for zero.

    Without the zero bin, quantiles of a mostly-zero feature collapse and the index is blind.
    """
    values = [pc.cast(column, pa.float64()).to_numpy() for column in (reference, current)]
    known = values[0][np.isfinite(values[0]) & (values[0] != 0)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, bins + 1)[1:-1])) if len(known) else np.empty(0)
    expected, found = (_numeric_counts(each, edges) for each in values)
    return expected, found


def _numeric_counts(values: npt.NDArray[Any], edges: npt.NDArray[Any]) -> npt.NDArray[Any]:
    missing, zero = ~np.isfinite(values), values == 0
    rest = values[~missing & ~zero]
    inner = np.bincount(np.searchsorted(edges, rest, side="right"), minlength=len(edges) + 1)
    return np.concatenate([[missing.sum(), zero.sum()], inner])


def categorical_histograms(
    reference: pa.ChunkedArray, current: pa.ChunkedArray
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Counts over every value that either side has; missing is a value."""
    texts = [pc.fill_null(pc.cast(column, pa.string()), "\0missing") for column in (reference, current)]
    names = pc.unique(pa.chunked_array([chunk for text in texts for chunk in text.chunks], pa.string()))
    codes = [pc.index_in(text, value_set=names).to_numpy() for text in texts]
    expected, found = (np.bincount(code, minlength=len(names)) for code in codes)
    return expected, found
