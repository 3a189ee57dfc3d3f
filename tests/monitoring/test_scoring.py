"""The score stage: each task's columns, pieces that are scored once, and what cannot be scored."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError, PredictionError
from gatehouse.monitoring import scoring_stage
from gatehouse.monitoring.scoring_stage import ScoreRequest, ScoreResult, blocks_of, score
from gatehouse.reports.contents import rendered
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor
from tests.evaluation.candidates import publish_model
from tests.features.publishing import publish_definitions
from tests.features.shops import DEFINITIONS, QUERIES
from tests.training.synthetic import publish_split, publish_training_set, table

START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
ROWS = 600


def timed(rows: pa.Table) -> pa.Table:
    """The rows, one decided an hour after the other."""
    times = [START + dt.timedelta(hours=hour) for hour in range(rows.num_rows)]
    return rows.append_column("decision_time", pa.array(times, pa.timestamp("us", "UTC")))


@dataclass
class Scorer:
    """A store with a model and rows; it counts the rows that models score."""

    store: ArtifactStore
    model: str
    rows: pa.Table
    scored: int = 0

    def publish(self, rows: pa.Table, **details: Any) -> str:
        """Rows to score."""
        return publish_training_set(self.store, rows, **{"decision_time": "decision_time", "task": "binary"} | details)

    def score(self, rows: str, model: str = "") -> ScoreResult:
        """Score them."""
        return score(ScoreRequest(model=model or self.model, rows=rows, version=3), self.store)

    def table(self, result: ScoreResult) -> pa.Table:
        """The predictions."""
        return pq.read_table(self.store.paths(result.predictions))


@pytest.fixture
def scorer(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Scorer:
    """A small model, 600 rows, and pieces of 64 rows."""
    monkeypatch.setattr(scoring_stage, "ROWS", 64)
    rows = timed(table(ROWS))
    training_set = publish_training_set(store, rows)
    model = publish_model(store, training_set, publish_split(store, training_set, train=range(200)), steps=2)
    made = Scorer(store, model, rows)
    predict = Predictor.predict

    def counted(self: Predictor, rows: pa.Table) -> Any:
        made.scored += rows.num_rows
        return predict(self, rows)

    monkeypatch.setattr(Predictor, "predict", counted)
    return made


def test_predictions_are_those_of_the_whole_table_with_keys_time_and_model(scorer: Scorer) -> None:
    rows = scorer.publish(scorer.rows)
    result = scorer.score(rows)
    actual, manifest = scorer.table(result), scorer.store.manifest(result.predictions)
    assert actual.column_names == ["flight_id", "decision_time", "probability", "positive", "model", "model_version"]
    assert actual.select(["flight_id", "decision_time"]).equals(scorer.rows.select(["flight_id", "decision_time"]))
    whole = Predictor.load(scorer.store, scorer.model).predict(scorer.rows)
    assert np.array_equal(actual["probability"].to_numpy(), whole)
    assert actual["positive"].to_pylist() == (whole >= 0.5).tolist()
    assert set(actual["model"].to_pylist()) == {scorer.model} and set(actual["model_version"].to_pylist()) == {3}
    assert len(manifest.files) > ROWS // 64 and manifest.rows == result.rows == ROWS
    assert [column.name for column in manifest.columns] == actual.column_names
    assert manifest.derived_from == {"model": scorer.model, "rows": rows}
    assert "probability" in rendered(scorer.store, result.predictions).read_text()


@pytest.mark.parametrize(
    ("task", "loss", "columns"),
    [
        ("multiclass", "multiclass", {"class": "string", "probabilities": "fixed_size_list<item: double>[2]"}),
        ("regression", "mse", {"prediction": "double"}),
        ("ranking", "pairwise", {"score": "double"}),
    ],
)
def test_every_task_has_its_columns(scorer: Scorer, task: str, loss: str, columns: dict[str, str]) -> None:
    reported = {"task": task, "classes": ["early", "late"]} if task == "multiclass" else {"task": task}
    reported |= {"group": "carrier"} if task == "ranking" else {}
    rows = scorer.publish(scorer.rows, **reported)
    split = publish_split(scorer.store, rows, train=range(200))
    model = publish_model(scorer.store, rows, split, steps=1, loss=loss)
    result = scorer.score(rows, model)
    actual = scorer.table(result)
    kept = {column.name: column.type for column in scorer.store.manifest(result.predictions).columns}
    assert {name: kept[name] for name in columns} == columns and len(kept) == 4 + len(columns)
    predicted = Predictor.load(scorer.store, model).predict(scorer.rows)
    if task == "multiclass":
        assert np.array_equal(np.array(actual["probabilities"].to_pylist()), predicted)
        assert actual["class"].to_pylist() == [("early", "late")[column] for column in predicted.argmax(axis=1)]
    else:
        assert np.array_equal(actual[next(iter(columns))].to_numpy(), predicted)


def test_rows_of_features_that_mean_something_else_are_refused(scorer: Scorer) -> None:
    store, texts = scorer.store, {"definitions.py": DEFINITIONS, **QUERIES}
    query, on_demand = texts["views/sales.sql"], texts["on_demand/basket.sql"]
    learned, labels, *removals = (
        publish_definitions(store, "shops", texts | changed)
        for changed in (
            {},
            {"labels/returned.sql": texts["labels/returned.sql"] + " WHERE amount > 0"},
            {"views/sales.sql": query.replace("turnover", "2 * turnover AS turnover")},
            {"on_demand/basket.sql": on_demand.replace("/ turnover", "/ (1 + turnover)")},
        )
    )
    training_set = scorer.publish(scorer.rows, definitions=learned)
    model = publish_model(store, training_set, publish_split(store, training_set, train=range(200)), steps=1)
    assert scorer.score(scorer.publish(scorer.rows, definitions=labels), model).rows == ROWS
    for other, entry in zip(removals, ("sales: code views/sales.sql", "basket: its query"), strict=True):
        with pytest.raises(ConfigurationError, match=entry):
            scorer.score(scorer.publish(scorer.rows, definitions=other), model)


def test_after_a_kill_it_goes_on_where_it_was(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = Predictor.predict
    left = iter(range(6))

    def killed(self: Predictor, rows: pa.Table) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return predict(self, rows)

    rows = scorer.publish(scorer.rows)
    with monkeypatch.context() as patched:
        patched.setattr(Predictor, "predict", killed)
        with pytest.raises(KeyboardInterrupt):
            scorer.score(rows)
    before = scorer.scored
    assert 0 < before < ROWS and list(scorer.store.references("predictions")) == []
    result = scorer.score(rows)
    assert scorer.scored == ROWS and scorer.table(result).num_rows == ROWS


def test_a_longer_table_reuses_the_pieces_of_the_rows_that_it_begins_with(scorer: Scorer) -> None:
    scorer.score(scorer.publish(scorer.rows.slice(0, 400)))
    assert scorer.scored == 400
    later = scorer.score(scorer.publish(scorer.rows))
    assert scorer.scored == ROWS + 400 % 64
    alone = Predictor.load(scorer.store, scorer.model).predict(scorer.rows)
    assert np.array_equal(scorer.table(later)["probability"].to_numpy(), alone)


def test_a_piece_that_was_collected_meanwhile_is_scored_anew(scorer: Scorer) -> None:
    first = scorer.score(scorer.publish(scorer.rows))
    lost = scorer.store.manifest(first.predictions).files[2]
    Path(scorer.store.address, lost.blob).unlink()
    assert scorer.score(scorer.publish(scorer.rows)) == first
    assert scorer.scored == ROWS + (lost.rows or 0) and scorer.store.verify(first.predictions)


@pytest.mark.parametrize(
    ("change", "details", "message"),
    [
        (lambda rows: rows.drop_columns(["wind", "origin"]), {}, "the features of the model, found no wind, origin"),
        (lambda rows: rows.slice(0, 0), {}, "expected rows to score, found none"),
        (lambda rows: rows, {"task": "regression"}, "rows of the task binary, found regression"),
        (lambda rows: rows, {"entity_keys": ["carrier"]}, "with the entity keys flight_id, found carrier"),
    ],
)
def test_what_cannot_be_scored_is_named(scorer: Scorer, change: Any, details: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        scorer.score(scorer.publish(change(scorer.rows), **details))


@pytest.mark.parametrize("loss", ["binary", "mse"])
def test_nothing_is_published_of_a_model_that_gives_no_numbers(scorer: Scorer, loss: str) -> None:
    task = {"binary": "binary", "mse": "regression"}[loss]
    training_set = scorer.publish(scorer.rows, task=task)
    split = publish_split(scorer.store, training_set, train=range(200))
    broken = publish_model(scorer.store, training_set, split, broken=True, loss=loss)
    with pytest.raises(PredictionError, match=r"wrong predictions for (\d+) of \1 rows .* nan; expected a"):
        scorer.score(training_set, broken)
    assert not list(scorer.store.references("predictions"))


def test_pieces_hold_every_row_once_whatever_the_files(scorer: Scorer, tmp_path: Path) -> None:
    def written(rows: pa.Table, *ends: int) -> Iterator[Path]:
        for number, (start, end) in enumerate(zip((0, *ends), (*ends, rows.num_rows), strict=True)):
            path = tmp_path / f"{number}-of-{len(ends)}.parquet"
            pq.write_table(rows.slice(start, end - start), path)
            yield path

    names = scorer.rows.column_names
    whole = list(blocks_of([(path, 0) for path in written(scorer.rows)], names, 64))
    assert pa.concat_tables(whole).combine_chunks().equals(scorer.rows.combine_chunks())
    assert {entry.num_rows for entry in whole[:-1]} == {64}
    parts = [*written(scorer.rows, 7, 130, 131)]
    parted = list(blocks_of([(path, 0) for path in parts], names, 64))
    assert [entry.num_rows for entry in parted] == [entry.num_rows for entry in whole]
    for skipped in (0, 5, 99, 468):
        (later,) = blocks_of([(parts[-1], skipped)], names, ROWS)
        assert later.equals(scorer.rows.slice(131 + skipped).combine_chunks())
