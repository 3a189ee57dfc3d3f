"""Trees as XGBoost grows and reads them: objective and parameters of a spec, the columns, and the scores of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.transformation.fitted import FIRST_KNOWN

Doubles = npt.NDArray[np.float64]

_OBJECTIVES = {
    "binary": "binary:logistic",
    "multiclass": "multi:softprob",
    "mse": "reg:squarederror",
    "huber": "reg:squarederror",  # Of its margins; the gradients are our own.
    "pairwise": "rank:pairwise",
}


def parameters(spec: TrainSpec, outputs: int) -> dict[str, Any]:
    """XGBoost's parameters; all randomness is seeded anew each round (`begin_round`)."""
    trees = spec.xgboost
    found: dict[str, Any] = {
        "objective": _OBJECTIVES[spec.loss],
        "disable_default_eval_metric": 1,
        "tree_method": "hist",
        "nthread": spec.threads,
        "seed": spec.seed,
        "eta": spec.learning_rate,
        "max_depth": trees.max_depth,
        "min_child_weight": trees.min_child_weight,
        "min_split_loss": trees.min_split_loss,
        "alpha": trees.l1,
        "lambda": trees.l2,
        "subsample": trees.row_share,
        "colsample_bytree": trees.column_share,
        "max_bin": trees.bins,
        "max_cat_to_onehot": trees.one_hot_below,
    }
    if spec.loss == "multiclass":
        found["num_class"] = outputs
    return found


def begin_round(booster: xgboost.Booster, spec: TrainSpec, number: int) -> None:
    """Make the draws of a round a function of seed and round, so that a run that goes on draws what it would have.

    A new seed is taken over at once; the drawing of columns keeps its state for as long as its tree method stays, and
    so that is exchanged for another and back.
    """
    booster.set_param({"seed": spec.seed * 1_000_003 + number, "tree_method": "approx"})
    booster.num_features()  # Parameters are taken over when they are next needed.
    booster.set_param({"tree_method": "hist"})


def columns(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """One array of numbers and categories, shape (rows, all columns); a missing or unknown category is NaN."""
    categories = np.where(ids < FIRST_KNOWN, np.nan, ids - FIRST_KNOWN).astype(np.float32)
    return np.column_stack([numbers, categories]) if ids.shape[1] else np.ascontiguousarray(numbers)


def column_types(width: int, categorical: int) -> list[str]:
    """XGBoost's letter for each column."""
    return ["q"] * width + ["c"] * categorical


def read_booster(data: bytes) -> xgboost.Booster:
    """The trees of a weights file."""
    return xgboost.Booster({"nthread": 1}, model_file=bytearray(data))


def scorer(booster: xgboost.Booster, loss: str) -> Callable[[Any, Any], Doubles]:
    """A function from numbers and ids to predictions."""

    def score(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> Doubles:
        rows = columns(numbers, ids)
        if len(rows) == 0:
            # XGBoost takes no empty array; a row of missing values tells how many predictions a row has.
            return predictions(loss, margins(booster, np.full((1, rows.shape[1]), np.nan, np.float32)))[:0]
        return predictions(loss, margins(booster, rows))

    return score


def margins(booster: xgboost.Booster, rows: npt.NDArray[np.float32]) -> Doubles:
    """Sums of the trees' leaves for every row."""
    return np.asarray(booster.inplace_predict(rows, predict_type="margin"), dtype=np.float64)


def predictions(loss: str, values: Doubles) -> Doubles:
    """What is predicted: probabilities of one class or of each, else the margins themselves."""
    if loss == "binary":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(values, -700, 700))))
    if loss == "multiclass":
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    return values
