"""KFP's typed outputs of the validate stage. Where the page is drawn already, nothing that draws it is imported."""

import shutil
from typing import Any

from gatehouse.data.validation.stage import ValidateResult
from gatehouse.reports.rendering import rendered
from gatehouse.store.store import ArtifactStore


def show(result: ValidateResult, store: ArtifactStore, metrics: Any, report: Any) -> None:
    """Fill KFP's typed outputs (Metrics, HTML) from a validation."""
    anomalies = store.read_json(result.validation, "anomalies.json")
    metrics.log_metric("failed", sum(one["severity"] == "fail" for one in anomalies))
    metrics.log_metric("warned", sum(one["severity"] == "warn" for one in anomalies))
    metrics.log_metric("rules judged", store.read_json(result.validation, "verdict.json")["judged"])
    shutil.copyfile(rendered(store, result.validation), report.path)
    report.metadata["reference"] = store.address_of(result.validation)
