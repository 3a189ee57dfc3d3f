"""The settings that only gradient-boosted trees have; rounds, shrinkage and patience are those of every training."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

ROUNDS: dict[str, Any] = {"epochs": 300, "learning_rate": 0.1, "patience": 20, "processes": 1}
"""What fields of a TrainSpec are by default for trees."""


READ = frozenset(
    {
        "architecture",
        "xgboost",
        "loss",
        "huber_delta",
        "sample_weight",
        "class_weights",
        "group",
        "epochs",
        "learning_rate",
        "metric",
        "patience",
        "least_gain",
        "train_fraction",
        "seed",
        "deterministic",
        "processes",
        "threads",
        "checkpoints",
        "timeout_minutes",
    }
)
"""The fields of a TrainSpec that decide something for trees."""


class BoostingSpec(BaseModel):
    """How the trees of `xgboost` grow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_depth: int = Field(6, ge=1, le=32, description="Most splits from the root to a leaf.")
    min_child_weight: float = Field(1.0, ge=0.0, description="Least sum of second derivatives in a leaf.")
    min_split_loss: float = Field(0.0, ge=0.0, description="Least gain of a split.")
    l1: float = Field(0.0, ge=0.0, description="L1 penalty on the leaves' values.")
    l2: float = Field(1.0, ge=0.0, description="L2 penalty on the leaves' values.")
    row_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the rows that each tree is grown on.")
    column_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the columns that each tree may split.")
    bins: int = Field(256, ge=2, le=65_536, description="Bins of each numeric column's histogram.")
    one_hot_below: int = Field(
        4, ge=1, le=65_536, description="A category with fewer values is split one against the rest."
    )
