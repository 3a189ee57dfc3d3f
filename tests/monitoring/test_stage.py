"""The monitor stage on tables with seasons, shifts, new labels, too few rows."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.monitoring.report import page
from gatehouse.monitoring.rows import MissingColumnError, read_rows
from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, PerformanceSpec, ReferenceSpec
from gatehouse.monitoring.stage import MonitorRequest, MonitorResult, monitor
from gatehouse.project.windows import windows_of
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore

START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
DETAILS: dict[str, Any] = {"numeric": ["temperature", "rain"], "categorical": ["carrier"], "label": "label"}


def _spec(**drift: Any) -> MonitoringSpec:
    """Any feature that drifts alarms; no check asks the champion for predictions, as it is no real one."""
    drifting = DataDriftSpec(**{"max_drifted": 0.0, "weights": "equal"} | drift)
    return MonitoringSpec(min_rows=200, data_drift=drifting, prediction_drift=None, performance=None, calibration=None)


SPEC = _spec()


def _times(first_day: int, days: int) -> pa.Array:
    day = first_day + np.arange(days * 20) / 20
    return pa.array([START + dt.timedelta(days=entry) for entry in day], pa.timestamp("us", "UTC"))


Change = Callable[[dict[str, Any]], None]


def _table(first_day: int, days: int, change: Change = lambda columns: None) -> pa.Table:
    """Twenty rows a day; the temperature follows a season of ninety days."""
    random = np.random.default_rng(first_day)
    count = days * 20
    day = first_day + np.arange(count) / 20
    columns: dict[str, Any] = {
        "decision_time": _times(first_day, days),
        "temperature": 10 * np.sin(2 * np.pi * day / 90) + random.normal(size=count),
        "rain": np.where(random.random(count) < 0.9, 0.0, random.random(count)),
        "carrier": random.choice(["AA", "UA", "B6"], count),
        "label": (random.random(count) < 0.25).astype(np.int8),
    }
    change(columns)
    return pa.table(columns)


def _publish(store: ArtifactStore, kind: str, table: pa.Table, details: dict[str, Any]) -> str:
    with store.workspace() as workspace:
        path = Path(workspace) / "data.parquet"
        pq.write_table(table, path)
        file = "train.parquet" if kind == "splits" else "part-00000.parquet"
        columns = [Column(field.name, str(field.type)) for field in table.schema]
        return str(store.publish(kind, "delay", {file: path}, columns=columns, rows=table.num_rows, details=details))


def _monitor(
    store: ArtifactStore,
    current: pa.Table,
    spec: MonitoringSpec = SPEC,
    since: str = "",
    until: str = "",
    trained: pa.Table | None = None,
    **details: Any,
) -> MonitorResult:
    data = _published(store, current, trained, **details)
    return monitor(MonitorRequest(**data, since=since, until=until, spec=spec), store)


def _published(
    store: ArtifactStore, current: pa.Table, trained: pa.Table | None = None, **details: Any
) -> dict[str, str]:
    """A champion of these rows, and the newest rows."""
    before = _table(0, 270) if trained is None else trained
    training_set = _publish(store, "training-sets", before, DETAILS | details)
    split = _publish(store, "splits", pa.table({"row": np.arange(before.num_rows)}), {})
    return {
        "model": _champion(store, training_set, split),
        "current": _publish(store, "training-sets", current, DETAILS),
    }


def _champion(store: ArtifactStore, training_set: str, split: str, **configuration: Any) -> str:
    made_from = {"training_set": training_set, "split": split}
    return str(
        store.publish("models", "delay", {"model.json": "{}"}, derived_from=made_from, configuration=configuration)
    )


def _report(store: ArtifactStore, result: MonitorResult) -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = store.read_json(result.drift, "drift.json")["findings"]
    return actual


def _psi(store: ArtifactStore, result: MonitorResult) -> dict[str, float]:
    return {
        finding["name"]: finding["distances"]["psi"]
        for finding in _report(store, result)
        if finding["kind"] and finding["check"] == "data drift"
    }


def test_a_season_that_the_train_rows_had_before_is_not_drift(store: ArtifactStore) -> None:
    winter = _table(280, 30)
    result = _monitor(store, winter)
    assert _psi(store, result)["temperature"] > 1.0
    assert (result.decision, result.reasons) == ("keep", ())
    flat = _monitor(store, winter, _spec(seasonal_margin=0.0))
    assert flat.decision == "retrain" and "temperature" in flat.reasons[0]


def test_a_new_carrier_is_seen_and_an_ignored_one_is_shown_only(store: ArtifactStore) -> None:
    def new(columns: dict[str, Any]) -> None:
        columns["carrier"] = np.full(len(columns["carrier"]), "ZZ")

    table = _table(280, 30, new)
    assert "carrier" in _monitor(store, table).reasons[0]
    spared = _monitor(store, table, _spec(ignore=("carrier",)))
    assert spared.decision == "keep" and _psi(store, spared)["carrier"] > 1


@pytest.mark.parametrize(
    ("task", "label", "moved", "reason"),
    [
        ("binary", lambda row: row % 4 == 0, lambda row: row % 2 == 0, "label rate: expected 0.25"),
        (
            "regression",
            lambda row: 3 + np.sin(row * 0.35),
            lambda row: 4.5 + np.sin(row * 0.35),
            "mean label: expected 3",
        ),
        ("ranking", lambda row: row % 3, lambda row: row % 3 + 1, "mean label: expected"),
        (
            "multiclass",
            lambda row: np.minimum(row % 4, 2),
            lambda row: row % 2,
            "share of the most frequent class: expected 0.5 within 0.05, found 0",
        ),
    ],
)
def test_labels_of_every_task_are_watched(
    store: ArtifactStore, task: str, label: Callable[[Any], Any], moved: Callable[[Any], Any], reason: str
) -> None:
    def labelled(first_day: int, days: int, of: Callable[[Any], Any]) -> pa.Table:
        row = first_day * 20 + np.arange(days * 20)
        return _table(first_day, days, lambda columns: columns.update(label=of(row)))

    trained = labelled(0, 270, label)
    kept = _monitor(store, labelled(280, 30, label), trained=trained, task=task)
    assert not any("label" in text or "class" in text for text in kept.reasons)
    drifted = _monitor(store, labelled(280, 30, moved), trained=trained, task=task)
    assert drifted.decision == "retrain" and any(text.startswith(f"label drift, {reason}") for text in drifted.reasons)


def test_classes_that_are_numbered_otherwise_are_not_compared(store: ArtifactStore) -> None:
    split = _publish(store, "splits", pa.table({"row": np.arange(10)}), {})
    rows = _table(0, 30)

    def monitored(*classes: str) -> MonitorResult:
        reported = DETAILS | {"task": "multiclass"}
        reference = _publish(store, "training-sets", rows, reported | {"classes": ["a", "b"]})
        newest = _publish(store, "training-sets", rows, reported | {"classes": list(classes)})
        return monitor(MonitorRequest(model=_champion(store, reference, split), current=newest, spec=SPEC), store)

    with pytest.raises(ConfigurationError, match="has the classes a, x, b"):
        monitored("a", "x", "b")
    assert monitored("a", "b", "x").drift


def test_rows_that_a_refit_was_trained_on_are_no_newest_ones(store: ArtifactStore) -> None:
    before, whole = _table(0, 270), _table(0, 300)
    with store.workspace() as workspace:
        parts = {"train": range(250 * 20), "validation": range(250 * 20, 270 * 20)}
        for part, rows in parts.items():
            pq.write_table(pa.table({"row": np.array(rows)}), workspace / f"{part}.parquet")
        split = str(
            store.publish("splits", "delay", {f"{part}.parquet": workspace / f"{part}.parquet" for part in parts})
        )
    trained, newest = (_publish(store, "training-sets", rows, DETAILS) for rows in (before, whole))
    result = {}
    for refit in (0, 3):
        model = _champion(store, trained, split, stopping={"refit": refit})
        rows = read_rows(MonitorRequest(model=model, current=newest, spec=SPEC), store)
        result[refit] = [table.num_rows // 20 for table in (rows.trained, rows.current, rows.labelled)]
    assert result == {0: [250, 50, 50], 3: [270, 30, 30]}


def test_windows_of_a_backfill_hold_each_row_once_and_know_nothing_of_the_days_after(store: ArtifactStore) -> None:
    whole, kept = _table(280, 60), []
    for window in windows_of("2013-10-08/2013-12-07/P30D"):
        result = _monitor(store, whole, **window.parameters(("since", "until")))
        kept.append(store.read_json(result.drift, "drift.json")["facts"])
    assert [facts["newest rows"] for facts in kept] == [600, 600]
    assert [facts["decided from"][:19] for facts in kept] == ["2013-10-08T00:00:00", "2013-11-07T00:00:00"]
    assert [facts["labelled rows after the last train row"] for facts in kept] == [600, 1200]


@pytest.mark.parametrize(("performance", "verdict"), [(None, "pass"), (PerformanceSpec(), "warn")])
def test_a_check_that_cannot_run_is_a_warning_and_no_pass(
    store: ArtifactStore, performance: PerformanceSpec | None, verdict: str
) -> None:
    def unlabelled(columns: dict[str, Any]) -> None:
        columns["label"] = pa.nulls(len(columns["label"]), pa.int8())

    spec = SPEC.model_copy(update={"performance": performance, "label_drift": None})
    result = _monitor(store, _table(0, 270, unlabelled), spec, since="2013-01-01T00:00:00Z", trained=_table(0, 270))
    assert (result.decision, result.verdict, len(result.warnings)) == ("keep", verdict, bool(performance))
    assert all(text.startswith("not judged: performance: expected") for text in result.warnings)


@pytest.mark.parametrize("days", [0, 5])
def test_too_few_rows_are_not_judged_and_the_report_says_so(store: ArtifactStore, days: int) -> None:
    result = _monitor(store, _table(280, days))
    assert (result.decision, result.verdict) == ("not judged", "warn") and result.warnings == result.reasons
    assert result.reasons == (f"rows: expected at least 200 current rows to judge, found {days * 20}",)
    assert "to judge" in page(store, result.drift)


def test_rows_without_a_label_yet_are_judged_by_what_needs_none(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hotter(columns: dict[str, Any]) -> None:
        columns["temperature"] = columns["temperature"] + 40

    monkeypatch.setitem(DETAILS, "set_aside", {"label younger than its horizon": 200, "cancelled": 7})
    data = _published(store, _table(280, 20))
    young = _publish(store, "decisions", _table(300, 10, hotter).drop_columns("label"), {})
    request = MonitorRequest(**data, spec=SPEC)
    assert monitor(request, store).decision == "keep"
    reported = monitor(request.model_copy(update={"unlabelled": young}), store)
    assert reported.decision == "retrain" and reported.reasons[0].startswith(
        "data drift: expected at most 0% of the features"
    )
    facts = store.read_json(reported.drift, "drift.json")["facts"]
    assert (facts["newest rows"], facts["of these with a known label"]) == (600, 400)
    assert facts["of these whose label is not known yet"] == 200
    assert reported.warnings[-1].startswith("7 rows set aside, as they have no label")


def _log(table: pa.Table, change: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """What a server logs of these rows: key, time, features, and a probability."""
    logged = table.drop_columns("label").append_column("probability", pa.array(np.full(table.num_rows, 0.25)))
    return change(logged)


def _with(column: str, values: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    return lambda log: log.set_column(log.column_names.index(column), column, values(log[column]))


HOURS = pa.scalar(dt.timedelta(hours=5), pa.duration("us"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda log: log, ""),
        (_with("probability", lambda values: pc.multiply(values, 100)), "600 others, the first 25"),
        (_with("probability", lambda values: pc.if_else(pc.is_valid(values), None, values)), "the first None"),
        (_with("probability", lambda values: pa.array(["high"] * len(values))), "expected numbers, found string"),
        (_with("decision_time", lambda times: times.cast(pa.timestamp("us"))), "times with a zone"),
        (_with("decision_time", lambda times: pa.nulls(len(times), times.type)), "expected a time in each row"),
        (_with("decision_time", lambda times: pc.add(times, HOURS)), "found 0 of the 5"),
        (lambda log: pa.table({name: pa.nulls(0) for name in log.column_names}), "found none"),
    ],
    ids=["right", "percent", "nulls", "texts", "naive", "timeless", "late", "empty"],
)
def test_a_log_that_cannot_be_right_is_not_judged(
    store: ArtifactStore, change: Callable[[pa.Table], pa.Table], why: str
) -> None:
    rows = _table(280, 30)
    log = _publish(store, "prediction-logs", _log(rows, change), {})
    result = monitor(MonitorRequest(**_published(store, rows), predictions=log, spec=SPEC), store)
    if not why:
        assert result.decision == "keep"
        return
    assert (result.decision, result.verdict) == ("not judged", "warn")
    assert result.reasons == result.warnings and why in result.reasons[0]


def test_a_log_of_classes_without_some_probabilities_is_not_judged(store: ArtifactStore) -> None:
    rows, classes = _table(280, 30), {"task": "multiclass", "classes": ["a", "b", "c"]}
    data = _published(store, rows, **classes)
    data["current"] = _publish(store, "training-sets", rows, DETAILS | classes)
    for probabilities, why in (([[0.5, 0.5]] * 600, "found 2"), ([None, *[[0.1, 0.4, 0.5]] * 599], "found 1 others")):
        logged = rows.drop_columns("label").append_column("probabilities", pa.array(probabilities))
        log = _publish(store, "prediction-logs", logged, {})
        result = monitor(MonitorRequest(**data, predictions=log, spec=SPEC), store)
        assert result.decision == "not judged" and why in result.reasons[0]


def test_days_that_lack_values_by_chance_alarm_in_one_window_of_thirty_at_most(store: ArtifactStore) -> None:
    """On one day of seven the source is down for half of the day: a week has more or fewer such days by chance."""

    def gaps(columns: dict[str, Any]) -> None:
        random = np.random.default_rng(len(columns["rain"]))
        down = np.repeat(random.random(len(columns["rain"]) // 20) < 1 / 7, 20) & (np.arange(len(columns["rain"])) % 2)
        columns["rain"] = pa.array(np.where(down, np.nan, columns["rain"]), from_pandas=True)

    trained, random = _table(0, 270, gaps), np.random.default_rng(1)
    spec = SPEC.model_copy(update={"data_drift": None, "label_drift": None, "min_rows": 100})
    alarms = 0
    for _ in range(30):
        days = [trained.slice(int(day) * 20, 20) for day in random.integers(0, 270, 7)]
        window = pa.concat_tables(days).drop_columns("decision_time").append_column("decision_time", _times(280, 7))
        alarms += bool(_monitor(store, window, spec, trained=trained).alarms)
    assert alarms <= 1


def test_a_missing_feature_is_named(store: ArtifactStore) -> None:
    with pytest.raises(MissingColumnError, match="found no rain"):
        _monitor(store, _table(280, 30, lambda columns: columns.pop("rain")))


@pytest.mark.parametrize("since", ["yesterday", "2013-11-01T00:00:00"])
def test_a_time_without_a_zone_is_a_configuration_error(store: ArtifactStore, since: str) -> None:
    with pytest.raises(ConfigurationError, match="zone"):
        _monitor(store, _table(280, 30), since=since)


def test_the_same_request_gives_the_same_artifact(tmp_path: Path) -> None:
    stores = [ArtifactStore.open(tmp_path / name) for name in ("one", "two")]
    first, second = (_monitor(store, _table(280, 30)) for store in stores)
    assert first == second
    assert "://" not in page(stores[0], first.drift).replace("http://www.w3.org/2000/svg", "")


def test_an_alarm_that_a_season_hid_is_a_warning_and_told_on_the_page(store: ArtifactStore) -> None:
    result = _monitor(store, _table(280, 30))
    assert result.decision == "keep"
    (hidden,) = [warning for warning in result.warnings if warning.startswith("data drift, temperature")]
    assert "is above the alarm of 0.25 and rang none, as its season alone reaches" in hidden
    html = page(store, result.drift)
    head, body = html.split("</header>")
    assert hidden in head and "Keep the model" in head
    assert "its season" in body
    flat = _monitor(store, _table(280, 30), _spec(seasonal_margin=0.0, max_drifted=0.9))
    assert flat.decision == "keep" and "alone it asks for nothing, as it holds 33.3%" in flat.warnings[0]
    assert "alone it asks for nothing" in page(store, flat.drift)


def _state(store: ArtifactStore, result: MonitorResult, check: str, name: str = "") -> tuple[str, str]:
    (actual,) = [finding for finding in _report(store, result) if (finding["check"], finding["name"]) == (check, name)]
    return actual["state"], actual["why"]


def test_the_reference_may_be_the_days_before_or_the_same_days_a_year_ago(store: ArtifactStore) -> None:
    def hotter(columns: dict[str, Any]) -> None:
        columns["temperature"] = np.random.default_rng(1).normal(30, 1, len(columns["label"]))

    whole = pa.concat_tables([_table(280, 60, hotter), _table(645, 30, hotter)])
    for window, flat in (("trailing", "2013-11-20T00:00:00Z"), ("year_ago", "2014-10-01T00:00:00Z")):
        spec = SPEC.model_copy(update={"reference": ReferenceSpec(window=window)})
        result = _monitor(store, whole, spec, since=flat)
        state, why = _state(store, result, "data drift", "temperature")
        assert state == "quiet" and "within the alarm of 0.25" in why, window
        assert _state(store, _monitor(store, whole, since=flat), "data drift", "temperature")[0] == "moved"
    none = _monitor(store, _table(280, 30), SPEC.model_copy(update={"reference": ReferenceSpec(window="year_ago")}))
    assert _state(store, none, "data drift")[0] == "not judged"
    assert "rows of the reference <code>year_ago</code>, found 0" in page(store, none.drift)


def test_broken_columns_alarm_and_ask_for_no_new_model(store: ArtifactStore) -> None:
    def broken(columns: dict[str, Any]) -> None:
        rows = np.arange(len(columns["label"]))
        columns["rain"] = pa.array(np.where(rows % 2 == 0, columns["rain"], np.nan), from_pandas=True)
        columns["temperature"] = np.where(rows % 4 == 0, 999.0, columns["temperature"])
        columns["carrier"] = np.where(rows % 5 == 0, "ZZ", columns["carrier"])

    result = _monitor(store, _table(280, 30, broken), SPEC.model_copy(update={"data_drift": None}))
    assert (result.decision, result.verdict) == ("keep", "fail") and len(result.alarms) == 3
    reported = " ".join(result.alarms)
    assert (
        "rain: 50.0% are missing, 0.0% were in training" in reported
        and "carrier: 20.0% are categories that" in reported
    )
    assert "temperature: 25.0% are far beyond" in reported and "look at the source" in page(store, result.drift)


def test_stale_views_alarm_also_where_rows_are_too_few(store: ArtifactStore) -> None:
    result = monitor(
        MonitorRequest(**_published(store, _table(280, 2)), stale=("weather is 3 days old",), spec=SPEC), store
    )
    assert result.decision == "not judged" and result.alarms == ("freshness: weather is 3 days old",)
