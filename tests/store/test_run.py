"""The record of a run with many trials: who does not show them reads the newest alone."""

import json

import pytest

from gatehouse.store.run import RUN_ID, run_id, task_id


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
