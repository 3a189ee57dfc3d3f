"""What happens between two steps apart from training: faults that tests ask for."""

import os
import signal
import time

import torch.distributed as dist

FAULT = "GATEHOUSE_TRAINING_FAULT"


class Boundary:
    """Called by the trainer after every step, when model, optimizer and position belong together."""

    def check(self, step: int, epoch_ended: int | None = None) -> None:
        """Look around after optimizer step `step`, counted from 1 over the whole run.

        Args:
            step: Steps taken.
            epoch_ended: Number of the epoch that this step ended, if it did.
        """
        if epoch_ended is not None:
            _inject_fault(epoch_ended)


def _inject_fault(epoch: int) -> None:
    """For tests: let the last rank die or hang after an epoch, as `GATEHOUSE_TRAINING_FAULT=<action>:<epoch>` says."""
    action, _, wanted = os.environ.get(FAULT, "").partition(":")
    if wanted != str(epoch) or dist.get_rank() != dist.get_world_size() - 1:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "hang":
        time.sleep(600)
    elif action == "raise":
        raise ValueError(f"injected fault after epoch {epoch}")
