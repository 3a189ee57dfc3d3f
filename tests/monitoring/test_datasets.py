"""Drift between two tables of any origin, and scores for a table: what alarms, what is not judged, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kfp import dsl

from gatehouse.components.score_dataset.component import score_dataset
from gatehouse.errors import ConfigurationError
from gatehouse.monitoring.datasets import compare
from gatehouse.monitoring.report import numbers_of
from gatehouse.monitoring.scoring_stage import score_table
from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, RetrainSpec
from gatehouse.monitoring.stage import MonitorResult
from gatehouse.reports.rendering import rendered
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor
from tests.evaluation.candidates import publish_model
from tests.training.synthetic import publish_split, publish_training_set, table

ROWS = 2000
COLUMNS = {"label": "bought", "score": "chance"}


def rows(seed: int, count: int = ROWS, shift: float = 0.0, wrong: float = 0.0) -> pa.Table:
    """Rows with a number, a category, a label, and a score that is `wrong` for a share of the rows."""
    random = np.random.default_rng(seed)
    chance = random.uniform(0.05, 0.95, count)
    bought = random.uniform(size=count) < chance
    flipped = random.uniform(size=count) < wrong
    days = np.datetime64("2024-01-01", "us") + (np.arange(count) * 60 * 24 / 10 * 60_000_000).astype("timedelta64[us]")
    return pa.table(
        {
            "age": random.normal(shift, 1.0, count),
            "city": random.choice(["a", "b", "c"], count),
            "bought": np.where(bought, "yes", "no"),
            "chance": np.where(flipped, 1 - chance, chance),
            "at": pa.array(days),
        }
    )


def compared(store: ArtifactStore, current: pa.Table, reference: pa.Table | None = None, **given: Any) -> MonitorResult:
    columns = {**COLUMNS, "positive": "yes"} | given.pop("columns", {})
    spec = MonitoringSpec(**given.pop("spec", {}))
    return compare(store, spec, rows(1) if reference is None else reference, current, columns, **given)


@pytest.mark.parametrize("time", ["", "at"])
def test_equal_distributions_are_quiet_and_the_page_is_drawn(time: str, store: ArtifactStore) -> None:
    result = compared(store, rows(2), columns={"time": time})
    assert (result.decision, result.verdict) == ("keep", "pass")
    assert {"performance, log_loss", "prediction drift, score of the model"} <= {*numbers_of(store, result.drift)}
    assert "in the reference" in rendered(store, result.drift).read_text()


@pytest.mark.parametrize(
    ("current", "given", "named"),
    [
        (rows(2, shift=2.0), {}, "age"),
        (rows(2, shift=2.0), {"columns": {"label": "", "score": ""}}, "age"),
        (rows(2).set_column(3, "chance", pa.array(np.full(ROWS, 0.9))), {"columns": {"label": ""}}, "prediction drift"),
        (rows(2, wrong=0.9), {}, "performance"),
        (rows(2).set_column(1, "city", pa.array(["d"] * ROWS)), {"features": ["city"]}, "city"),
    ],
)
def test_what_changed_alarms_and_is_named(
    current: pa.Table, given: dict[str, Any], named: str, store: ArtifactStore
) -> None:
    drift = {"data_drift": DataDriftSpec(unless_holds=False), "retrain": RetrainSpec(on=("decay", "drift"))}
    result = compared(store, current, spec=drift, **given)
    assert (result.decision, result.verdict) == ("retrain", "fail")
    assert any(named in alarm for alarm in result.alarms)


def test_labels_that_are_not_known_yet_are_left_out(store: ArtifactStore) -> None:
    current = rows(2, wrong=0.9)
    known = pa.array(np.arange(ROWS) < 1200)
    labels = pa.array(
        [text if there else None for text, there in zip(current["bought"].to_pylist(), known.to_pylist(), strict=True)]
    )
    current = current.set_column(2, "bought", labels)
    result = compared(store, current)
    facts = store.read_json(result.drift, "drift.json")["facts"]
    assert facts["of these with a known label"] == 1200 and any("1,200 rows" in alarm for alarm in result.alarms)
    assert compared(store, rows(2, 50)).decision == "not judged"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"current": rows(2).drop_columns("age")}, "age"),
        ({"current": rows(2).set_column(0, "age", rows(2)["city"])}, "age"),
        ({"features": ["ages"]}, "ages"),
        ({"features": ["at"]}, "features: at"),
        ({"columns": {"time": "city"}}, "time"),
        ({"columns": {"positive": "maybe"}}, "maybe"),
        ({"columns": {"score": "chances"}}, "chances"),
        ({"columns": {"task": "guess"}}, "task"),
        ({"reference": rows(1, 0)}, "reference"),
        ({"spec": {"reference": {"window": "trailing"}}}, "window"),
    ],
)
def test_tables_that_do_not_fit_are_refused(given: dict[str, Any], named: str, store: ArtifactStore) -> None:
    with pytest.raises(ConfigurationError, match=named):
        compared(store, given.pop("current", rows(2)), given.pop("reference", None), **given)


def test_a_table_keeps_its_columns_and_gets_the_scores_of_the_model(store: ArtifactStore, tmp_path: Path) -> None:
    trained = table(300, seed=1)
    training_set = publish_training_set(store, trained)
    model = publish_model(store, training_set, publish_split(store, training_set, train=range(200)), steps=2)
    given = trained.append_column("id", pa.array(range(300)))
    scored = score_table(store, model, given)
    assert scored.select(given.column_names) == given
    assert scored["probability"].to_numpy() == pytest.approx(Predictor.load(store, model).predict(given), abs=0)
    dataset, predictions = (dsl.Dataset(uri=str(tmp_path / name)) for name in ("dataset", "predictions"))
    pq.write_table(given, dataset.path)
    address = store.address_of(model)
    named_twice = {"model": dsl.Model(metadata={"reference": address}), "model_reference": address}
    for arguments in [{name: value} for name, value in named_twice.items()]:
        assert score_dataset.python_func(dataset, predictions, **arguments) == (300, address)
        assert pq.read_table(predictions.path)["probability"] == scored["probability"]
    for arguments in ({}, named_twice):
        with pytest.raises(ConfigurationError, match="model_reference"):
            score_dataset.python_func(dataset, predictions, **arguments)
    foreign = str(store.publish("models", "vendor", {"weights.bin": b"\x80\x04"}))
    for reference, wrong, named in (
        (foreign, given, "judge"),
        (model, given.drop_columns(Predictor.load(store, model).features[0]), "lacks"),
        (model, scored, "probability"),
        (model, given.slice(0, 0), "no rows"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            score_table(store, reference, wrong)
