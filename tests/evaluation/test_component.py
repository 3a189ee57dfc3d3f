"""The KFP interface, called as KFP calls it: outputs, typed artifacts and summary."""

import json
from pathlib import Path

import pytest
from kfp import dsl

from gatehouse.components import evaluate as component
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.report import present
from gatehouse.reports.contents import rendered
from gatehouse.reports.format import in_markdown
from gatehouse.store.parameters import parameter_of
from tests.components import call, stored
from tests.evaluation.conftest import LENIENT, SPEC, Bench


def test_the_component_gives_the_result_and_fills_the_artifacts(judged_bench: Bench, tmp_path: Path) -> None:
    store, (bad, good) = judged_bench.store, (judged_bench.models[name] for name in ("bad", "good"))
    inputs = {"model": stored(store, bad, dsl.Model), "champion": stored(store, good, dsl.Model)}
    configuration = {"spec": parameter_of(SPEC), "policy": parameter_of(LENIENT)}
    made = call(component, tmp_path, split=stored(store, judged_bench.split), **inputs, **configuration)
    assert (made.verdict, len(made.reasons)) == ("refused", 1)
    evaluation = store.manifest(made.evaluation.metadata["reference"])
    assert (evaluation.derived_from["model"], evaluation.derived_from["champion"]) == (bad, good)
    assert {"roc_auc", "log_loss"} <= set(made.metrics.metadata)
    points = made.curves.metadata["confidenceMetrics"]
    assert 10 < len(points) <= 202
    json.dumps([made.metrics.metadata, points], allow_nan=False)
    assert Path(made.report.path).read_text() == rendered(store, str(evaluation.reference)).read_text()
    assert made.report.metadata == {"reference": store.address_of(evaluation.reference)}
    assert in_markdown(made.reasons[0]) in Path(made.summary.path).read_text()
    with pytest.raises(ConfigurationError, match="neither"):
        call(component, tmp_path)


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
