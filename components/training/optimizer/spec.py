"""The settings of the optimizer, its learning-rate schedule, and clipping."""

from typing import Literal

from pydantic import Field

from gatehouse.components.artifacts.identity import Spec


class OptimizerSpec(Spec):
    """AdamW, the course of its learning rate, and the largest gradient."""

    learning_rate: float = Field(2e-3, gt=0.0, le=1.0, description="Peak of the schedule.")
    schedule: Literal["cosine", "linear", "constant"] = Field("cosine", description="What follows the warm-up.")
    warmup: float = Field(0.1, ge=0.0, lt=1.0, description="Share of all steps that the learning rate rises over.")
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0, description="Decoupled weight decay.")
    clip_norm: float = Field(
        1.0, gt=0.0, description="Largest norm of the gradient; a larger one is scaled down to it."
    )
