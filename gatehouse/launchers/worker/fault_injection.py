"""Fault injection for tests: the environment says at which step or epoch the last rank fails, and how."""

import os
import signal
import time

import torch.distributed as dist

from gatehouse.launchers.worker.preemption import FLAG
from gatehouse.runtime.process import OWNER

FAULT = "GATEHOUSE_TRAINING_FAULT"


def inject(faults: str, step: int, epoch: int | None) -> None:
    """Inject faults into the last rank, if this is the step, or the end of the epoch, that they name.

    Args:
        faults: `<action>:<epoch>` or `<action>:@<step>`, separated by commas. The actions are kill, hang, raise,
            preempt, and await, which waits until the job is preempted. An action that ends with `!` is taken only in
            the first attempt.
        step: Optimizer steps taken.
        epoch: Number of the epoch that ended with this step; None if none did.

    Raises:
        ValueError: for the action raise.
    """
    for fault in faults.split(","):
        _inject(fault, step, epoch)


def _inject(fault: str, step: int, epoch: int | None) -> None:
    action, _, wanted = fault.partition(":")
    if wanted not in (f"@{step}", str(epoch)) or dist.get_rank() != dist.get_world_size() - 1:
        return
    if action.endswith("!") and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return
    if action == "preempt":
        os.kill(int(os.environ[OWNER].partition(":")[0]), signal.SIGTERM)
        time.sleep(1.0)
    elif action.startswith("await"):
        while not os.path.exists(os.environ[FLAG]):
            time.sleep(0.01)
    elif action.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("hang"):
        time.sleep(600)
    elif action.startswith("raise"):
        raise ValueError(f"injected fault after epoch {epoch}" if epoch is not None else f"injected fault, step {step}")
