"""How well one feature alone tells the label: a feature that is too good is taken for a leak."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.metrics.roc_auc import roc_auc

_SMOOTHING = 20.0


def single_feature_auc(
    training_set: pa.Table, label: str, numeric: list[str], categorical: list[str]
) -> dict[str, float]:
    """ROC AUC of every feature alone against the label, from 0.5 to 1, by name.

    A numeric feature scores by its value, in the better direction, nulls all low or all high, whichever tells more (so
    a null that gives the label away counts). A categorical feature scores by the label rate of its category, nulls
    being one, shrunk by 20 rows towards the mean rate. Without both labels every feature has 0.5.
    """
    y = training_set[label].to_numpy().astype(bool)
    if not len(y) or y.all() or not y.any():
        return dict.fromkeys([*numeric, *categorical], 0.5)
    found = {name: _numeric(training_set[name], y) for name in numeric}
    return found | {name: _categorical(training_set[name], y) for name in categorical}


def _numeric(column: pa.ChunkedArray, y: np.ndarray) -> float:
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    unknown = np.isnan(values)
    best = 0.5
    for stand_in in (-np.inf, np.inf) if unknown.any() else (0.0,):
        area = roc_auc(y, np.where(unknown, stand_in, values))
        best = max(best, area, 1 - area)
    return best


def _categorical(column: pa.ChunkedArray, y: np.ndarray) -> float:
    codes = pc.fill_null(pc.cast(column, pa.string()), "\0null").combine_chunks().dictionary_encode().indices.to_numpy()
    counts = np.bincount(codes)
    rates = (np.bincount(codes, weights=y) + _SMOOTHING * y.mean()) / (counts + _SMOOTHING)
    return max(0.5, roc_auc(y, rates[codes]))
