"""Deadlines of a job that is found again: each wait is counted from when it began."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatehouse.components.training.launcher import SchedulingTimeoutError
from gatehouse.components.training.launchers.deadlines import Deadlines
from gatehouse.components.training.launchers.spec import PyTorchJobLaunch


def _ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()


def _pod(minutes: float, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "creationTimestamp": _ago(minutes)}, "status": {"phase": phase}}


def _found_again(job_minutes: float, pods: list[dict[str, Any]]) -> float:
    launch = PyTorchJobLaunch(kind="pytorchjob", scheduling_minutes=30)
    deadlines = Deadlines(launch, 1, 600, lambda pod: "", lambda: "")
    deadlines.resume(_ago(job_minutes), pods)
    return deadlines.check(pods)


def test_a_pod_that_was_evicted_a_minute_ago_waits_since_then_in_a_job_of_hours() -> None:
    assert _found_again(120, [_pod(1, "Pending")]) == pytest.approx(29 * 60, abs=30)


def test_a_job_whose_pods_never_ran_waits_since_it_was_created() -> None:
    with pytest.raises(SchedulingTimeoutError):
        _found_again(40, [_pod(39, "Pending")])
    with pytest.raises(SchedulingTimeoutError):
        _found_again(40, [])
