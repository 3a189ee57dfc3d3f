"""A pipeline run and its stages in MLflow, from the run's record, on a real SQLite tracking store."""

import time
from pathlib import Path
from typing import Any

import pytest

from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.projection import track_run, track_training
from tests.tracking.shown import runs_of


def named_runs(store: ArtifactStore, experiment: str) -> dict[str, Any]:
    runs = runs_of(store, experiment)
    assert len(runs) == len({run.info.run_name for run in runs}), "each is shown once"
    return {str(run.info.run_name): run for run in runs}


def happen(store: ArtifactStore, stage: str, event: str, **body: Any) -> None:
    attempt = Attempt(store, stage)
    time.sleep(0.01)
    attempt.note(event, **{"memo": stage != "register"} | body)


def test_a_run_has_a_run_for_each_stage_that_ran_once(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("GATEHOUSE_PRICES", '{"per_hour": {"default": 3600.0}}')
    monkeypatch.setenv(RUN_ID, "run-1")
    model = str(store.publish("models", "delays", {"model.json": "{}"}))
    happen(store, "snapshot", "hit", result={"snapshot": "x"})
    happen(store, "split", "finished", result={"split": model, "rows": {"train": 10, "test": 5}})
    happen(store, "train", "finished", result={"model": model}, tracked=model)
    compared = {"metrics": {"log_loss": 0.5}, "baseline_metrics": {"log_loss": 0.9}, "verdict": "pass"}
    happen(store, "evaluate", "finished", result=compared)
    happen(store, "train:inner", "finished", result={})
    track_training(store, model)
    for _ in range(2):
        track_run(store, "run-1")
    runs = named_runs(store, "delays")
    assert set(runs) == {"run-1", "split", "train", "evaluate"}
    above, split = runs["run-1"], runs["split"]
    assert {run.data.tags["mlflow.parentRunId"] for run in (split, runs["train"])} == {above.info.run_id}
    assert (split.data.metrics["rows.train"], split.data.tags["gatehouse.result.split"]) == (10.0, model)
    assert split.data.metrics["cost"] == pytest.approx(split.data.metrics["duration_seconds"]) != 0
    metrics = runs["evaluate"].data.metrics
    assert {name: metrics[name] for name in metrics if "loss" in name} == {"log_loss": 0.5, "baseline.log_loss": 0.9}
    assert above.data.tags["gatehouse.from_memo"] == "snapshot" and above.info.status == "FINISHED"
    assert above.info.start_time <= split.info.start_time <= split.info.end_time <= above.info.end_time

    monkeypatch.setenv(RUN_ID, "run-2")
    happen(store, "validate", "failed", error="ContractBreachError", message="dest: 3 nulls", exit_code=2)
    store.record("runs/run-2/plan.json", {"project": "flights"})
    track_run(store, "run-2")
    runs = named_runs(store, "flights")
    assert runs["validate"].data.tags["gatehouse.error"] == "ContractBreachError"
    assert b"dest: 3 nulls" not in (Path(store.address) / "mlflow" / "mlflow.db").read_bytes(), (
        "no message, for erasure"
    )
    assert {run.info.status for run in runs.values()} == {"FAILED"}


def test_a_run_with_results_from_the_memo_alone_is_not_shown(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-3")
    happen(store, "split", "hit", result={})
    happen(store, "register", "finished", result={})
    track_run(store, "run-3")
    tracking = tracking_of(store)
    assert tracking is not None and tracking.embedded is not None and not tracking.embedded.exists()
