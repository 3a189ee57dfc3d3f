"""What the terminal shows of a run: a line for each stage, and the summary at its end."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.cli.terminal import Screen
from gatehouse.kfp.local_run import LocalRun, PlannedTask
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore

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


def test_warnings_and_alarms_of_stages_and_of_the_record_stand_in_the_summary(
    store: ArtifactStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, {"snapshot": {"warnings": ["9 columns are new"], "alarms": ["rain: 50 % missing"]}})
    run.events.append(Event("alert:webhook", 1, "warned", {"message": "The notice was not posted", "at": 1.0}))
    Screen(store).summarise(run)
    run.exit_code, run.failure = 1, {"error": "ContractBreachError", "message": "breaks", "stage": "snapshot"}
    Screen(store).summarise(run)
    output = capsys.readouterr().out
    assert output.count("warning in snapshot: 9 columns are new") == 2
    assert output.count("warning in alert:webhook: The notice was not posted") == 2
    assert output.count("alarm in snapshot: rain: 50 % missing") == 1 and "MLflow has nothing" not in output
