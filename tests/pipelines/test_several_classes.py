"""A project of several classes through the other pipelines: its champion scores, and what it said is monitored."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from gatehouse.kfp.local_run import LocalRun, run_pipeline
from gatehouse.store.store import ArtifactStore
from tests.small_example import EXAMPLE, explain

pytestmark = pytest.mark.timeout(600)
CLASSES = ["clear", "hazy", "low"]


@pytest.fixture
def visibility(tmp_path: Path) -> Path:
    """The example with boundaries within a month, few trees and no search."""
    folder = tmp_path / "visibility"
    shutil.copytree(EXAMPLE.parent / "visibility", folder)
    project = yaml.safe_load((folder / "project.yaml").read_text())
    project["split"] = {"train_until": "2013-01-16", "validation_until": "2013-01-20", "gap": "PT3H"}
    project["training"]["stopping"] = {"rounds": 20}
    project |= {"tuning": None, "monitoring": {"min_rows": 100}}
    policy = yaml.safe_load((folder / "policy.yaml").read_text()) | {"must_beat_baseline": [], "least_rarer_rows": 1}
    policy["better_than_guessing"] = None
    (folder / "project.yaml").write_text(yaml.safe_dump(project))
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    return folder


def test_the_champion_scores_and_what_it_said_is_monitored(store: ArtifactStore, visibility: Path, raw: Path) -> None:
    def ran(pipeline: str, until: str, **arguments: str) -> LocalRun:
        given = {"source": str(raw), "window": f"2013-01-01/{until}"} | arguments
        outcome = run_pipeline(visibility, pipeline, store, given, watch=lambda _: None)
        assert outcome.exit_code == 0, explain(outcome)
        return outcome

    assert ran("training", "2013-01-26").result("register")["aliases"] == ["staging", "champion"]
    scored = ran("scoring", "2013-02-01", since="2013-01-26T00:00:00Z").result("score")
    said = pq.read_table(store.paths(scored["predictions"]))
    assert said.num_rows == scored["rows"] > 300
    assert store.manifest(scored["predictions"]).details["classes"] == CLASSES
    for one in said.select(["class", "probabilities"]).to_pylist():
        chances = dict(zip(CLASSES, one["probabilities"], strict=True))
        assert chances[one["class"]] == max(chances.values()) and sum(chances.values()) == pytest.approx(1)

    reference = ran("monitoring", "2013-02-01", predictions="latest").result("monitor")["drift"]
    assert store.manifest(reference).derived_from["predictions"] == scored["predictions"]
    drift = store.read_json(reference, "drift.json")
    assert drift["judged"] and drift["facts"]["logged rows"] == drift["facts"]["newest rows"] == scored["rows"]
    found = {(each["check"], each["name"]): each["value"] for each in drift["findings"]}
    assert found["prediction drift", "class that the model predicts"] is not None
    assert found["label drift", "share of the most frequent class"] is not None
    # The log holds what the champion said of rows whose classes came out since.
    labels = drift["facts"]["of these with a known label"]
    assert labels > 300 and found["performance", "log_loss"] > 0
