"""When a checkpoint is due, and how many are kept."""

from gatehouse.store.identity import Spec, operational


class CheckpointSpec(Spec):
    """When checkpoints are written, besides the one on a new best metric and the one on preemption.

    A run that goes on from any of them ends in the same bits, so none of this is part of what a model is.
    """

    every_steps: int | None = operational(None, ge=1, description="Steps from one checkpoint to the next.")
    every_minutes: float | None = operational(10.0, gt=0.0, description="Minutes from one checkpoint to the next.")
    every_epoch: bool = operational(True, description="Also at the end of every epoch.")
    keep: int = operational(3, ge=1, le=1000, description="Checkpoints kept, besides the best one.")
