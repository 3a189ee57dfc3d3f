"""What the pods of a job tell of its last life, and how often they failed in all of them."""

import json
from typing import Any

from gatehouse.launchers.kubernetes.pods import Attempts


def _pod(uid: str, code: int = 0, name: str = "master-0") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "finishedAt": f"2026-01-01T10:00:0{uid}Z"}}
    status = {"phase": "Failed", "containerStatuses": [{"state": ended}]} if code else {"phase": "Running"}
    return {"metadata": {"name": name, "uid": uid}, "status": status}


def _uids(attempts: Attempts) -> list[str]:
    return [pod["metadata"]["uid"] for pod in attempts.failed()]


def test_what_ended_a_life_before_is_no_cause_once_the_job_runs_again() -> None:
    attempts = Attempts(1)
    for pods in ([_pod("1", 143)], [], [_pod("2")], [_pod("2", 1)], []):
        attempts.update(pods)
    assert _uids(attempts) == ["2"]


def test_the_pod_that_failed_first_is_the_cause_while_not_all_run_again() -> None:
    attempts = Attempts(2)
    for pods in ([_pod("1", 1), _pod("2", name="worker-0")], [_pod("2", 143, "worker-0")]):
        attempts.update(pods)
    assert _uids(attempts) == ["1", "2"]


def test_failures_are_counted_by_pod_and_each_once() -> None:
    attempts = Attempts(2, restarts=1)
    for pods in ([_pod("1", 143), _pod("2", 143, "worker-0")], [_pod("1", 143), _pod("3", name="worker-0")]):
        attempts.update(pods)
    assert attempts.failures == {"master-0": 1, "worker-0": 1} and not attempts.exceeding()
    attempts.update([_pod("1", 143), _pod("3", 137, "worker-0")])
    assert "worker-0 failed 2 times" in attempts.exceeding()


def test_a_pod_in_place_of_another_is_a_failure_that_nobody_saw() -> None:
    attempts = Attempts(1, restarts=2)
    for uid in ("1", "2", "2", "3"):
        attempts.update([_pod(uid)])
    assert attempts.failures == {"master-0": 2} and not attempts.exceeding()
    attempts.update([])
    attempts.update([_pod("4")])
    assert "master-0 failed 3 times" in attempts.exceeding()


def test_a_list_that_is_ahead_of_the_watch_counts_nothing_twice() -> None:
    attempts = Attempts(1, restarts=2)
    attempts.update([_pod("1")])
    attempts.update([_pod("2")])
    assert not attempts.observe(_pod("1", 137))
    assert attempts.observe(_pod("2")) and attempts.failures == {"master-0": 1}


def test_a_container_that_the_node_starts_again_counts_once_for_each_start() -> None:
    attempts = Attempts(1, restarts=2)
    for restarts, code in ((0, 137), (1, 0), (3, 0)):
        pod = _pod("1", code)
        pod["status"].setdefault("containerStatuses", [{"state": {"running": {}}}])[0]["restartCount"] = restarts
        attempts.update([pod])
        assert attempts.failures == {"master-0": max(1, restarts)}
    assert attempts.exceeding()


def test_what_a_launcher_counted_counts_for_the_next_and_so_does_a_pod_that_was_replaced_meanwhile() -> None:
    first, second = Attempts(1, restarts=5), Attempts(1, restarts=5)
    for pod in (_pod("1", 137), _pod("2")):
        first.observe(pod)
    second.resume(json.loads(json.dumps(first.progress())))
    second.update([_pod("2")])
    assert second.failures == {"master-0": 1}
    second.update([_pod("3")])
    assert second.failures == {"master-0": 2}


def _deleted(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    return pod


def test_a_pod_that_ends_as_it_is_deleted_counts_with_its_successor_and_not_where_the_job_was_suspended() -> None:
    drained, suspended = Attempts(1, restarts=1), Attempts(1, restarts=1)
    for attempts in (drained, suspended):
        for pod in (_pod("1"), _deleted(_pod("1", 143))):
            attempts.observe(pod)
        assert not +attempts.failures
    suspended.suspend()
    for attempts in (drained, suspended):
        attempts.update([_pod("2")])
        attempts.observe(_deleted(_pod("1", 143)))
    assert (+drained.failures, +suspended.failures) == ({"master-0": 1}, {})
