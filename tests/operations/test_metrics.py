"""The table of operations: each end of a run adds its rows once. What was not measured is null, never 0."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gatehouse.api import pipelines
from gatehouse.cli.pipelines import status
from gatehouse.operations.ending_stage import outcome_of, record_end, run_outcome
from gatehouse.operations.metrics import (
    NOT_MEASURED,
    Row,
    Waited,
    exposition,
    gate_outcomes,
    page,
    read,
    totals,
    update,
)
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import Prices
from tests.registry.gate import NAME, make_gate

PRICES = Prices(per_hour={"default": 3.6, "gpu": 36.0})
AT = 1_400_000_000.0


def ran(store: ArtifactStore, run: str, at: float, *tasks: tuple[str, str, dict[str, Any]]) -> None:
    """A run of training whose tasks took ten seconds each and ended so, one after the other."""
    for name, ended, body in tasks:
        stage, attempt = name.split(".")
        key = f"runs/{run}/{stage}.{attempt}"
        store.record(f"{key}.started.json", {"at": at, "seconds": 0.0, "request_digest": stage})
        at += 10
        if ended:
            store.record(f"{key}.{ended}.json", {"at": at, "seconds": 10.0, "request_digest": stage} | body)
    record_end(store, run, run_outcome(store, run), "test", project="flights", pipeline="training")


def good(store: ArtifactStore, run: str = "good", at: float = AT) -> None:
    rows = {"rows": {"flights": 90, "weather": 10}, "rejected_rows": {"flights": 2}}
    ran(
        store,
        run,
        at,
        ("snapshot.1", "finished", {"result": rows | {"as_of": "2014-05-13T16:53:20Z"}}),
        ("split.1", "hit", {"result": {}}),
        ("train.1", "failed", {"error": "StoreError", "message": "away"}),
        ("train.2", "finished", {"result": {}, "machine": "gpu", "gpu_percent": 87.5}),
        ("register.1", "finished", {"result": {"decision": "approved", "verdict": "pass"}}),
    )


def by_stage(store: ArtifactStore) -> dict[str, Row]:
    return {row.stage: row for row in read(store)}


def test_a_run_adds_a_row_for_each_task_and_one_for_itself(store: ArtifactStore) -> None:
    good(store)
    assert update(store, PRICES, {"good": Waited(7.0, {"train": AT + 15})}) == 1
    rows = by_stage(store)
    assert list(rows) == ["", "snapshot", "split", "train", "register"]
    taken, trained, whole = rows["snapshot"], rows["train"], rows[""]
    assert (taken.rows_in, taken.rows_rejected, taken.data_age_hours) == (100, 2, 0.0)
    assert (taken.began, taken.seconds, taken.cost) == (AT, 10.0, pytest.approx(0.01))
    assert (trained.state, trained.attempts, trained.cost) == ("finished", 2, pytest.approx(0.1))
    assert (whole.state, whole.seconds, whole.queue_seconds) == ("succeeded", 50.0, 7.0)
    assert whole.cost == pytest.approx(0.13)
    assert whole.data_to_model_seconds == 50.0
    assert (rows["split"].rows_in, rows["split"].queue_seconds) == (None, None)
    assert trained.queue_seconds == 5.0


def test_runs_are_added_once_and_only_when_they_ended(store: ArtifactStore) -> None:
    good(store)
    store.record("runs/open/snapshot.1.started.json", {"at": AT, "seconds": 0.0})
    assert (update(store), update(store)) == (1, 0)
    good(store, "later", AT + 86_400)
    assert update(store) == 1
    assert len(read(store)) == 10 and len(read(store, AT + 1000)) == 5
    assert len(list(store.objects.list("operations/stages"))) == 2


def test_who_loses_the_race_for_a_file_adds_what_is_missing(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    good(store)
    write = LocalObjects.put_bytes
    lost: list[str] = []

    def lose_once(objects: LocalObjects, key: str, data: bytes) -> bool:
        if key.startswith("operations/") and not lost:
            lost.append(key)
            update(store)
            good(store, "later", AT + 100)
        return write(objects, key, data)

    monkeypatch.setattr(LocalObjects, "put_bytes", lose_once)
    assert update(store) == 1
    assert sorted(row.run for row in read(store) if not row.stage) == ["good", "later"]


def test_a_killed_stage_has_no_cost_and_neither_has_its_run(store: ArtifactStore) -> None:
    ran(store, "dead", AT, ("snapshot.1", "finished", {"result": {}}), ("tune.1", "", {}))
    update(store, PRICES)
    rows = by_stage(store)
    assert (rows["tune"].state, rows["tune"].cost) == ("killed", None)
    assert (rows[""].cost, rows[""].error) == (None, "KilledError")


def test_totals_count_what_was_measured(store: ArtifactStore) -> None:
    good(store)
    ran(store, "bad", AT + 100, ("snapshot.1", "failed", {"error": "SourceError", "message": "gone"}))
    update(store)
    total = {total.stage: total for total in totals(read(store))}
    runs, snapshot = total[""], total["snapshot"]
    assert (runs.runs, runs.good, runs.last_state, runs.last_error) == (2, 1, "failed", "SourceError")
    assert (total["train"].retries, total["split"].memo, total["split"].median_seconds) == (1, 1, None)
    assert (snapshot.rows_in, snapshot.success, snapshot.cost) == (100, 0.5, None)


@pytest.mark.parametrize(("kfp_state", "state", "success"), [("CANCELED", "stopped", 0.5), ("PERHAPS", "unknown", 1.0)])
def test_a_run_that_ended_before_its_first_stage_is_counted_and_an_unknown_end_is_no_failure(
    store: ArtifactStore, kfp_state: str, state: str, success: float
) -> None:
    good(store)
    record_end(store, "early", outcome_of([], kfp_state), "test", project="flights", pipeline="training")
    assert update(store) == 2
    (early,) = read(store, since=time.time() - 3600)
    assert (early.run, early.state) == ("early", state)
    (whole,) = [total for total in totals(read(store)) if not total.stage]
    assert (whole.runs, whole.good, whole.success) == (2, 1, success)


def test_prometheus_reads_it_and_finds_no_sample_of_what_was_not_measured(store: ArtifactStore) -> None:
    good(store)
    update(store)
    families = {family.name: family for family in text_string_to_metric_families(exposition(read(store), {}, {}))}
    retries = families["gatehouse_retries"]
    assert {sample.labels["stage"]: sample.value for sample in retries.samples}["train"] == 1.0
    assert retries.type == "counter"
    (age,) = families["gatehouse_data_age_hours"].samples
    assert age.labels == {"project": "flights", "pipeline": "training", "stage": "snapshot"}
    assert "gatehouse_cost" not in families
    (busy,) = families["gatehouse_gpu_percent_median"].samples
    assert (busy.labels["stage"], busy.value) == ("train", 87.5)


def test_champions_have_an_age_and_changes_are_counted(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    for seed in (1, 2):
        gate.run(gate.model(seed))
    promote(PromoteRequest(model_name=NAME, action="rollback", version=2, reason="worse"), store)
    seen = pipelines.status(store)
    assert seen.champion_changes == {NAME: {"promoted": 2, "rolled_back": 1}}
    assert 0 < seen.champion_age_seconds[NAME] < 300
    text = exposition(seen.rows, seen.champion_age_seconds, seen.champion_changes)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    changes = {sample.labels["change"]: sample.value for sample in families["gatehouse_champion_changes"].samples}
    assert changes == {"promoted": 2, "rolled_back": 1} and families["gatehouse_champion_age_seconds"].samples
    assert pipelines.status(store, days=0.0).champion_changes == {NAME: {"promoted": 0, "rolled_back": 0}}


def test_the_dashboard_says_what_was_not_measured(store: ArtifactStore) -> None:
    good(store)
    ran(store, "bad", AT + 100, ("snapshot.1", "failed", {"error": "SourceError", "message": "gone"}))
    update(store)
    shown = page(read(store), {"delay": 3600.0}, {"delay": {"promoted": 3, "rolled_back": 1}}, "USD", 30)
    assert "50.0 %" in shown and "87.5 %" in shown and "SourceError" in shown and "age of the champion delay" in shown
    assert "3 and 1" in shown
    assert f"{NOT_MEASURED.capitalize()}: waited, cost (USD)." in shown
    assert "No run has ended in this time." in page([], {}, {}, "USD", 30)
    assert shown.count('class="bar bad"') == 1, "the bar of the run that failed"
    rows = [Row(f"{n}", "p", f"pipeline-{n}", "", "succeeded", AT, 1.0, 1) for n in range(5)]
    legends = page(rows, {}, {}, "USD", 30).split('<div class="legend">')[1:]
    series = [re.findall(r'class="series (s.)"', legend.partition("</div>")[0]) for legend in legends]
    assert series == [["s0", "s1", "s2", "s3"], ["s0"]], "no two pipelines of a chart look alike"


def test_status_shows_and_prints_it(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good(store)
    everything = {"days": 1e5, "store": store.address}
    status(**everything, html=tmp_path / "page.html")
    assert "flights-training" in (tmp_path / "page.html").read_text()
    capsys.readouterr()
    status(**everything)
    shown = capsys.readouterr().out
    assert "flights-training" in shown and "87.5 %" in shown and "not measured" in shown and "  approved  1\n" in shown
    status(**everything, as_json=True)
    assert '"gate": {\n  "approved": 1' in capsys.readouterr().out
    status(**everything, metrics=True)
    assert capsys.readouterr().out.startswith("# HELP gatehouse_runs_total")


def test_a_run_that_was_tried_again_counts_with_its_last_end(store: ArtifactStore) -> None:
    ran(store, "run", AT, ("train.1", "failed", {"error": "StoreError", "message": "away"}), ("report_end.1", "", {}))
    assert update(store) == 1
    ran(store, "run", AT + 100, ("train.2", "finished", {"result": {}}))
    assert (update(store), update(store)) == (1, 0)
    assert [(row.stage, row.state, row.end) for row in read(store)] == [("", "succeeded", 2), ("train", "finished", 2)]


def test_a_decision_that_later_runs_repeat_counts_once(store: ArtifactStore) -> None:
    for at, run in enumerate(("first", "again")):
        judged = ("evaluate.1", "hit", {"result": {"evaluation": "evaluations/sha256-1"}})
        decided = ("register.1", "finished", {"result": {"decision": "approved"}})
        ran(store, run, AT + 100 * at, judged, decided)
    update(store)
    assert gate_outcomes(read(store)) == {"approved": 1}
