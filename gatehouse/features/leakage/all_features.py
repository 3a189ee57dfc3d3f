"""Measures how well all features together predict the label with a linear model; too well is a sign of leakage."""

import math
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.statistics.linear_model import LinearModel
from gatehouse.metrics.arithmetic.intervals import NORMAL
from gatehouse.metrics.classification import roc_auc

_MOST_ROWS = 100_000
_FITTED = 0.7
_LEAST_ROWS = 100


@dataclass(frozen=True)
class Together:
    """ROC AUC of a linear model on rows later than its training rows, with the bounds of its 95 % interval."""

    area: float
    low: float
    high: float


def joint_auc(
    training_set: pa.Table, label: str, decision_time: str, numeric: list[str], categorical: list[str]
) -> Together | None:
    """Fit on the first 70 % of the rows by time and measure on the rest; at most 100,000 rows, evenly spaced, are used.

    The interval is that of Hanley and McNeil (1982).

    Args:
        training_set: The rows; two classes.
        label: Its column of 0 and 1.
        decision_time: Its column of times.
        numeric: Names of the numeric features.
        categorical: Names of the categorical features.

    Returns:
        The ROC AUC; None where the first or the last rows have fewer than 100 rows of either label.
    """
    order = pc.sort_indices(training_set[decision_time]).to_numpy()
    rows = training_set.take(pa.array(order[:: -(-len(order) // _MOST_ROWS) or 1]))
    labels = pc.cast(rows[label], pa.float64()).to_numpy()
    end = int(_FITTED * len(labels))
    counts = [(int(part.sum()), int(len(part) - part.sum())) for part in (labels[:end], labels[end:])]
    if min(map(min, counts)) < _LEAST_ROWS:
        return None
    fitted = LinearModel.fit("binary", rows.slice(0, end), labels[:end], numeric, categorical)
    area = roc_auc(labels[end:], fitted.predict(rows.slice(end)))
    reach = NORMAL * _standard_error(area, *counts[1])
    return Together(area, area - reach, min(1.0, area + reach))


def _standard_error(area: float, positive: int, negative: int) -> float:
    of_positives, of_negatives = area / (2 - area), 2 * area**2 / (1 + area)
    spread = (positive - 1) * (of_positives - area**2) + (negative - 1) * (of_negatives - area**2)
    return math.sqrt(max(0.0, area * (1 - area) + spread) / (positive * negative))
