"""The settings of gradient-boosted trees: what a tree is, how trees are added, and over how many processes."""

from typing import Literal

from pydantic import Field, model_validator

from gatehouse.store.identity import Spec


class XGBoostSpec(Spec):
    """Gradient-boosted trees of XGBoost: how each of them grows."""

    architecture: Literal["xgboost"] = "xgboost"
    max_depth: int = Field(6, ge=1, le=32, description="Most splits from the root to a leaf.")
    min_child_weight: float = Field(1.0, ge=0.0, description="Least sum of second derivatives in a leaf.")
    min_split_loss: float = Field(0.0, ge=0.0, description="Least gain of a split.")
    bins: int = Field(256, ge=2, le=65_536, description="Bins of each numeric column's histogram.")
    one_hot_below: int = Field(
        4, ge=1, le=65_536, description="A category with fewer values is split one against the rest."
    )


class TreesDataSpec(Spec):
    """The rows that trees are grown on."""

    train_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the train rows used; below 1 for trials.")


class BoostingSpec(Spec):
    """What each round adds to the trees before it."""

    learning_rate: float = Field(0.1, gt=0.0, le=1.0, description="Share of each tree's values that is added (`eta`).")
    l1: float = Field(0.0, ge=0.0, description="L1 penalty on the leaves' values.")
    l2: float = Field(1.0, ge=0.0, description="L2 penalty on the leaves' values.")
    row_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the rows that each tree is grown on.")
    column_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the columns that each tree may split.")


class RoundsSpec(Spec):
    """When no more trees are added."""

    rounds: int = Field(300, ge=1, le=10_000, description="Trees for each output; early stopping may end before.")
    metric: str = Field("", description="Validation metric that early stopping watches; empty for the loss itself.")
    patience: int = Field(20, ge=1, description="Rounds without a better validation metric after which training stops.")
    least_gain: float = Field(0.0, ge=0.0, description="Smallest improvement that counts.")
    refit: int = Field(
        0,
        ge=0,
        description="Train on train and validation rows together, for exactly this many rounds, without "
        "validation metrics; 0 trains on the train rows and watches the validation rows.",
    )

    @model_validator(mode="after")
    def _refit_within(self) -> "RoundsSpec":
        if self.refit > self.rounds:
            raise ValueError(f"refit: expected at most the rounds {self.rounds}, found {self.refit}")
        return self


class TreesParallelismSpec(Spec):
    """The processes that share the rows. Their number, and that of threads, may change the bits of the trees."""

    processes: int = Field(1, ge=1, le=4096, description="Workers that torchrun starts.")
    threads: int = Field(1, ge=1, le=256, description="Threads of each worker.")

    @property
    def model_size(self) -> int:
        """Processes that share one copy of the model: each has all of it."""
        return 1
