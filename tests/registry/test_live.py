"""Champion and canary on live outcomes: the join, a planted loss, equals, guardrails, and which rows are compared."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.components import roll_out
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import LiveRules
from gatehouse.monitoring.live import Arms, with_outcomes
from gatehouse.monitoring.live_log import pseudonym
from gatehouse.registry.ledger import CANARY, CHAMPION, Ledger
from gatehouse.registry.live_stage import FILE, LiveRequest, collect_arms, evaluate_live, published_outcomes
from gatehouse.reports.contents import rendered
from gatehouse.store.store import ArtifactStore
from tests.components import call
from tests.server.live import Live, make_live

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
KEYS = 4000
RULES = LiveRules(metrics={"brier": 0.02})


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """Version 1 is champion, and 2 canary of 30 % of the keys."""
    live = make_live(ArtifactStore.open(tmp_path_factory.mktemp("live")))
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.3)
    return live


def _log(live: Live, *, noise: float = 0.0, failing: float = 0.0, canary: float = 0.3, seed: int = 0) -> pa.Table:
    """Write a log in which the canary's predictions are `noise` worse; returns the outcomes of its keys."""
    draw, times = np.random.default_rng(seed), [BEGIN + timedelta(minutes=number) for number in range(KEYS)]
    inside, chance = draw.random(KEYS) < canary, draw.uniform(0.1, 0.9, KEYS)
    predicted = np.clip(np.where(inside, chance + noise * draw.choice([-1, 1], KEYS), chance), 0.0, 1.0)
    keys = [f"k{number}" for number in range(KEYS)]
    table = pa.table(
        {
            "flight_id": keys,
            "decision_time": pa.array(times, pa.timestamp("us", "UTC")),
            "request_id": [f"r{number}" for number in range(KEYS)],
            "request_row": pa.array([0] * KEYS, pa.int64()),
            "requested_at": pa.array(times, pa.timestamp("us", "UTC")),
            "unit": [pseudonym("delays", key) for key in keys],
            "arm": np.where(inside, CANARY, CHAMPION).tolist(),
            "model": [live.models[int(arm)] for arm in inside],
            "model_version": pa.array(inside + 1, pa.int64()),
            "ledger": pa.array([live.traffic().records] * KEYS, pa.int64()),
            "latency_ms": draw.exponential(5.0, KEYS),
            "error": np.where(inside & (draw.random(KEYS) < failing), "PredictionError", None).tolist(),
            "probability": predicted,
        }
    )
    table = table.set_column(table.schema.get_field_index("error"), "error", table["error"].cast(pa.string()))
    folder = live.store.local_folder / "traffic" / "delays" / "2030-01-01T00"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "x.parquet")
    labels = pa.array((draw.random(KEYS) < chance).astype(np.int64))
    known = pa.array([time + timedelta(days=1) for time in times], pa.timestamp("us", "UTC"))
    return pa.table({"flight_id": keys, "label": labels, "known": known, "revenue": draw.gamma(2.0, 1.0, KEYS)})


def _judged(live: Live, outcomes: pa.Table, tmp_path: Path, rules: LiveRules = RULES, **more: Any) -> dict[str, Any]:
    pq.write_table(outcomes, tmp_path / "outcomes.parquet")
    reference = published_outcomes(live.store, str(tmp_path / "outcomes.parquet"))
    log = collect_arms(live.store, "delays")
    asked = {"model_name": "delays", "log": log, "outcomes": reference, "rules": rules, "label_time": "known"}
    result = evaluate_live(LiveRequest.model_validate(asked | more), live.store)
    body: dict[str, Any] = live.store.read_json(result.evaluation, FILE)
    assert body["verdict"] == result.verdict
    return body | {"reference": result.evaluation}


def test_a_planted_loss_sends_the_canary_back_and_an_equal_one_is_promoted(live: Live, tmp_path: Path) -> None:
    worse = _judged(live, _log(live, noise=0.35), tmp_path)
    assert worse["verdict"] == "back" and worse["reasons"][0].startswith("brier: worse by")
    assert worse["arms"][CANARY]["brier"] > worse["arms"][CHAMPION]["brier"] and "roc_auc" in worse["arms"][CANARY]
    equal = _judged(live, _log(live), tmp_path, LiveRules(metrics={"brier": 0.05}, values={"revenue": 0.5}))
    assert (equal["verdict"], equal["reasons"]) == ("promote", [])
    assert [item["name"] for item in equal["differences"]] == ["brier", "revenue", "failed rows"]
    assert equal["facts"]["of these with an outcome"] == KEYS and equal["shares"] == [0.3]
    few = _judged(live, _log(live).slice(0, 300), tmp_path)
    assert few["verdict"] == "go on" and "of 200 keys" in few["reasons"][0]
    html = rendered(live.store, equal["reference"]).read_text()
    assert "promote" in html and "revenue" in html
    manifest = live.store.manifest(equal["reference"])
    assert manifest.derived_from[CANARY] == live.models[1] and manifest.details["records"] == live.traffic().records


def test_guardrails_and_wrong_shares_send_it_back(live: Live, tmp_path: Path) -> None:
    rules = LiveRules(metrics={"brier": 1.0})
    failing = _judged(live, _log(live, failing=0.3), tmp_path, rules)
    assert failing["verdict"] == "back" and failing["reasons"][0].startswith("failed rows")
    slow = _judged(live, _log(live), tmp_path, LiveRules(metrics={"brier": 1.0}, max_latency_ms=5))
    assert slow["verdict"] == "back" and slow["reasons"][0].startswith("latency")
    lost = _judged(live, _log(live, canary=0.2), tmp_path, rules)
    assert lost["verdict"] == "back" and "shares" in lost["reasons"][0]
    late = _judged(live, _log(live), tmp_path, LiveRules(metrics={"brier": 0.0}, days=1))
    assert late["verdict"] == "back" and "not decided" in late["reasons"][0]


def test_a_loss_in_one_slice_sends_the_canary_back_and_the_others_do_not_wait_for_it(
    live: Live, tmp_path: Path
) -> None:
    outcomes = _log(live)
    group = np.where(np.arange(KEYS) % 4 == 0, "north", "south")
    rules = LiveRules(metrics={"brier": 0.05}, slices={"group": 2.0})
    sliced = _judged(live, outcomes.append_column("group", pa.array(group)), tmp_path, rules)
    assert sliced["verdict"] == "promote"
    assert {item["name"]: item["units"] for item in sliced["slices"]} == {
        "brier at group=north": KEYS // 4,
        "brier at group=south": KEYS - KEYS // 4,
    }
    assert all(item["high"] - item["low"] > 0.02 and item["allowed"] == 0.1 for item in sliced["slices"])
    assert "brier at group=north" in rendered(live.store, sliced["reference"]).read_text()
    # The canary is wrong about the north alone, which the mean over all rows hides.
    path = live.store.local_folder / "traffic" / "delays" / "2030-01-01T00" / "x.parquet"
    log = pq.read_table(path)
    wrong = np.asarray(log["arm"].to_numpy(zero_copy_only=False) == CANARY) & (group == "north")
    chance = np.where(wrong, 1 - outcomes["label"].to_numpy(), log["probability"].to_numpy())
    pq.write_table(log.set_column(log.schema.get_field_index("probability"), "probability", pa.array(chance)), path)
    rules = LiveRules(metrics={"brier": 0.5}, slices={"group": 1.0})
    bad = _judged(live, outcomes.append_column("group", pa.array(group)), tmp_path, rules)
    assert bad["verdict"] == "back" and [reason.split(":")[0] for reason in bad["reasons"]] == ["brier at group=north"]
    with pytest.raises(ConfigurationError, match=r"live\.slices"):
        _judged(live, outcomes, tmp_path, LiveRules(metrics={"brier": 0.5}, slices={"town": 1.0}))


@pytest.mark.parametrize(("chance", "verdict"), [(0.5, "promote"), (0.25, "back")])
def test_clicks_on_interleaved_rankings_decide(live: Live, tmp_path: Path, chance: float, verdict: str) -> None:
    outcomes = _log(live, canary=0.5)
    path = live.store.local_folder / "traffic" / "delays" / "2030-01-01T00" / "x.parquet"
    log, draw = pq.read_table(path), np.random.default_rng(2)
    # Lists of four rows, all interleaved, with one click each.
    lists, picked = np.arange(KEYS) // 4, np.arange(KEYS) % 2 == 1
    clicks = np.where(draw.random(KEYS // 4) < chance, 1, 0) + 2 * draw.integers(0, 2, KEYS // 4)
    changed = {
        "arm": pa.array(["interleaved"] * KEYS),
        "unit": pa.array([f"u{number}" for number in lists]),
        "model_version": pa.array(picked + 1, pa.int64()),
    }
    for name, column in changed.items():
        log = log.set_column(log.schema.get_field_index(name), name, column)
    pq.write_table(log, path)
    clicked = pa.array((np.arange(KEYS) % 4 == clicks[lists]).astype(np.int64))
    rules = LiveRules(preferences={"clicked": 0.15})
    # All lists are in the canary's share, which is not what the ledger says.
    live.promote(2, CANARY, 0.999)
    try:
        log = log.set_column(
            log.schema.get_field_index("ledger"), "ledger", pa.array([live.traffic().records] * KEYS, pa.int64())
        )
        pq.write_table(log, path)
        judged = _judged(live, outcomes.append_column("clicked", clicked), tmp_path, rules)
    finally:
        live.promote(2, CANARY, 0.3)
    (preference, _) = judged["differences"]
    assert preference["in_canary"] == KEYS // 4 and preference["champion"] + preference["canary"] == KEYS // 4
    assert preference["low"] < 1 - 2 * chance < preference["high"]
    assert judged["verdict"] == verdict


@pytest.mark.parametrize("lacking", ["column", "values"])
def test_a_log_without_any_prediction_has_a_verdict(live: Live, tmp_path: Path, lacking: str) -> None:
    outcomes = _log(live)
    path = live.store.local_folder / "traffic" / "delays" / "2030-01-01T00" / "x.parquet"
    log = pq.read_table(path)
    at, none = log.schema.get_field_index("probability"), pa.nulls(KEYS, pa.float64())
    pq.write_table(log.remove_column(at) if lacking == "column" else log.set_column(at, "probability", none), path)
    judged = _judged(live, outcomes, tmp_path)
    assert judged["verdict"] == "go on" and "0 of 200 keys" in judged["reasons"][0]


def test_outcomes_that_are_no_numbers_or_no_labels_are_refused_and_other_keys_are_named(
    live: Live, tmp_path: Path
) -> None:
    outcomes = _log(live)
    texts = pa.array(["much"] * KEYS)
    with pytest.raises(ConfigurationError, match=r"live\.values: note"):
        _judged(live, outcomes.append_column("note", texts), tmp_path, LiveRules(values={"note": 0.1}))
    labels = outcomes.schema.get_field_index("label")
    for wrong in (pa.array([3, 4] * (KEYS // 2)), pa.array(["yes", "no"] * (KEYS // 2))):
        with pytest.raises(ConfigurationError, match="positive"):
            _judged(live, outcomes.set_column(labels, "label", wrong), tmp_path)
    others = outcomes.set_column(0, "flight_id", pa.array([f"other-{number}" for number in range(KEYS)]))
    assert "flight_id" in _judged(live, others, tmp_path)["reasons"][-1]
    with pytest.raises(ValueError, match="roc_auc"):
        LiveRules(metrics={"roc_auc": 0.1})


def test_rows_of_another_canary_or_champion_are_not_compared(live: Live) -> None:
    _log(live)
    assert live.store.manifest(collect_arms(live.store, "delays")).rows == KEYS
    live.promote(3, CANARY, 0.3)
    try:
        with pytest.raises(ConfigurationError, match="delays:3 side by side"):
            collect_arms(live.store, "delays")
    finally:
        live.promote(2, CANARY, 0.3)


def test_the_first_outcome_of_a_row_counts_and_a_late_one_does_not() -> None:
    at = pa.array([BEGIN, BEGIN], pa.timestamp("us", "UTC"))
    log = pa.table({"request_id": ["a", "b"], "decision_time": at})
    hours = pa.array([BEGIN + timedelta(hours=hour) for hour in (9, 2, 50, 1)], pa.timestamp("us", "UTC"))
    outcomes = pa.table({"request_id": ["a", "a", "b", "c"], "label": [1, 0, 1, 1], "known": hours})
    joined, facts = with_outcomes(log, outcomes, ["request_id"], "known", 24 * 3600)
    assert joined["label"].to_pylist() == [0, None]
    assert [*facts.values()] == [2, 1, 1, 1, 1, 0]
    assert with_outcomes(log, outcomes, ["request_id"], "", None)[0]["label"].to_pylist() == [1, 1]
    with pytest.raises(ConfigurationError, match="flight"):
        with_outcomes(log, outcomes, ["flight"], "", None)


def test_labels_that_become_known_sooner_do_not_decide_for_the_newest_rows() -> None:
    times = pa.array([BEGIN + timedelta(hours=hour) for hour in range(48)], pa.timestamp("us", "UTC"))
    log = pa.table({"request_id": [str(hour) for hour in range(48)], "decision_time": times})
    # A label 1 is known at once, and 0 when the horizon of a day is over; someone looks after two days.
    known = [
        (hour, label, BEGIN + timedelta(hours=hour + 24 * (1 - label)))
        for hour, label in ((hour, hour % 2) for hour in range(48))
    ]
    seen = [(str(hour), label, at) for hour, label, at in known if at <= BEGIN + timedelta(hours=47)]
    ids, labels, at = zip(*seen, strict=True)
    outcomes = pa.table({"request_id": ids, "label": labels, "known": pa.array(at, pa.timestamp("us", "UTC"))})
    counted = {
        horizon: [label for label in joined["label"].to_pylist() if label is not None]
        for horizon in (None, 24 * 3600.0)
        for joined, _ in (with_outcomes(log, outcomes, ["request_id"], "known", horizon),)
    }
    assert counted[None].count(1) == 24 and counted[24 * 3600.0].count(1) == counted[24 * 3600.0].count(0) == 12
    facts = with_outcomes(log, outcomes, ["request_id"], "known", 24 * 3600)[1]
    assert facts["outcomes within a horizon that is not over"] == 12


def test_times_are_in_utc_whatever_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    log = pa.table({"flight_id": ["a"], "decision_time": pa.array([BEGIN], pa.timestamp("us", "UTC"))})
    known = BEGIN.replace(tzinfo=None) + timedelta(hours=1)
    for times in ([known], [f"{known.isoformat()}Z"]):
        outcomes = pa.table({"flight_id": ["a"], "label": [1], "known": times})
        facts = with_outcomes(log, outcomes, ["flight_id"], "known", 3600)[1]
        assert [*facts.values()][:3] == [1, 1, 0]


@pytest.mark.parametrize(
    ("column", "values", "label_time"),
    [
        ("known", [5], "known"),
        ("known", ["noon"], "known"),
        ("known", ["9999-12-31T23:59:59Z"], "known"),
        ("none", [5], "known"),
        ("arm", ["canary"], ""),
    ],
)
def test_outcomes_without_times_or_with_columns_of_the_log_are_refused(
    column: str, values: list[Any], label_time: str
) -> None:
    log = pa.table({"id": ["a"], "arm": ["champion"], "decision_time": pa.array([BEGIN], pa.timestamp("us", "UTC"))})
    with pytest.raises(ConfigurationError, match=label_time or column):
        with_outcomes(log, pa.table({"id": ["a"], column: values}), ["id"], label_time, None)
    with pytest.raises(ConfigurationError, match="horizon"):
        with_outcomes(log, pa.table({"id": ["a"]}), ["id"], "", 60.0)


@pytest.mark.parametrize(("keys", "rows", "noise"), [(600, 4, 0.3), (100, 60, 9.0)])
def test_rows_of_one_key_count_as_one_and_equals_ring_rarely(keys: int, rows: int, noise: float) -> None:
    # Rows of a key come over the whole time: where they are alike, and where each look sees other means of all keys.
    draw, rings = np.random.default_rng(3), 0
    for _ in range(200):
        inside, level = draw.random(keys) < 0.3, draw.normal(0.0, 1.0, keys)
        unit = np.repeat(np.arange(keys), rows)
        values = level[unit] + draw.normal(0.0, noise, keys * rows)
        order = draw.permutation(keys * rows)
        rang = False
        for number in range(200, keys * rows + 1, 200):
            seen = order[:number]
            arms = Arms(inside[unit[seen]], np.full(number, 0.3), unit[seen])
            difference = arms.difference("x", values[seen], 1, 0.0, 0.05, 600)
            rang |= difference.low > 0 or difference.high < 0
        rings += rang
    assert rings <= 10


def test_the_component_records_the_verdict_and_takes_a_worse_canary_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    live = make_live(ArtifactStore.open(tmp_path / "store"))
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.3)
    asked = {"store": live.store.address, "model_name": "delays", "label_time": "known"}
    asked |= {"policy": {"live": {"metrics": {"brier": 0.02}}}, "outcomes": str(tmp_path / "outcomes.parquet")}
    assert "no live verdict" in call(roll_out, tmp_path, **asked).reasons[0], "no row is logged yet"
    pq.write_table(_log(live, noise=0.35), tmp_path / "outcomes.parquet")
    with pytest.raises(ConfigurationError, match="outcomes"):
        call(roll_out, tmp_path, **asked | {"outcomes": ""})
    made = call(roll_out, tmp_path, **asked)
    assert (made.decision, made.number, made.share) == ("taken back", 2, 0.0) and "brier" in made.reasons[1]
    records = Ledger(live.store, "delays").records()
    assert [record.kind for record in records[-2:]] == ["compared", "withdrawn"]
    assert (
        records[-2].live and live.store.address_of(records[-2].live.evaluation) == made.evaluation.metadata["reference"]
    )
    assert "brier" in Path(made.report.path).read_text()
    again = call(roll_out, tmp_path, **asked)
    assert (again.decision, again.evaluation.metadata["reference"]) == ("nothing", "none")
    with pytest.raises(ConfigurationError, match="section `live`"):
        call(roll_out, tmp_path, **asked | {"policy": {}})
