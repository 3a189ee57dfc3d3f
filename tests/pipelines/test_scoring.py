"""The scoring pipeline on the small example: the champion scores the last days."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gatehouse.kfp.local_run import LocalRun, run_pipeline
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor
from tests.small_example import WINDOW, explain

pytestmark = pytest.mark.timeout(600)


def test_the_champion_scores_what_the_training_run_prepared_and_keys_of_ones_own(
    first: tuple[ArtifactStore, LocalRun], copy: ArtifactStore, project: Path, raw: Path, tmp_path: Path
) -> None:
    arguments = {"source": str(raw), "window": WINDOW, "since": "2013-01-23T00:00:00Z"}
    outcome = run_pipeline(project, "scoring", copy, arguments, watch=lambda _: None)
    assert outcome.exit_code == 0, explain(outcome)
    ran = {task.stage for task in outcome.plan if (event := outcome.latest(task.stage)) and event.event == "finished"}
    assert ran & {"compute_features", "retrieve_decisions", "score"} == {"retrieve_decisions", "score"}
    model, result = first[1].result("train")["model"], outcome.result("score")
    assert outcome.result("resolve")["version"] == 1 and outcome.result("resolve")["champion"] == model
    output = pq.read_table(copy.paths(result["predictions"]))
    rows = pq.read_table(copy.paths(outcome.result("retrieve_decisions")["decisions"]))
    assert output.num_rows == rows.num_rows == result["rows"] > 0
    assert output["probability"].to_pylist() == Predictor.load(copy, model).predict(rows).tolist()

    keys = tmp_path / "asked.parquet"
    pq.write_table(rows.slice(7, 5), keys)
    outcome = run_pipeline(
        project, "scoring", copy, {**arguments, "since": "", "keys": str(keys)}, watch=lambda _: None
    )
    assert outcome.exit_code == 0, explain(outcome)
    taken, decisions = outcome.result("take_keys")["taken"], outcome.result("retrieve_decisions")["decisions"]
    assert copy.manifest(decisions).derived_from["keys"] == taken
    result = outcome.result("score")
    own = pq.read_table(copy.paths(result["predictions"]))
    assert result["rows"] == 5 and copy.manifest(result["predictions"]).derived_from["rows"] == decisions
    assert own.sort_by("flight_id")["probability"] == output.slice(7, 5).sort_by("flight_id")["probability"]
