"""Which rows a step has, and in which order."""

from pydantic import Field, model_validator

from gatehouse.store.identity import Spec


class DataSpec(Spec):
    """The rows of a step of a network."""

    batch_size: int = Field(2048, ge=1, description="Rows of one step over all processes and micro-batches together.")
    accumulation: int = Field(
        1,
        ge=1,
        le=4096,
        description="Micro-batches of a step: gradients are accumulated over them, and pipeline stages work on "
        "several at once.",
    )
    shuffle_window: int = Field(
        0,
        ge=0,
        description="Rows that are shuffled at a time, so that a step reads few places of the memory-mapped "
        "arrays. For a train part larger than a worker's memory; 0 shuffles all rows.",
    )
    train_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the train rows used; below 1 for trials.")

    @model_validator(mode="after")
    def _a_row_each(self) -> "DataSpec":
        if self.accumulation > self.batch_size:
            raise ValueError(
                f"accumulation {self.accumulation} is more than the batch_size {self.batch_size} rows of a step"
            )
        return self
