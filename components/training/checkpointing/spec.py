"""When a checkpoint is due, and how many are kept."""

from pydantic import BaseModel, ConfigDict, Field


class CheckpointPolicy(BaseModel):
    """When checkpoints are written, besides the one on a new best metric and the one on preemption."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every_steps: int | None = Field(None, ge=1, description="Steps from one checkpoint to the next.")
    every_minutes: float | None = Field(10.0, gt=0.0, description="Minutes from one checkpoint to the next.")
    every_epoch: bool = Field(True, description="Also at the end of every epoch.")
    keep: int = Field(3, ge=1, le=1000, description="Checkpoints kept, besides the best one.")
