"""What the pods of a job tell of its last life, and how often they failed in all of them."""

from typing import Any

from gatehouse.components.launchers.kubernetes.attempts import Attempts


def _pod(uid: str, code: int = 0, name: str = "master-0") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "finishedAt": f"2026-01-01T10:00:0{uid}Z"}}
    status = {"phase": "Failed", "containerStatuses": [{"state": ended}]} if code else {"phase": "Running"}
    return {"metadata": {"name": name, "uid": uid}, "status": status}


def _uids(attempts: Attempts) -> list[str]:
    return [pod["metadata"]["uid"] for pod in attempts.failed()]


def test_what_ended_a_life_before_is_no_cause_once_the_job_runs_again() -> None:
    attempts = Attempts(1)
    for found in ([_pod("1", 143)], [], [_pod("2")], [_pod("2", 1)], []):
        attempts.update(found)
    assert _uids(attempts) == ["2"]


def test_the_pod_that_failed_first_is_the_cause_while_not_all_run_again() -> None:
    attempts = Attempts(2)
    for found in ([_pod("1", 1), _pod("2", name="worker-0")], [_pod("2", 143, "worker-0")]):
        attempts.update(found)
    assert _uids(attempts) == ["1", "2"]


def test_failures_are_counted_by_pod_and_each_once() -> None:
    attempts = Attempts(2)
    for found in ([_pod("1", 143), _pod("2", 143, "worker-0")], [_pod("1", 143), _pod("3")], [_pod("3", 137)]):
        attempts.update(found)
    assert attempts.failures == {"master-0": 2, "worker-0": 1}
    assert attempts.exceeding(2) == "" and "Pod master-0 failed 2 times" in attempts.exceeding(1)
