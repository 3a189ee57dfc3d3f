"""Runs in a notebook: their order, and the state of runs whose end nothing records."""

from gatehouse.notebook.store import Store
from gatehouse.store.store import ArtifactStore


def _happen(store: ArtifactStore, run: str, stage: str, at: float, *events: str) -> None:
    for event in events:
        store.record(f"runs/{run}/{stage}.1.{event}.json", {"at": at, "seconds": 0.0})


def test_the_newest_runs_come_first_whatever_their_ids(store: ArtifactStore) -> None:
    """KFP's ids are random; those of runs on this machine are times."""
    began = {"9c": 1.0, "0a": 3.0, "20130115-081500-3fa2": 2.0, "ff": 0.5}
    for run, at in began.items():
        _happen(store, run, "train", at, "started", "finished")
    store.record("runs/20130115-081501-0000/end.json", {"state": "failed", "recorded": 4.0})
    runs = [run.id for run in Store(store).runs(most=4)]
    assert runs == ["20130115-081501-0000", "0a", "20130115-081500-3fa2", "9c"]


def test_a_run_of_an_own_pipeline_is_no_run_that_goes_on_for_ever(store: ArtifactStore) -> None:
    for run, last in {"a": "finished", "b": "failed", "c": "started", "planned": "finished"}.items():
        _happen(store, run, "validate", 1.0, "started", "finished")
        _happen(store, run, "launch", 2.0, *dict.fromkeys(("started", last)))
    plan = [{"task": "validate", "stage": "validate", "title": "Validate"}]
    store.record("runs/planned/plan.json", {"tasks": plan, "objective": ""})
    states = {run.id: run.facts["state"] for run in Store(store).runs()}
    assert states == {"a": "unknown", "b": "failed", "c": "running", "planned": "running"}
