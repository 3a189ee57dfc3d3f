"""When the training of a network ends."""

from pydantic import Field, model_validator

from gatehouse.store.identity import Spec


class StoppingSpec(Spec):
    """The length of a training, and what ends it earlier."""

    epochs: int = Field(10, ge=1, le=10_000, description="Passes over the train rows; early stopping may end before.")
    metric: str = Field("", description="Validation metric that early stopping watches; empty for the loss itself.")
    patience: int = Field(3, ge=1, description="Epochs without a better validation metric after which training stops.")
    least_gain: float = Field(0.0, ge=0.0, description="Smallest improvement that counts.")
    refit: int = Field(
        0,
        ge=0,
        description="Train on train and validation rows together, for exactly this many epochs, without "
        "validation metrics; 0 trains on the train rows and watches the validation rows.",
    )
    divergence: float = Field(
        0.0,
        ge=0.0,
        description="Stop if the train loss of an epoch is more than this many times that of the first epoch; 0 for "
        "never.",
    )

    @model_validator(mode="after")
    def _refit_within(self) -> "StoppingSpec":
        if self.refit > self.epochs:
            raise ValueError(
                f"refit: expected at most the epochs {self.epochs}, which the schedule has, found {self.refit}"
            )
        return self
