"""When the training of a network ends."""

from pydantic import Field, model_validator

from gatehouse.components.artifacts.identity import Spec


class StoppingSpec(Spec):
    """The length of a training, and what ends it earlier."""

    epochs: int = Field(10, ge=1, le=10_000, description="Passes over the train rows; early stopping may end before.")
    metric: str = Field("", description="Validation metric that early stopping watches; empty for the loss itself.")
    patience: int = Field(3, ge=1, description="Epochs without a better validation metric.")
    least_gain: float = Field(0.0, ge=0.0, description="A metric is better only if it is so by more than this.")
    refit: int = Field(
        0,
        ge=0,
        description="Train on train and validation rows together, for exactly so many epochs, and measure nothing "
        "on the way; 0 trains on the train rows and watches the validation rows.",
    )
    divergence: float = Field(
        0.0, ge=0.0, description="Halt when an epoch's train loss is over this many times the first's; 0 for never."
    )

    @model_validator(mode="after")
    def _refit_within(self) -> "StoppingSpec":
        if self.refit > self.epochs:
            raise ValueError(
                f"refit: expected at most the epochs {self.epochs}, which the schedule has, found {self.refit}"
            )
        return self
