"""What to train: everything that decides the bits of a model, apart from its data."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainSpec(BaseModel):
    """One training run.

    The number of processes and threads is part of it, because both change the order of floating-point sums and so the
    bits of the weights.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: Literal["tabular_mlp"] = Field("tabular_mlp", description="Name of a model builder in `models.py`.")
    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field(
        (256, 128), min_length=1, max_length=64, description="Width of each hidden layer."
    )
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Share of a hidden layer's outputs dropped in training.")
    embedding_size: int = Field(16, ge=1, le=256, description="Most dimensions that a category's embedding has.")
    epochs: int = Field(10, ge=1, le=10_000, description="Passes over the train rows; early stopping may end before.")
    batch_size: int = Field(2048, ge=1, description="Rows of one step over all processes together.")
    learning_rate: float = Field(2e-3, gt=0.0, le=1.0, description="Peak of the schedule (warm-up, then cosine).")
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0, description="Decoupled weight decay of AdamW.")
    warmup: float = Field(0.1, ge=0.0, lt=1.0, description="Share of all steps that the learning rate rises over.")
    clip_norm: float = Field(1.0, gt=0.0, description="Largest norm of the gradient.")
    patience: int = Field(3, ge=1, description="Epochs without a better validation log loss before training stops.")
    train_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the train rows used; below 1 for trials.")
    seed: int = Field(7, ge=0, le=2**31, description="Of initial weights, order of rows and dropout.")
    processes: int = Field(2, ge=1, le=64, description="Workers that torchrun starts (DDP over gloo).")
    threads: int = Field(1, ge=1, le=256, description="Threads of each worker.")
    timeout_minutes: int = Field(60, ge=1, description="After which the launcher gives up and stops the job.")
