"""The KFP interface, called as KFP calls it: outputs, typed artifacts and summary."""

import json
from pathlib import Path

import pytest
from kfp import dsl

from gatehouse.components import evaluate as component
from gatehouse.errors import ConfigurationError
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
