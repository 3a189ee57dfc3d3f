"""Deadlines of a job that is found again: each wait is counted from when it began."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatehouse.launchers.kubernetes.deadlines import Deadlines
from gatehouse.launchers.launcher import SchedulingTimeoutError, TrainingTimeoutError
from gatehouse.launchers.spec import PyTorchJobLaunch

LAUNCH = PyTorchJobLaunch(kind="pytorchjob", scheduling_minutes=30)


def _ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()


def _pod(minutes: float, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "creationTimestamp": _ago(minutes)}, "status": {"phase": phase}}


def _found_again(
    job_minutes: float, pods: list[dict[str, Any]], minutes: float = 600, turned: float = 0, **progress: Any
) -> float:
    deadlines = Deadlines(LAUNCH, 1, minutes, lambda pod: "", lambda: "")
    conditions = [{"type": "Restarting", "lastTransitionTime": _ago(turned)}] if turned else []
    job = {"metadata": {"creationTimestamp": _ago(job_minutes)}, "status": {"conditions": conditions}}
    deadlines.resume(job, pods, progress)
    return deadlines.check(pods)


def test_a_pod_that_was_evicted_a_minute_ago_waits_since_then_in_a_job_of_hours() -> None:
    assert _found_again(120, [_pod(1, "Pending")]) == pytest.approx(29 * 60, abs=30)


def test_a_job_whose_pods_never_ran_waits_since_it_was_created() -> None:
    with pytest.raises(SchedulingTimeoutError):
        _found_again(40, [_pod(39, "Pending")])
    with pytest.raises(SchedulingTimeoutError):
        _found_again(40, [])


def test_a_job_that_is_found_between_two_lives_of_its_pods_waits_since_the_first_ended() -> None:
    ran = {"since": _ago(119), "runs": True}
    assert _found_again(120, [], turned=10, **ran) == pytest.approx(20 * 60, abs=30)
    assert _found_again(120, [], turned=119.5, **ran) == pytest.approx(30 * 60, abs=90), "nothing tells since when"
    assert _found_again(120, [], ran=3600, since=_ago(20), runs=False) == pytest.approx(10 * 60, abs=30)
    with pytest.raises(TrainingTimeoutError):
        _found_again(120, [], minutes=100, turned=10, **ran)


def test_the_time_that_a_job_ran_before_its_launcher_began_counts() -> None:
    since = [_pod(1, "Running")]
    since[0]["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": _ago(1)}}}]
    left = {"minutes": 60, "ran": 40 * 60, "since": _ago(5)}
    assert _found_again(300, since, **left, runs=False) == pytest.approx(19 * 60, abs=30)
    assert _found_again(300, since, **left, runs=True) == pytest.approx(15 * 60, abs=30)


def test_a_third_launcher_counts_as_the_second_did() -> None:
    job = {"metadata": {"creationTimestamp": _ago(300)}, "status": {}}
    pods = [_pod(1, "Running")]
    pods[0]["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": _ago(1)}}}]
    progress: dict[str, Any] = {"ran": 40 * 60, "since": _ago(25), "runs": False}
    for _ in range(2):
        deadlines = Deadlines(LAUNCH, 1, 60, lambda pod: "", lambda: "")
        deadlines.resume(job, pods, progress)
        assert deadlines.check(pods) == pytest.approx(19 * 60, abs=30)
        progress = deadlines.progress()


def test_time_in_a_queue_is_no_time_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadlines = Deadlines(LAUNCH, 1, 60, lambda pod: "", lambda: "", waiting_since=0.0)
    runs = [_pod(0, "Running")]
    left = []
    for minute, pods in ((0, runs), (50, []), (75, []), (75, runs), (80, runs)):
        now = minute * 60
        left.append(deadlines.check(pods) / 60)
    assert left == [60, 30, 5, 10, 5]
    now = 85 * 60
    with pytest.raises(TrainingTimeoutError):
        deadlines.check(runs)
