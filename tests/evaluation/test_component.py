"""The KFP interface, called as KFP calls it: outputs, typed artifacts and summary."""

import json
from pathlib import Path

import pytest
from kfp import dsl

from gatehouse.components.evaluate.component import evaluate as component
from gatehouse.evaluation.report import present
from gatehouse.reports.contents import rendered
from gatehouse.store.parameters import parameter_of
from tests.evaluation.conftest import LENIENT, SPEC, Bench


def test_the_component_gives_the_result_and_fills_the_artifacts(judged_bench: Bench, tmp_path: Path) -> None:
    metrics, roc = dsl.Metrics(uri=str(tmp_path / "metrics")), dsl.ClassificationMetrics(uri=str(tmp_path / "roc"))
    report, summary = dsl.HTML(uri=str(tmp_path / "report.html")), dsl.Markdown(uri=str(tmp_path / "summary.md"))
    evaluation, champion, verdict, reasons = component.python_func(
        store=judged_bench.store.address,
        model=judged_bench.models["bad"],
        champion=judged_bench.models["good"],
        split=judged_bench.split,
        spec=parameter_of(SPEC),
        policy=parameter_of(LENIENT),
        metrics=metrics,
        roc=roc,
        report=report,
        summary=summary,
    )
    assert (champion, verdict, len(reasons)) == (judged_bench.models["good"], "refused", 1)
    assert judged_bench.store.exists(evaluation)
    assert {"roc_auc", "log_loss"} <= set(metrics.metadata)
    points = roc.metadata["confidenceMetrics"]
    assert 10 < len(points) <= 202
    json.dumps([metrics.metadata, points], allow_nan=False)
    assert Path(report.path).read_text() == rendered(judged_bench.store, evaluation).read_text()
    assert report.metadata["reference"] == judged_bench.store.address_of(evaluation)
    assert reasons[0] in Path(summary.path).read_text()


def test_the_ui_gets_the_confusion_matrix_at_the_threshold_of_the_model(
    judged_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = judged_bench.evaluate(judged_bench.models["good"], "")
    roc = dsl.ClassificationMetrics(uri=str(tmp_path / "roc"))
    pages = (dsl.HTML(uri=str(tmp_path / "report")), dsl.Markdown(uri=str(tmp_path / "summary")))
    present(result, judged_bench.store, dsl.Metrics(uri=str(tmp_path / "metrics")), roc, *pages)
    matrix = roc.metadata["confusionMatrix"]
    assert [annotation["displayName"] for annotation in matrix["annotationSpecs"]] == ["negative", "positive"]
    (right, false_alarms), (missed, caught) = (row["row"] for row in matrix["rows"])
    rows = judged_bench.store.manifest(result.evaluation).details["rows"]
    assert right + false_alarms + missed + caught == rows
    points = judged_bench.store.read_json(result.evaluation, "curves.json")["candidate"]["roc"]
    rate, hits = next((low, high) for low, high, threshold in points if threshold <= 0.5)
    assert abs(false_alarms / (right + false_alarms) - rate) < 0.02 and abs(caught / (missed + caught) - hits) < 0.02
    assert "positive" in rendered(judged_bench.store, result.evaluation).read_text()
