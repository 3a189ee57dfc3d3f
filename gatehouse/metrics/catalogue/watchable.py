"""The metrics that training can watch, so that a metric that only evaluations measure is in no model's key."""

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.accuracy import accuracy
from gatehouse.metrics.average_precision import average_precision
from gatehouse.metrics.brier import brier
from gatehouse.metrics.calibration_error import calibration_error
from gatehouse.metrics.catalogue.metric import Metric
from gatehouse.metrics.log_loss import log_loss
from gatehouse.metrics.mae import mae
from gatehouse.metrics.mse import mse
from gatehouse.metrics.ndcg import ndcg
from gatehouse.metrics.r2 import r2
from gatehouse.metrics.roc_auc import roc_auc

WATCHABLE = {
    metric.name: metric
    for metric in (accuracy, average_precision, brier, calibration_error, log_loss, mae, mse, ndcg, r2, roc_auc)
}

ALIASES = {alias: metric.name for metric in WATCHABLE.values() for alias in metric.aliases}
"""What other programs call them, and our names."""


def watchable_metric(name: str) -> Metric:
    """The metric of a name.

    Raises:
        ConfigurationError: if training cannot watch it.
    """
    if name not in WATCHABLE:
        raise ConfigurationError(f"Training can watch {', '.join(WATCHABLE)}; found {name!r}.")
    return WATCHABLE[name]
