"""How long training waits for what: one ladder, on which each wait is longer than those that must end before it.

| wait | for | it ends in |
| --- | --- | --- |
| `launch.hang_seconds` | a step of a rank | the stacks of all ranks, and exit code 124 |
| `collective_seconds` | the other ranks in a collective | an error of the rank, and a restart at the last checkpoint |
| `launch.scheduling_minutes` | pods that run | `UnschedulableError`, `SchedulingTimeoutError` |
| `training.timeout_minutes` | the end, from when the job runs | `TrainingTimeoutError` |
| `job_minutes` | the launcher that should have ended the job | the operator ends the job |
| `stage_minutes` | the whole task | KFP ends the task |

A hang is looked for first: ranks that wait for a hanging one would otherwise give up before it, be started again, and
leave no stacks. What a dead peer or a lost machine breaks ends at once, or by torchrun's own signs of life.
"""

import os

HANG_SECONDS = 900.0
SCHEDULING_MINUTES = 30.0
MARGIN_MINUTES = 15.0
HANG = "GATEHOUSE_HANG_SECONDS"
"""Names in the environment of the ranks how long one may make no progress."""
_STACKS_SECONDS = 60.0


def collective_seconds() -> float:
    """How long a rank waits for the others in a collective, as the wrapper's environment says."""
    return float(os.environ.get(HANG, HANG_SECONDS)) + _STACKS_SECONDS


def job_minutes(scheduling: float, training: float) -> float:
    """After which a job ends even if its launcher is gone."""
    return scheduling + training + MARGIN_MINUTES


def stage_minutes(scheduling: float, training: float) -> int:
    """After which KFP ends a task that launches one job: later than the job would end by itself."""
    return round(job_minutes(scheduling, training) + MARGIN_MINUTES)
