"""Faults, for tests: by the environment they have a rank die, hang, fail or be preempted at a step of their choice."""

import os
import signal
import time

import torch.distributed as dist

from gatehouse.process import OWNER

FAULT = "GATEHOUSE_TRAINING_FAULT"


def inject(fault: str, step: int, epoch: int | None) -> None:
    """Do to the last rank what `GATEHOUSE_TRAINING_FAULT=<action>:<epoch>`, or `<action>:@<step>`, says.

    The actions are kill, hang, raise and preempt; one that ends with ! is taken in the first attempt only.
    """
    action, _, wanted = fault.partition(":")
    if wanted not in (f"@{step}", str(epoch)) or dist.get_rank() != dist.get_world_size() - 1:
        return
    if action.endswith("!") and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return
    if action == "preempt":
        os.kill(int(os.environ[OWNER].partition(":")[0]), signal.SIGTERM)
        time.sleep(1.0)
    elif action.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("hang"):
        time.sleep(600)
    elif action.startswith("raise"):
        raise ValueError(f"injected fault after epoch {epoch}" if epoch is not None else f"injected fault, step {step}")
