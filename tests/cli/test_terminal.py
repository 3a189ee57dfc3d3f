"""What a person reads at the end of a run."""

from pathlib import Path

import pytest

from gatehouse.cli.terminal import Screen, figure, summary
from gatehouse.kfp.local_run import LocalRun, PlannedTask
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.kfp_task import URI
from tests.store.memory_objects import Memory, MemoryObjects


def _finished(tmp_path: Path) -> LocalRun:
    guarded = {"seconds": 1.0, "result": {"warnings": ["Table flights: 9 columns are new."]}}
    noted = {"message": "MLflow could not be written", "seconds": 0.1, "at": 1.0}
    events = [Event("snapshot", 1, "finished", guarded), Event("train", 1, "warned", noted)]
    plan = [PlannedTask("snapshot", "snapshot", "Snapshot the source")]
    return LocalRun("20130115-081500-3fa2", tmp_path / "run.log", plan=plan, events=events, exit_code=0)


def test_warnings_of_guards_and_of_stages_are_shown(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    Screen(store).update(run)
    assert "Snapshot the source" in (line := capsys.readouterr().out) and line.endswith("1 warning\n")
    Screen(store).summarise(run)
    said = capsys.readouterr().out
    assert "warning in snapshot: Table flights: 9 columns are new." in said
    assert "warning in train: MLflow could not be written" in said
    assert "MLflow has nothing" not in said


def test_each_trial_that_ends_has_a_line_once(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, screen = _finished(tmp_path), Screen(store)
    lines = {10: "trial 10: log_loss 0.5, best so far", 2: "trial 2: log_loss 0.7; best so far is trial 1 with 0.6"}
    run.events = [Event("tune:trials", 1, "trial", {"at": at, "message": line}) for at, line in lines.items()]
    screen.update(run)
    run.events.append(Event("tune:trials", 1, "trial", {"at": 11, "message": "trial 11: log_loss 0.4"}))
    screen.update(run)
    assert capsys.readouterr().out.splitlines() == [f"  {lines[2]}", f"  {lines[10]}", "  trial 11: log_loss 0.4"]


def test_a_warning_is_told_when_it_comes_also_before_there_is_a_plan(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, screen = LocalRun("r1", tmp_path), Screen(store)
    run.events = [Event("tune:studies", 1, "warned", {"at": 1, "message": "no server"})]
    screen.update(run)
    screen.update(run)
    assert capsys.readouterr().out == "  warning: no server\n"


def test_that_nobody_was_told_of_a_failure_is_shown(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    run.exit_code, run.failure = 1, {"error": "ContractBreachError", "message": "breaks", "stage": "require_contract"}
    told = {"message": "Nobody was told that training failed: the webhook answered 500", "seconds": 0.1}
    run.events.append(Event("alert:webhook", 1, "warned", told))
    Screen(store).summarise(run)
    assert "warning in alert:webhook: Nobody was told that training failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [({}, "the rows overlap\nMove them"), ({"unexpected": True}, "OddError: the rows overlap\nMove them")],
)
def test_a_failure_is_told_in_its_words_and_by_a_class_only_where_nobody_expected_it(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, bool], told: str
) -> None:
    run = _finished(tmp_path)
    run.plan, run.exit_code = [PlannedTask("split", "split", "Split")], 1
    run.failure = {"error": "OddError", "message": "the rows overlap\nMove them", "stage": "split", **more}
    run.events = [Event("split", 1, "failed", {"seconds": 1.0, **run.failure})]
    screen = Screen(store)
    screen.update(run)
    assert capsys.readouterr().out.rstrip().endswith(told.partition("\n")[0])
    screen.summarise(run)
    assert f"Split failed: {told}\n" in capsys.readouterr().out
    run.failure = {"error": "OddError", "message": "no such key"}
    screen.summarise(run)
    assert "\nerror: no such key\n" in capsys.readouterr().out


def test_a_digest_in_a_failure_leaves_room_for_its_words(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    run.plan = [PlannedTask("split", "split", "Split")]
    told = {"error": "OddError", "message": f"training-sets/delays/sha256-{'a1' * 32} is not divided, for a reason"}
    run.events = [Event("split", 1, "failed", {"seconds": 1.0, **told})]
    Screen(store).update(run)
    assert "training-sets/delays/sha256-a1a1a1a1a1a1 is not divided, for a reason\n" in capsys.readouterr().out


def test_alarms_that_ask_for_no_new_model_are_shown(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    result = {"decision": "keep", "reasons": [], "verdict": "fail", "alarms": ["quality, rain: 50.0% are missing"]}
    run.events = [Event("snapshot", 1, "finished", {"seconds": 1.0, "result": result})]
    Screen(store).update(run)
    assert "keep; 1 alarm\n" in capsys.readouterr().out
    Screen(store).summarise(run)
    assert "alarm in snapshot: quality, rain: 50.0% are missing" in capsys.readouterr().out


def test_rejected_rows_are_counted_beside_those_that_were_kept(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    result = {"rows": {"orders": 59_937, "places": 12}, "rejected_rows": {"orders": 63}}
    run.events = [Event("snapshot", 1, "finished", {"seconds": 1.0, "result": result})]
    Screen(store).update(run)
    assert "orders 59,937 rows, 63 rejected; places 12 rows" in capsys.readouterr().out
    result["rows"] |= {f"table {number}": 1 for number in range(8)}
    Screen(store).update(run)
    assert "10 tables, 59,957 rows, 63 rejected" in capsys.readouterr().out


def test_rows_that_are_set_aside_are_told_with_their_reasons(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    result = {"rows": 2_037, "set_aside": {"no label": 963}}
    run.events = [Event("snapshot", 1, "finished", {"seconds": 1.0, "result": result})]
    Screen(store).update(run)
    assert "2,037 rows; set aside: 963 no label" in capsys.readouterr().out


def test_the_metric_that_models_are_compared_by_comes_first_and_digests_are_cut(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    run.plan, run.objective = [PlannedTask("evaluate", "evaluate", "Evaluate")], "log_loss"
    result = {
        "evaluation": f"evaluations/delays/sha256-{'a1' * 32}",
        "verdict": "pass",
        "metrics": {"average_precision": 0.5, "brier": 0.25, "log_loss": 0.125},
    }
    run.events = [Event("evaluate", 1, "finished", {"seconds": 1.0, "result": result})]
    screen = Screen(store)
    screen.update(run)
    assert "pass: log_loss 0.1250  average_precision 0.5000\n" in capsys.readouterr().out
    assert dict(summary(run)) == {
        "evaluation": "evaluations/delays/sha256-a1a1a1a1a1a1",
        "metrics": "log_loss 0.1250  average_precision 0.5000  brier 0.2500",
    }


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ("approved", "approved, version 2 as staging, champion"),
        ("refused", "refused; an earlier run registered the same model, version 2 as staging, champion"),
    ],
)
def test_a_model_that_an_earlier_run_registered_is_told_as_such_where_the_gate_says_no(
    tmp_path: Path, decision: str, told: str
) -> None:
    run = _finished(tmp_path)
    run.plan = [PlannedTask("register", "register", "Register")]
    result = {"decision": decision, "version": 2, "aliases": ["staging", "champion"]}
    run.events = [Event("register", 1, "finished", {"seconds": 1.0, "result": result})]
    assert dict(summary(run))["decision"] == told


def test_of_two_stages_that_name_one_thing_the_later_is_shown(tmp_path: Path) -> None:
    run = _finished(tmp_path)
    stages = {"previous_features": "a1", "compute_features": "b2"}
    run.plan = [PlannedTask(stage, stage, stage) for stage in stages]
    run.events = [
        Event(stage, 1, "finished", {"result": {"feature_tables": f"feature-tables/shop/sha256-{digits * 32}"}})
        for stage, digits in stages.items()
    ]
    assert dict(summary(run)) == {"feature tables": "feature-tables/shop/sha256-b2b2b2b2b2b2"}


def test_many_metrics_stand_under_each_other(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _finished(tmp_path)
    names = ("accuracy", "average_precision", "brier", "f1", "log_loss", "roc_auc")
    result = {"verdict": "pass", "metrics": dict.fromkeys(names, 0.5), "baseline_metrics": {"brier": 0.6}}
    run.events = [Event("snapshot", 1, "finished", {"seconds": 1.0, "result": result})]
    Screen(store).summarise(run)
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "metrics          accuracy 0.5000  average_precision 0.5000  brier 0.5000  f1 0.5000",
        "                 log_loss 0.5000  roc_auc 0.5000",
        "baseline metrics brier 0.6000",
    ]


def test_a_run_that_nothing_tracks_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URI, raising=False)
    screen = Screen(ArtifactStore(MemoryObjects(Memory())))
    screen.summarise(_finished(tmp_path))
    assert f"MLflow has nothing of this run: the store is remote, and {URI} is not set." in capsys.readouterr().out


def test_a_stale_view_is_told_with_its_age_and_its_limit(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "sales: its newest event is 885 days old, expected 3 days at most"
    result = {"hours": {"sales": 21261.9}, "stale": ["sales"], "verdict": "fail", "reasons": [reason]}
    events = [Event("freshness", 1, "finished", {"seconds": 1.0, "result": result})]
    plan = [PlannedTask("freshness", "freshness", "Measure freshness")]
    run = LocalRun("20130115-081500-3fa2", tmp_path / "run.log", plan=plan, events=events)
    Screen(store).update(run)
    assert f"fail: {reason}" in capsys.readouterr().out


def test_what_was_judged_has_the_sign_of_its_verdict_and_a_refusal_says_what_one_can_do(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = ["baseline brier: expected below the baseline's 0.2, found 0.3", "baseline auc: expected more, found less"]
    results = {
        "check_leakage": {"verdict": "fail", "reasons": ["distance alone tells the label " * 10]},
        "evaluate": {"verdict": "refused", "reasons": broken},
        "register": {"decision": "refused", "verdict": "refused", "reasons": broken},
    }
    events = [Event(name, 1, "finished", {"seconds": 1.0, "result": result}) for name, result in results.items()]
    plan = [PlannedTask(name, name, name) for name in results]
    run = LocalRun("20130115-081500-3fa2", tmp_path / "run.log", plan=plan, events=events, exit_code=0)
    Screen(store).update(run)
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines] == ["✗", "!", "!"]
    assert len(lines[0]) < 190 and lines[0].endswith(" …"), "the reasons in full stand below"
    *told, last = summary(run)
    assert told[:2] == [("check leakage", "fail"), ("", f"- {'distance alone tells the label ' * 10}")]
    assert told[2:] == [("decision", "refused"), ("", f"- {broken[0]}")]
    assert last[1].startswith(f"- {broken[1]}. Look for better features")
    run = LocalRun("20130115-081500-3fa2", tmp_path / "run.log", plan=plan[:2], events=events[:2], exit_code=0)
    assert summary(run) == [*told[:2], ("evaluate", "refused"), told[3], last], "also where it ends with --until"


def test_a_metric_that_is_too_large_for_decimals_is_a_power_of_ten() -> None:
    assert [figure(value) for value in (0.25, -3.0, 6.697e14)] == ["0.2500", "-3.0000", "6.697e+14"]
