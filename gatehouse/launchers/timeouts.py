"""The time limits of training. Each limit is longer than those above it in the table, which must end first.

| limit | waits for | ends in |
| --- | --- | --- |
| `launch.hang_seconds` | a step of a rank | the stacks of all ranks, and exit code 124 |
| `collective_seconds` | the other ranks in a collective | an error of the rank, and a restart at the checkpoint |
| `launch.scheduling_minutes` | pods that run | `UnschedulableError`, `SchedulingTimeoutError` |
| `training.operation.timeout_minutes` | the end, from when the job runs | `TrainingTimeoutError` |
| `job_minutes` | the launcher that should have ended the job | the operator ends the job |
| `stage_minutes` | the whole task | KFP ends the task |

A hang must be found before a collective times out. Otherwise the ranks that wait for the hanging rank fail first, all
ranks are restarted, and no stacks are saved. A rank that waits for a dead rank fails at once; torchrun's own heartbeats
find a lost machine.
"""

import os

HANG_SECONDS = 900.0
SCHEDULING_MINUTES = 30.0
MARGIN_MINUTES = 15.0
HANG = "GATEHOUSE_HANG_SECONDS"  # environment variable of the ranks: for how many seconds a rank may make no progress
_STACKS_SECONDS = 60.0


def collective_seconds() -> float:
    """How many seconds a rank waits for the others in a collective: longer than it takes to detect a hang."""
    return float(os.environ.get(HANG, HANG_SECONDS)) + _STACKS_SECONDS


def job_minutes(scheduling: float, training: float) -> float:
    """After how many minutes an operator ends a job if the launcher did not."""
    return scheduling + training + MARGIN_MINUTES


def stage_minutes(scheduling: float, training: float) -> int:
    """After how many minutes KFP ends a task that launches one job: later than any launcher or operator."""
    return round(job_minutes(scheduling, training) + MARGIN_MINUTES)
