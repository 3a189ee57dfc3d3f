"""Gradient-boosted trees behind the same request, job and predictor: they learn, go on, and give the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xgboost

from gatehouse.launchers.launcher import WEIGHTS
from gatehouse.launchers.ranks import FAULT
from gatehouse.store.store import ArtifactStore
from gatehouse.training.job import prepare_job
from gatehouse.training.predictor import Predictor
from gatehouse.training.report import page
from gatehouse.training.spec import CheckpointSpec
from gatehouse.training.stage import TrainRequest, TrainResult, train
from gatehouse.training.trees import train as boost
from tests.training import synthetic
from tests.training.specs import trees, vary
from tests.training.trained import followed, log_of

SPEC = trees(
    rounds=30,
    learning_rate=0.3,
    max_depth=3,
    row_share=0.7,
    column_share=0.6,
    checkpoints=CheckpointSpec(every_steps=4),
)


def _request(store: ArtifactStore, **changes: Any) -> TrainRequest:
    split, fitted = synthetic.fitted_data(store)
    return TrainRequest(split=split, transformation=fitted, spec=vary(SPEC, **changes), model_name="flights")


def _grown(rows: pa.Table, store: ArtifactStore, directory: Path, **changes: Any) -> dict[str, Any]:
    training_set = synthetic.publish_training_set(store, rows)
    split = synthetic.publish_split(store, training_set)
    spec = vary(SPEC, **changes)
    prepared = prepare_job(store, split, synthetic.fitted(store, split), spec, directory)
    result = boost(spec, prepared.architecture, directory)
    assert result is not None
    description = {"architecture": prepared.architecture, "transformation": prepared.transformation.to_json()}
    booster = xgboost.Booster(model_file=bytearray((directory / WEIGHTS).read_bytes()))
    return result | {"predictor": Predictor(description, booster)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, TrainResult]:
    """A store and the model of a run that was killed after its ninth round, and went on."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("killed") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAULT, "kill!:9")
        return store, train(_request(store), store)


def test_trees_learn_and_the_artifact_holds_them_as_data(trained: tuple[ArtifactStore, TrainResult]) -> None:
    store, result = trained
    assert result.metrics["roc_auc"] > 0.7
    files = [file.path for file in store.manifest(result.model).files]
    assert files == ["history.json", "model.json", "weights.ubj"]
    history = store.read_json(result.model, "history.json")
    assert result.metrics["log_loss"] == min(row["log_loss"] for row in history)
    booster = xgboost.Booster(model_file=bytearray(store.path(result.model, "weights.ubj").read_bytes()))
    assert booster.num_boosted_rounds() == result.best_epoch + 1
    importance = store.read_json(result.model, "model.json")["importance"]
    assert max(importance, key=importance.get) in ("distance", "delay_rate")


def test_a_refit_trains_on_train_and_validation_rows_for_as_many_rounds_as_were_the_best(
    trained: tuple[ArtifactStore, TrainResult], tmp_path: Path, alone: None
) -> None:
    store, first = trained
    result = train(_request(store).model_copy(update={"refit": True}), store)
    assert result.best_epoch == first.best_epoch and result.metrics == {} and result.model != first.model
    manifest, rounds = store.manifest(result.model), first.best_epoch + 1
    assert manifest.configuration["stopping"] == {"refit": rounds, "rounds": 30}
    history = store.read_json(result.model, "history.json")
    assert len(history) == rounds and set(history[0]) == {"epoch", "train_log_loss"}
    rows = synthetic.TRAIN + synthetic.VALIDATION
    assert f"trained on train and validation rows for {rounds} epochs" in page(store, result.model).lower()
    again = _grown(synthetic.table(), store, tmp_path, refit=rounds)
    assert (tmp_path / WEIGHTS).read_bytes() == store.path(result.model, "weights.ubj").read_bytes()
    assert again["predictor"].predict(synthetic.table()).shape == (rows + synthetic.TEST,)


def test_a_killed_run_resumes_and_ends_in_the_same_bits(
    store: ArtifactStore, tmp_path: Path, trained: tuple[ArtifactStore, TrainResult], alone: None
) -> None:
    # Rows and columns are drawn: the draws after the kill have to be those that the run would have made.
    undisturbed = _grown(synthetic.table(), store, tmp_path)
    place, result = trained
    assert place.path(result.model, "weights.ubj").read_bytes() == (tmp_path / WEIGHTS).read_bytes()
    assert place.read_json(result.model, "history.json") == undisturbed["history"]
    log = log_of(place, result.model)
    assert any("Resumed from checkpoint" in line for line in log), log


def test_trees_that_their_experiment_stops_go_on_when_they_are_asked_for_again(
    store: ArtifactStore, trained: tuple[ArtifactStore, TrainResult]
) -> None:
    reported, result = followed(_request(store), store, stop_after=13)
    assert result is None and sorted(reported)[:14] == list(range(14)) and len(reported) < 20
    again, result = followed(_request(store), store)
    assert result == trained[1] and all(again[round_] == row for round_, row in reported.items())
    assert [{"epoch": round_} | row for round_, row in again.items()] == store.read_json(result.model, "history.json")
    assert any("Resumed from checkpoint" in line for line in log_of(store, result.model))


def test_two_processes_grow_what_one_grows(store: ArtifactStore, tmp_path: Path, alone: None) -> None:
    # Sampling would draw other rows on each: what is compared are histograms added over processes.
    whole = {"row_share": 1.0, "column_share": 1.0, "rounds": 8}
    rows = synthetic.table()
    single = _grown(rows, store, tmp_path, **whole)
    double = train(_request(store, processes=2, **whole), store)
    scores = single["predictor"].predict(rows), Predictor.load(store, double.model).predict(rows)
    assert np.abs(scores[0] - scores[1]).mean() < 0.01
    assert double.metrics["log_loss"] == pytest.approx(min(row["log_loss"] for row in single["history"]), abs=0.01)


def test_a_row_has_the_same_score_online_in_batch_and_as_in_training(
    trained: tuple[ArtifactStore, TrainResult],
) -> None:
    store, result = trained
    request = _request(store)
    validation = synthetic.rows_of(store, request.split, "validation")
    predictor = Predictor.load(store, result.model)
    scores = predictor.predict(validation)
    labels = validation["label"].to_numpy()
    loss = -np.mean(np.where(labels == 1, np.log(scores), np.log1p(-scores)))
    assert loss == pytest.approx(result.metrics["log_loss"], abs=1e-6)
    rows = validation.slice(0, 20).to_pylist()
    online = np.concatenate([predictor.predict_online([row]) for row in rows])
    assert np.array_equal(online, scores[:20])
    assert predictor.predict(validation.slice(0, 0)).shape == (0,)


@pytest.mark.parametrize(
    ("loss", "metric", "least"),
    [("multiclass", "accuracy", 0.95), ("mse", "r2", 0.9), ("huber", "r2", 0.9), ("pairwise", "ndcg", 0.8)],
)
def test_every_task_is_learned(
    store: ArtifactStore, tmp_path: Path, alone: None, loss: str, metric: str, least: float
) -> None:
    rows = synthetic.table()
    rows = rows.append_column("day", pa.array(np.arange(len(rows)) // 15))
    values = rows["delay_rate"].to_numpy()
    if loss == "multiclass":
        rows = rows.set_column(1, "label", pa.array(np.digitize(values, [0.3, 0.7])))
    elif loss != "pairwise":
        values = values * 10 + (rows["carrier"].to_numpy(zero_copy_only=False) == "UA")
        rows = rows.set_column(1, "label", pa.array(values))
    group = {"group": "day"} if loss == "pairwise" else {}
    result = _grown(rows, store, tmp_path, loss=loss, **group)
    assert result["history"][result["best_epoch"]][metric] > least
    scores = result["predictor"].predict(rows)
    assert scores.shape == ((len(rows), 3) if loss == "multiclass" else (len(rows),))
