"""Scores rows with gradient-boosted trees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from gatehouse.metrics.tasks import Output, task_of_loss
from gatehouse.training.transformation.fitted import FIRST_KNOWN

Doubles = npt.NDArray[np.float64]


def read(path: Path) -> xgboost.Booster:
    """The trees of a weights file."""
    return xgboost.Booster({"nthread": 1}, model_file=bytearray(path.read_bytes()))


def scorer(architecture: dict[str, Any], booster: xgboost.Booster) -> Callable[[Any, Any], Doubles]:
    """A function from numbers (rows, width) and ids (rows, columns) to predictions; see `predictor.Score`."""
    output = task_of_loss(architecture["loss"]).output

    def score(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> Doubles:
        rows = columns(numbers, ids)
        if len(rows) == 0:
            # XGBoost refuses an empty array; a row of missing values shows the shape of the predictions.
            return score(np.full((1, numbers.shape[1]), np.nan, np.float32), np.zeros((1, ids.shape[1]), np.int64))[:0]
        margins = booster.inplace_predict(rows, predict_type="margin")
        return predictions(output, np.asarray(margins, dtype=np.float64))

    return score


def columns(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Numbers and categories in one array, shape (rows, all columns); a missing or unknown category is NaN."""
    categories = np.where(ids < FIRST_KNOWN, np.nan, ids - FIRST_KNOWN).astype(np.float32)
    return np.column_stack([numbers, categories]) if ids.shape[1] else np.ascontiguousarray(numbers)


def predictions(output: Output, margins: Doubles) -> Doubles:
    """Probabilities of classes from margins, of the same shape; of other tasks, the margins themselves."""
    if output == "probability":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(margins, -700, 700))))
    if output == "probabilities":
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    return margins
