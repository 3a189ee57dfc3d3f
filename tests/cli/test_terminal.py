"""What the terminal shows of a run: a line for each stage, and the summary at its end."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.cli.terminal import Screen, figure, summary
from gatehouse.kfp.local_run import LocalRun, PlannedTask
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import URI
from tests.store.memory_objects import Memory, MemoryObjects

BROKEN = ["baseline brier: expected below the baseline's 0.2, found 0.3", "baseline auc: expected more, found less"]


def _run(folder: Path, results: dict[str, dict[str, Any]], **more: Any) -> LocalRun:
    """A run whose stages finished with these results."""
    events = [Event(stage, 1, "finished", {"seconds": 1.0, "result": result}) for stage, result in results.items()]
    plan = [PlannedTask(stage, stage, stage.replace("_", " ").capitalize()) for stage in results]
    return LocalRun("20130115-081500-3fa2", folder / "run.log", plan=plan, events=events, **({"exit_code": 0} | more))


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ({"rows": 1, "warnings": ["9 columns are new"]}, "✓ 1 row, 1 warning"),
        ({"decision": "keep", "verdict": "fail", "alarms": ["rain: 50 % missing"]}, "✗ keep; 1 alarm"),
        ({"rows": {"a": 59_937, "b": 12}, "rejected_rows": {"a": 63}}, "✓ a 59,937 (63 rejected) b 12"),
        ({"rows": dict.fromkeys("abcdef", 10), "rejected_rows": {"a": 63}}, "✓ 6 tables, 60 rows, 63 rejected"),
        ({"rows": 2_037, "set_aside": {"no label": 963}}, "✓ 2,037 rows; set aside: 963 no label"),
        ({"stale": ["sales"], "verdict": "fail", "reasons": ["sales: 885 days old"]}, "✗ fail: sales: 885 days old"),
        ({"verdict": "refused", "reasons": BROKEN[:1]}, f"! refused: {BROKEN[0]}"),
        (
            {"verdict": "pass", "metrics": {"auc": 0.5, "brier": 0.25, "log_loss": 0.125}},
            "✓ pass: log_loss 0.1250  auc 0.5000",
        ),
    ],
)
def test_a_stage_has_one_line_with_the_sign_of_its_verdict_and_its_gist(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], result: dict[str, Any], line: str
) -> None:
    run, screen = _run(tmp_path, {"stage": result}, objective="log_loss"), Screen(store)
    screen.update(run)
    screen.update(run)
    mark, _, gist = line.partition(" ")
    (shown,) = capsys.readouterr().out.splitlines()
    assert shown.startswith(f"{mark} Stage ") and shown.endswith(f"1.0 s  {gist}")


def test_each_trial_that_ends_and_each_warning_has_a_line_once(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, screen = LocalRun("r1", tmp_path), Screen(store)
    run.events = [Event("tune:trials", 1, "trial", {"at": at, "message": f"trial {at}"}) for at in (10, 2)]
    run.events.append(Event("tune:studies", 1, "warned", {"at": 3, "message": "no server"}))
    screen.update(run)
    run.events.append(Event("tune:trials", 1, "trial", {"at": 11, "message": "trial 11"}))
    screen.update(run)
    lines = ["  trial 2", "  warning: no server", "  trial 10", "  trial 11"]
    assert capsys.readouterr().out.splitlines() == lines


def test_warnings_and_alarms_of_stages_and_of_the_record_stand_in_the_summary(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, {"snapshot": {"warnings": ["9 columns are new"], "alarms": ["rain: 50 % missing"]}})
    run.events.append(Event("alert:webhook", 1, "warned", {"message": "Nobody was told", "at": 1.0}))
    Screen(store).summarise(run)
    run.exit_code, run.failure = 1, {"error": "ContractBreachError", "message": "breaks", "stage": "snapshot"}
    Screen(store).summarise(run)
    output = capsys.readouterr().out
    assert output.count("warning in snapshot: 9 columns are new") == 2
    assert output.count("warning in alert:webhook: Nobody was told") == 2
    assert output.count("alarm in snapshot: rain: 50 % missing") == 1 and "MLflow has nothing" not in output


@pytest.mark.parametrize(
    ("more", "cause"),
    [({}, "the rows overlap\nMove them"), ({"unexpected": True}, "OddError: the rows overlap\nMove them")],
)
def test_a_failure_has_its_message_and_its_class_only_if_it_was_unexpected(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, bool], cause: str
) -> None:
    run = _run(tmp_path, {"split": {}}, exit_code=1)
    run.failure = {"error": "OddError", "message": "the rows overlap\nMove them", "stage": "split", **more}
    run.events = [Event("split", 1, "failed", {"seconds": 1.0, **run.failure})]
    screen = Screen(store)
    screen.update(run)
    assert capsys.readouterr().out.rstrip().endswith(cause.partition("\n")[0])
    screen.summarise(run)
    assert f"Split failed: {cause}\n" in capsys.readouterr().out


def test_a_digest_in_a_failure_is_cut(store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path, {"split": {}})
    error = {"error": "OddError", "message": f"training-sets/delays/sha256-{'a1' * 32} is not divided, for a reason"}
    run.events = [Event("split", 1, "failed", {"seconds": 1.0, **error})]
    Screen(store).update(run)
    assert "training-sets/delays/sha256-a1a1a1a1a1a1 is not divided, for a reason\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        ("approved", "approved, version 2 as staging, champion"),
        ("refused", "refused; an earlier run registered the same model, version 2 as staging, champion"),
    ],
)
def test_a_version_of_an_earlier_run_is_named_as_such(tmp_path: Path, decision: str, line: str) -> None:
    result = {"decision": decision, "version": 2, "aliases": ["staging", "champion"]}
    assert dict(summary(_run(tmp_path, {"register": result})))["decision"] == line


def test_the_later_of_two_results_with_one_name_and_short_digests_are_shown(tmp_path: Path) -> None:
    results = {
        stage: {"feature_tables": f"feature-tables/shop/sha256-{digits * 32}"}
        for stage, digits in {"previous_features": "a1", "compute_features": "b2"}.items()
    }
    assert summary(_run(tmp_path, results)) == [("feature tables", "feature-tables/shop/sha256-b2b2b2b2b2b2")]


def test_metrics_stand_in_lines_of_four(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("accuracy", "average_precision", "brier", "f1", "log_loss", "roc_auc")
    result = {"verdict": "pass", "metrics": dict.fromkeys(names, 0.5), "baseline_metrics": {"brier": 0.6}}
    Screen(store).summarise(_run(tmp_path, {"evaluate": result}))
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "metrics          accuracy 0.5000  average_precision 0.5000  brier 0.5000  f1 0.5000",
        "                 log_loss 0.5000  roc_auc 0.5000",
        "baseline metrics brier 0.6000",
    ]


def test_a_remote_run_that_nothing_tracks_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URI, raising=False)
    Screen(ArtifactStore(MemoryObjects(Memory()))).summarise(_run(tmp_path, {"snapshot": {}}))
    assert f"{URI} is not set" in capsys.readouterr().out


def test_the_reasons_of_a_refusal_stand_once_and_in_full(tmp_path: Path) -> None:
    leak = "distance alone tells the label " * 10
    results = {
        "check_leakage": {"verdict": "fail", "reasons": [leak]},
        "evaluate": {"verdict": "refused", "reasons": BROKEN},
        "register": {"decision": "refused", "verdict": "refused", "reasons": BROKEN},
    }
    *lines, last = summary(_run(tmp_path, results))
    refusal = [("check leakage", "fail"), ("", f"- {leak}"), ("decision", "refused"), ("", f"- {BROKEN[0]}")]
    assert lines == refusal and last[1].startswith(f"- {BROKEN[1]}. It was not shown to be better")
    del results["register"]  # As where the run ends with --until.
    assert summary(_run(tmp_path, results)) == [*refusal[:2], ("evaluate", "refused"), refusal[3], last]


def test_a_metric_that_is_too_large_for_decimals_is_a_power_of_ten() -> None:
    assert [figure(value) for value in (0.25, -3.0, 6.697e14)] == ["0.2500", "-3.0000", "6.697e+14"]
