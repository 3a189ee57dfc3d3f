"""Log loss: how surprising the labels are to the probabilities."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array, probability_of_label

_TINY = 1e-15


@mean_metric(
    title="log loss",
    better="lower",
    tasks=("binary", "multiclass"),
    reads="probabilities",
    aliases=("logloss", "cross_entropy"),
)
def log_loss(labels: Array, probabilities: Array) -> Array:
    """Negative log likelihood of each row in nats; probabilities are kept 1e-15 away from 0 and 1.

    Args:
        labels: 0 or 1, or the number of the class, shape (rows,).
        probabilities: Of label 1, shape (rows,), or of each class, shape (rows, classes).
    """
    if probabilities.ndim == 2:
        return np.asarray(-np.log(np.clip(probability_of_label(labels, probabilities), _TINY, 1 - _TINY)))
    kept = np.clip(probabilities, _TINY, 1 - _TINY)
    return np.asarray(-np.where(np.asarray(labels) > 0.5, np.log(kept), np.log1p(-kept)))
