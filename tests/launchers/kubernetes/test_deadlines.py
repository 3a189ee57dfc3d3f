"""Deadlines of a job that is found again: each wait is counted from when it began."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatehouse.launchers.kubernetes.watch import Deadlines
from gatehouse.launchers.launcher import SchedulingTimeoutError, TrainingTimeoutError
from gatehouse.launchers.spec import PyTorchJobLaunch

LAUNCH = PyTorchJobLaunch(kind="pytorchjob", scheduling_minutes=30)
RUNNING = [{"metadata": {"name": "p"}, "status": {"phase": "Running"}}]


def _ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()


@pytest.mark.parametrize(
    ("progress", "pods", "left"),
    [
        ({}, [], 20),  # It waits since it was created.
        ({}, RUNNING, 60),  # It began to run while no launcher looked.
        ({"ran": 2400, "since": 5, "runs": False}, [], 25),
        ({"ran": 2400, "since": 5, "runs": False}, RUNNING, 20),
        ({"ran": 2400, "since": 5, "runs": True}, RUNNING, 15),
        ({"ran": 2400, "since": 5, "runs": True}, [], 30),  # Its pods are gone: it waits anew.
        ({"ran": 2400, "since": 21, "runs": True}, RUNNING, TrainingTimeoutError),
        ({"since": 31, "runs": False}, [], SchedulingTimeoutError),
    ],
)
def test_a_launcher_that_finds_its_job_counts_from_what_the_one_before_recorded(
    progress: dict[str, Any], pods: list[dict[str, Any]], left: Any
) -> None:
    deadlines = Deadlines(LAUNCH, 60, lambda pod: "", lambda: "")
    recorded = progress | ({"since": _ago(progress["since"])} if progress else {})
    deadlines.resume(recorded, _ago(10))
    if isinstance(left, type):
        with pytest.raises(left):
            deadlines.check(pods)
    else:
        assert deadlines.check(pods) == pytest.approx(left * 60, abs=30)


def test_time_in_a_queue_is_no_time_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadlines = Deadlines(LAUNCH, 60, lambda pod: "", lambda: "", waiting_since=0.0)
    left = []
    for minute, pods in ((0, RUNNING), (50, []), (75, []), (75, RUNNING), (80, RUNNING)):
        now = minute * 60
        left.append(deadlines.check(pods) / 60)
    assert left == [60, 30, 5, 10, 5]
    now = 85 * 60
    with pytest.raises(TrainingTimeoutError):
        deadlines.check(RUNNING)
