"""The settings of the optimizer, its learning-rate schedule, and clipping."""

from typing import Literal

from pydantic import Field, model_validator

from gatehouse.store.identity import Spec


class OptimizerChange(Spec):
    """Settings from an epoch on; null for as before."""

    epoch: int = Field(ge=1, le=10_000, description="The first epoch with these settings, counted from 0.")
    learning_rate: float | None = Field(None, gt=0.0, le=1.0, description="Peak learning rate of the schedule.")
    weight_decay: float | None = Field(None, ge=0.0, le=1.0, description="Decoupled weight decay.")
    clip_norm: float | None = Field(None, gt=0.0, description="Largest norm of the gradient.")


CHANGEABLE = tuple(name for name in OptimizerChange.model_fields if name != "epoch")
"""Settings of the optimizer that may change while a network trains."""


class OptimizerSpec(Spec):
    """AdamW, the course of its learning rate, and the largest gradient."""

    learning_rate: float = Field(2e-3, gt=0.0, le=1.0, description="Peak learning rate of the schedule.")
    schedule: Literal["cosine", "linear", "constant"] = Field(
        "cosine", description="Learning rate schedule after the warm-up."
    )
    warmup: float = Field(0.1, ge=0.0, lt=1.0, description="Share of all steps that the learning rate rises over.")
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0, description="Decoupled weight decay.")
    clip_norm: float = Field(
        1.0, gt=0.0, description="Largest norm of the gradient; a larger one is scaled down to it."
    )
    changes: tuple[OptimizerChange, ...] = Field(
        (), description="Settings that change while the network trains, each from its epoch on, in their order."
    )

    @model_validator(mode="after")
    def _in_order(self) -> "OptimizerSpec":
        epochs = [each.epoch for each in self.changes]
        if epochs != sorted(set(epochs)):
            raise ValueError(f"changes: expected epochs in ascending order, each once, found {epochs}")
        return self

    @property
    def is_independent_of_length(self) -> bool:
        """Whether an epoch's learning rate is the same however many epochs follow."""
        return self.schedule == "constant" and self.warmup == 0.0

    def at(self, epoch: int) -> "OptimizerSpec":
        """The settings of an epoch, after all changes up to it."""
        changed = {
            name: value
            for each in self.changes
            if each.epoch <= epoch
            for name in CHANGEABLE
            if (value := getattr(each, name)) is not None
        }
        return self.model_copy(update=changed) if changed else self
