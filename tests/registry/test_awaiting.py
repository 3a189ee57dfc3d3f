"""A run that waits for a person: approval, rejection, another verdict, a deadline that a restart keeps."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry import awaiting_stage
from gatehouse.registry.approval import now
from gatehouse.registry.awaiting_stage import (
    ApprovalOverdueError,
    AwaitRequest,
    AwaitResult,
    RejectedError,
    VerdictChangedError,
    await_approval,
)
from gatehouse.registry.naming import UnknownVersionError
from gatehouse.store.run import RUN_ID, events
from tests.registry.gate import MANUAL, NAME, Gate


@pytest.fixture
def waiting(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Version 1 in staging waits for a person, in the run `r`."""
    monkeypatch.setenv(RUN_ID, "r")
    monkeypatch.setattr(awaiting_stage, "SECONDS", 0.02)
    gate.run(gate.model(1), policy=MANUAL)
    return gate


def _wait(gate: Gate, minutes: float = 1.0, **more: Any) -> AwaitResult:
    return await_approval(AwaitRequest(model_name=NAME, timeout_minutes=minutes, **more), gate.store)


def test_it_ends_with_the_approval_and_says_where_to_give_it(waiting: Gate) -> None:
    threading.Timer(0.5, waiting.approve, kwargs={"by": "grace"}).start()
    result = _wait(waiting, server="https://models.example/")
    assert (result.version, result.by) == (1, "grace") and waiting.verdict_digest(1)[7:] == result.verdict[:12]
    (message,) = [str(event) for _, event in events(waiting.store, "r") if "awaits approval of" in str(event)]
    assert f"https://models.example/models/{NAME}/1" in message and waiting.verdict_digest(1) in message


def test_a_rejection_and_another_verdict_end_it(waiting: Gate) -> None:
    threading.Timer(0.2, waiting.approve, kwargs={"action": "reject", "reason": "too slow"}).start()
    with pytest.raises(RejectedError, match="too slow"):
        _wait(waiting)
    model = waiting.model(2)
    waiting.run(model, policy=MANUAL)
    other = GatePolicy(approval="manual", max_psi=9.0)
    threading.Timer(0.2, waiting.run, args=(model,), kwargs={"policy": other}).start()
    with pytest.raises(VerdictChangedError, match="delays:2"):
        _wait(waiting, version=2)


def test_a_restart_keeps_version_and_deadline(waiting: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    began = now()
    monkeypatch.setattr(awaiting_stage, "now", lambda: began)
    monkeypatch.setattr(awaiting_stage.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        _wait(waiting, 10.0)
    waiting.run(waiting.model(2), policy=MANUAL)
    monkeypatch.setattr(awaiting_stage, "now", lambda: began + timedelta(minutes=11))
    with pytest.raises(ApprovalOverdueError, match="delays:1"):
        _wait(waiting, 10.0)
    monkeypatch.setenv(RUN_ID, "s")
    with pytest.raises(KeyboardInterrupt):
        _wait(waiting, 10.0)


def test_of_two_attempts_at_once_both_wait_for_what_the_first_noted(
    waiting: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = awaiting_stage.create_record

    def late(objects: Any, key: str, body: Any) -> bool:
        create(objects, key, body | {"at": (now() - timedelta(minutes=11)).isoformat()})
        return create(objects, key, body)

    monkeypatch.setattr(awaiting_stage, "create_record", late)
    with pytest.raises(ApprovalOverdueError, match="delays:1"):
        _wait(waiting, 10.0)


def test_it_ends_at_once_where_the_policy_asks_nobody_and_without_a_version(waiting: Gate) -> None:
    waiting.run(waiting.model(3))
    assert _wait(waiting).by == ""
    with pytest.raises(UnknownVersionError):
        _wait(waiting, version=9)
