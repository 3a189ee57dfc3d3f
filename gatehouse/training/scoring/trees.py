"""Scores rows with gradient-boosted trees."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from gatehouse.metrics.tasks.task import Output
from gatehouse.training.trees.columns import columns

Doubles = npt.NDArray[np.float64]


def read_booster(data: bytes) -> xgboost.Booster:
    """The trees of a weights file."""
    return xgboost.Booster({"nthread": 1}, model_file=bytearray(data))


def scorer(booster: xgboost.Booster, output: Output) -> Callable[[Any, Any], Doubles]:
    """A function from numbers (rows, width) and ids (rows, columns) to predictions.

    Args:
        booster: The trees.
        output: What they give for a row.
    """

    def score(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> Doubles:
        rows = columns(numbers, ids)
        if len(rows) == 0:
            # XGBoost takes no empty array; a row of missing values tells how many predictions a row has.
            return predictions(output, margins(booster, np.full((1, rows.shape[1]), np.nan, np.float32)))[:0]
        return predictions(output, margins(booster, rows))

    return score


def margins(booster: xgboost.Booster, rows: npt.NDArray[np.float32]) -> Doubles:
    """Sums of the trees' leaves for every row, shape (rows,) or (rows, classes); `rows` as `columns` gives them."""
    return np.asarray(booster.inplace_predict(rows, predict_type="margin"), dtype=np.float64)


def predictions(output: Output, values: Doubles) -> Doubles:
    """What is predicted from margins, of the same shape: probabilities for classes, else the margins themselves."""
    if output == "probability":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(values, -700, 700))))
    if output == "probabilities":
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    return values
