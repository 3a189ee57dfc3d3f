"""Trees as XGBoost grows them: its parameters, and the draws of a round."""

from typing import Any

import xgboost

from gatehouse.training.spec import TreesTraining

# What XGBoost calls each loss of its settings.
_OBJECTIVES = {
    "binary": "binary:logistic",
    "multiclass": "multi:softprob",
    "mse": "reg:squarederror",
    "huber": "reg:squarederror",  # Of its margins; the gradients are our own.
    "pairwise": "rank:pairwise",
}


def parameters(spec: TreesTraining, outputs: int) -> dict[str, Any]:
    """XGBoost's parameters; all randomness is seeded anew each round (`begin_round`).

    Args:
        spec: The settings.
        outputs: Scores of a row: one a class for several classes, else one.
    """
    tree, boosting = spec.model, spec.optimizer
    found: dict[str, Any] = {
        "objective": _OBJECTIVES[spec.loss.kind],
        "disable_default_eval_metric": 1,
        "tree_method": "hist",
        "nthread": spec.parallelism.threads,
        "seed": spec.seed,
        "eta": boosting.learning_rate,
        "max_depth": tree.max_depth,
        "min_child_weight": tree.min_child_weight,
        "min_split_loss": tree.min_split_loss,
        "alpha": boosting.l1,
        "lambda": boosting.l2,
        "subsample": boosting.row_share,
        "colsample_bytree": boosting.column_share,
        "max_bin": tree.bins,
        "max_cat_to_onehot": tree.one_hot_below,
    }
    if outputs > 1:
        found["num_class"] = outputs
    return found


def begin_round(booster: xgboost.Booster, spec: TreesTraining, number: int) -> None:
    """Make the draws of a round a function of seed and round, so that a run that goes on draws what it would have.

    A new seed is taken over at once; the drawing of columns keeps its state for as long as its tree method stays, and
    so that is exchanged for another and back.
    """
    booster.set_param({"seed": spec.seed * 1_000_003 + number, "tree_method": "approx"})
    booster.num_features()  # Parameters are taken over when they are next needed.
    booster.set_param({"tree_method": "hist"})
