"""Drift between two tables of any origin, and scores for a table: what alarms, what is not judged, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from kfp import dsl

from gatehouse import components
from gatehouse.data.splitting.publication import publish_rows
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.result import ScoringError
from gatehouse.monitoring.report import numbers_of
from gatehouse.monitoring.rows import MonitorRequest
from gatehouse.monitoring.scoring_stage import ScoreRequest, score
from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, RetrainSpec
from gatehouse.monitoring.stage import MonitorResult, monitor
from gatehouse.reports.contents import rendered
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor
from tests.components import call, stored
from tests.evaluation.candidates import publish_model
from tests.training.synthetic import publish_split, publish_training_set, table

ROWS = 2000
COLUMNS = {"label": "bought", "score": "chance"}
LABELLED = {**COLUMNS, "positive": "yes"}
CLASSES = {"classes": ["no", "yes"]}
SPEC = MonitoringSpec()


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


def compared(
    store: ArtifactStore,
    current: pa.Table,
    baseline: pa.Table | None = None,
    spec: Any = SPEC,
    **given: Any,
) -> MonitorResult:
    columns = {**LABELLED, **given.pop("columns", {}), **given}
    before, now = (published(store, side) for side in (rows(1) if baseline is None else baseline, current))
    request = MonitorRequest(baseline=before, current=now, columns=columns, spec=spec)
    return monitor(request, store)


def published(store: ArtifactStore, table_: pa.Table) -> str:
    return str(publish_rows(store, "tables", "rows", table_, {}, {}))


def monitored(folder: Path, baseline: pa.Table, current: pa.Table, **given: Any) -> Any:
    return call(components.monitor, folder, baseline=baseline, current=current, **given)


@pytest.mark.parametrize(
    ("baseline", "current", "given"),
    [
        (rows(1, 5), rows(2, shift=3.0), {}),
        (rows(1, 5), rows(2, shift=3.0), LABELLED),
        (rows(1, 500), rows(2, 500), {}),
        (rows(1).select(["at"]), rows(2).select(["at"]), {}),
        (rows(1), rows(2), {"spec": {"data_drift": {"ignore": ["age", "bought", "chance", "city"]}}}),
        (rows(1), rows(2, shift=3.0), {"spec": {"data_drift": False}, "features": ["city"]}),
    ],
)
def test_where_neither_drift_nor_performance_is_judged_there_is_no_pass(
    baseline: pa.Table, current: pa.Table, given: dict[str, Any], tmp_path: Path
) -> None:
    judged = monitored(tmp_path, baseline, current, **given)
    assert (judged.decision, judged.verdict) == ("not judged", "inconclusive") and len(judged.reasons) == 1
    assert judged.reasons[0] in Path(judged.summary.path).read_text()


NULLS = pa.array([None] * ROWS, pa.float64())


@pytest.mark.parametrize("nulls", [NULLS, NULLS.cast(pa.string()), pa.array([float("nan")] * ROWS)])
def test_a_column_without_a_value_on_either_side_is_not_judged(nulls: pa.Array, tmp_path: Path) -> None:
    empty = rows(1).select(["at"]).append_column("age", nulls)
    judged = monitored(tmp_path, empty, empty)
    assert (judged.decision, judged.verdict) == ("not judged", "inconclusive")
    judged = monitored(tmp_path, *(rows(seed).set_column(0, "age", nulls) for seed in (1, 2)))
    assert (judged.decision, judged.verdict) == ("keep", "pass")
    assert [text.split(":")[1] for text in judged.warnings] == [" data drift, age"]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("nulls", [NULLS, NULLS.cast(pa.string()), NULLS.cast(pa.int64())])
def test_a_feature_that_lost_its_values_alarms_and_one_that_got_some_is_compared(
    place: int, nulls: pa.Array, tmp_path: Path
) -> None:
    lost, name = rows(2).set_column(place, rows(2).column_names[place], nulls), rows(2).column_names[place]
    judged = monitored(tmp_path, rows(1), lost, features=[name])
    assert judged.verdict == "fail"
    assert any(f"{name}" in text and "100.0% are missing" in text for text in judged.reasons)
    assert name in Path(judged.report.path).read_text()
    assert monitored(tmp_path, lost, rows(1), features=[name]).verdict == "fail"


@pytest.mark.parametrize("number", [False, True])
def test_labels_may_all_be_unknown_whatever_their_type(number: bool, tmp_path: Path) -> None:
    baseline = rows(1).set_column(2, "bought", pa.array(np.arange(ROWS) % 2)) if number else rows(1)
    given = COLUMNS if number else LABELLED
    for nulls in (NULLS, NULLS.cast(pa.string())):
        current = rows(2).set_column(2, "bought", nulls)
        judged = monitored(tmp_path, baseline, current, **given)
        assert (judged.decision, judged.verdict) == ("keep", "pass")
        assert any("performance" in text for text in judged.warnings)


@pytest.mark.parametrize("form", [pa.int64(), pa.float64(), pa.string()])
def test_ids_of_rows_are_left_out_unless_they_are_listed(form: pa.DataType, tmp_path: Path) -> None:
    def numbered(number: int) -> pa.Table:
        return rows(number).append_column("id", pa.array(range(number * ROWS, (number + 1) * ROWS)).cast(form))

    judged = monitored(tmp_path, numbered(1), numbered(2))
    assert (judged.decision, judged.verdict) == ("keep", "pass")
    assert ["data drift, id" in text for text in judged.warnings] == [True]
    judged = monitored(tmp_path, numbered(1), numbered(2), features=["id"])
    assert judged.verdict == "fail" and "id" in judged.reasons[0]


def test_reasons_are_only_why_it_is_no_pass(tmp_path: Path, store: ArtifactStore) -> None:
    few = rows(2).set_column(2, "bought", pa.array([*rows(2)["bought"].to_pylist()[:50], *[None] * (ROWS - 50)]))
    judged = monitored(tmp_path, rows(1), few, **LABELLED, store=store.address)
    assert (judged.decision, judged.verdict, judged.reasons) == ("keep", "pass", [])
    assert any(text.startswith("not judged: performance") for text in judged.warnings)
    facts = judged.drift.metadata
    assert (facts["decision"], facts["verdict"]) == ("keep", "pass") and store.exists(facts["reference"])
    assert judged.report.metadata == {"reference": facts["reference"]}


def test_there_is_a_champion_or_a_baseline(tmp_path: Path, store: ArtifactStore) -> None:
    champion, nothing = dsl.Model(metadata={"reference": "none"}), dsl.Dataset(metadata={"reference": "none"})
    for wrong in ({}, {"champion": champion}, {"baseline": nothing}, {"champion": champion, "baseline": nothing}):
        with pytest.raises(ConfigurationError, match="neither"):
            call(components.monitor, tmp_path, current=rows(1), **wrong)
    with pytest.raises(ConfigurationError, match="both"):
        call(components.monitor, tmp_path, current=rows(1), baseline=rows(2), champion=dsl.Model(uri=store.address))


def test_parts_of_a_split_are_compared_by_their_rows(tmp_path: Path, store: ArtifactStore) -> None:
    parts = call(components.split, tmp_path, data=rows(1, 10_000), label="bought", columns=CLASSES, store=store.address)
    judged = monitored(tmp_path, parts.train, parts.test, **LABELLED)
    assert judged.decision == "keep" and monitored(tmp_path, parts.train, rows(2, shift=3.0)).decision == "retrain"


@pytest.mark.parametrize("time", ["", "at"])
def test_equal_distributions_are_quiet_and_the_page_is_drawn(time: str, store: ArtifactStore) -> None:
    result = compared(store, rows(2), columns={"event_time": time})
    assert (result.decision, result.verdict) == ("keep", "pass")
    assert {"performance, log_loss", "prediction drift, score of the model"} <= {*numbers_of(store, result.drift)}
    assert "in the baseline" in rendered(store, result.drift).read_text()


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


def timed_in_1970(table: pa.Table) -> pa.Table:
    """Seconds that were read as microseconds."""
    seconds = pc.divide(table["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1_000_000)
    at = seconds.cast(pa.timestamp("us", "UTC"))
    return table.set_column(table.column_names.index("at"), "at", at)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"current": rows(2).drop_columns("age")}, "age"),
        ({"current": rows(2).set_column(0, "age", rows(2)["city"])}, "age"),
        ({"features": ["ages"]}, "ages"),
        ({"features": ["at"]}, "features: at"),
        ({"columns": {"event_time": "city"}}, "event_time"),
        ({"current": timed_in_1970(rows(2)), "columns": {"event_time": "at"}}, "event_time: at: .* 1970"),
        ({"columns": {"positive": "maybe"}}, "maybe"),
        ({"columns": {"score": "chances"}}, "chances"),
        ({"columns": {"task": "guess"}}, "task"),
        ({"columns": {"label": "chance"}}, "another column"),
        ({"features": ["age", "chance"]}, "found chance"),
        ({"features": ["bought"], "columns": {"score": ""}}, "found bought"),
        ({"current": rows(2).drop_columns("bought")}, r"current: label: .*city, chance, at\)"),
        ({"baseline": rows(1, 0)}, "baseline"),
        ({"spec": {"reference": {"window": "trailing"}}}, "window"),
        ({"spec": {"retrain": {"on": ["decay"]}}, "columns": {"label": ""}}, "retrain.on"),
    ],
)
def test_tables_that_do_not_fit_are_refused(given: dict[str, Any], named: str, store: ArtifactStore) -> None:
    with pytest.raises(ConfigurationError, match=named):
        compared(store, given.pop("current", rows(2)), given.pop("baseline", None), **given)


@pytest.mark.parametrize("side", ["baseline", "current"])
def test_a_row_with_a_label_and_no_score_is_refused(side: str, store: ArtifactStore) -> None:
    tables = {"baseline": rows(1), "current": rows(2)}
    scores = pa.array([None, *tables[side]["chance"].to_pylist()[1:]], pa.float64())
    tables[side] = tables[side].set_column(3, "chance", scores)
    with pytest.raises(ScoringError, match=f"row 0 of {side}"):
        compared(store, **tables)
    if side == "current":
        assert compared(store, **tables, columns={"label": ""}).verdict == "pass"


def test_a_table_keeps_its_columns_and_gets_the_scores_of_the_model(store: ArtifactStore, tmp_path: Path) -> None:
    trained = table(300, seed=1)
    training_set = publish_training_set(store, trained)
    model = publish_model(store, training_set, publish_split(store, training_set, train=range(200)), steps=2)
    given = trained.append_column("id", pa.array(range(300)))
    result = score(ScoreRequest(model=model, rows=published(store, given)), store)
    scored = pq.ParquetDataset(store.paths(result.predictions)).read()
    assert scored.select(given.column_names) == given
    assert scored["probability"].to_numpy() == pytest.approx(Predictor.load(store, model).predict(given), abs=0)
    champion = stored(store, model, dsl.Model)
    by_component = call(components.score, tmp_path, data=given, model=champion)
    assert by_component.rows == 300
    assert pq.read_table(by_component.predictions.path)["probability"] == scored["probability"]
    assert by_component.predictions.metadata["model"] == champion.metadata["reference"]
    nothing = dsl.Dataset(metadata={"reference": "none"})
    assert call(components.score, tmp_path, data=nothing, model=champion).rows == 0
    foreign = str(store.publish("models", "vendor", {"weights.bin": b"\x80\x04"}))
    with pytest.raises(ConfigurationError, match="evaluate"):
        Predictor.load(store, foreign)
    for reference, wrong, named in (
        (foreign, given, "evaluate"),
        (model, given.drop_columns(Predictor.load(store, model).features[0]), "features of the model"),
        (model, scored, "probability"),
        (model, given.slice(0, 0), "found none"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            score(ScoreRequest(model=reference, rows=published(store, wrong)), store)
