"""The worked examples of the contributors' guide do what the guide says."""

import re
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import cohen_kappa_score

from gatehouse.evaluation import gate
from gatehouse.evaluation.gate import Evidence
from gatehouse.metrics.classification import ClassCounts, class_metric
from gatehouse.reports.contents import rendered
from gatehouse.store.manifest import FileEntry, Manifest
from gatehouse.store.stage import STAGES
from gatehouse.store.store import ArtifactStore
from tests.source_tree import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
_BLOCK = re.compile(r"^   ```python\n(.*?)^   ```", re.MULTILINE | re.DOTALL)


def _example(word: str, **names: Any) -> dict[str, Any]:
    """The names that the one example with a word in it defines."""
    (text,) = [block for block in _BLOCK.findall(GUIDE) if word in block]
    names["__name__"] = "example"
    exec(compile(textwrap.dedent(text), "CONTRIBUTING.md", "exec"), names)
    return names


def test_the_stage_counts_labels_by_month_and_has_a_page(store: ArtifactStore, tmp_path: Path) -> None:
    names = _example("@stage(")
    decided = [datetime(2024, month, 1, tzinfo=UTC) for month in (1, 2, 1, 2, 2)]
    table = pa.table({"decided": pa.array(decided, pa.timestamp("us", tz="UTC")), "late": [1, 0, 0, 0, 1]})
    pq.write_table(table, tmp_path / "part.parquet")
    roles = {"decision_time": "decided", "label": "late"}
    training_set = store.publish("training-sets", "x", {"part.parquet": tmp_path / "part.parquet"}, details=roles)
    try:
        result = names["profile"].function(names["ProfileRequest"](training_set=str(training_set)), store)
        page = rendered(store, result.profile).read_text()
    finally:
        del STAGES["profile"]
    assert result.rows == 5
    assert store.read_json(result.profile, "counts.json") == {"2024-01": 2, "2024-02": 3}
    assert store.read_json(result.profile, "means.json") == {"2024-01": 0.5, "2024-02": 0.333333}
    assert page.count('class="bar"') == 4


def test_the_rule_refuses_a_model_that_is_too_large() -> None:
    rules = _example("def _model_bytes(", **vars(gate))["_model_bytes"]
    model = Manifest("models", "delays", (FileEntry("weights.safetensors", "0" * 64, 1_000),))
    evidence = Evidence(model, {}, {}, None, {}, slices_requested=False)

    def applied(most: int | None) -> list[str]:
        return [f"{rule}: {rule.holds}" for rule in rules(SimpleNamespace(max_model_bytes=most), evidence)]

    assert applied(None) == []
    assert applied(1_000) == ["model bytes: expected at most 1,000 bytes, found 1,000 bytes: True"]
    assert applied(999) == ["model bytes: expected at most 999 bytes, found 1,000 bytes: False"]


def test_the_metric_agrees_with_sklearn() -> None:
    names = {"np": np, "ClassCounts": ClassCounts, "class_metric": class_metric}
    kappa = _example("@class_metric(", **names)["cohen_kappa"]
    for labels, classes in (([0, 1, 1, 0, 2], [0, 1, 2, 0, 2]), ([1, 1, 0, 0], [True, True, True, False])):
        expected = cohen_kappa_score(labels, np.array(classes, int))
        assert kappa(np.array(labels), np.array(classes)) == pytest.approx(expected)
    assert kappa(np.zeros(3), np.zeros(3)) == 0.0
