"""The record of a run with many trials: who does not show them reads the newest alone."""

import json

import pytest

from gatehouse.store.run import RUN_ID, Attempt, events, run_id, task_id
from gatehouse.store.store import ArtifactStore


def test_of_many_trials_only_the_newest_is_read(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    attempt = Attempt(store, "tune:trials")
    for number in range(12):
        attempt.note(f"trial-{number}", message=f"trial {number}")
    read, get = [], type(store.objects).get_bytes
    monkeypatch.setattr(type(store.objects), "get_bytes", lambda objects, key: read.append(key) or get(objects, key))
    messages = [event.body.get("message", event.event) for _, event in events(store, "run-1")]
    assert messages == ["started", "trial 11"] and len(read) == 2
    assert len(list(events(store, "run-1", trials=True))) == 13


@pytest.mark.parametrize(
    ("output", "run"),
    [
        (
            "/minio/b/v2/artifacts/p/29decf23-c1be-4a03-96ad-10876c72d40b/require/6ecf86ee-18d6-4b16-8a8d-c6c04e627119/x",
            "",
        ),
        ("/runs/p-2026-11-27-12-40-40-828992/require-2/executor_output.json", "p-2026-11-27-12-40-40-828992"),
        ("/tmp/kfp_outputs/output_metadata.json", "unnamed-"),
    ],
)
def test_a_task_knows_its_run_without_being_told(monkeypatch: pytest.MonkeyPatch, output: str, run: str) -> None:
    monkeypatch.delenv(RUN_ID, raising=False)
    monkeypatch.setattr("sys.argv", ["main", "--executor_input", json.dumps({"outputs": {"outputFile": output}})])
    assert run_id().startswith(run or "29decf23-c1be-4a03-96ad-10876c72d40b")
    monkeypatch.setenv(RUN_ID, "of-the-pod")
    assert run_id() == "of-the-pod"
    assert task_id() == f"of-the-pod {output.rpartition('/')[0]}"  # With the UUID that all attempts of a task share.
