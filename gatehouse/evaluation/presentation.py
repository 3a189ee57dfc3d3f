"""What a person sees of an evaluation in the KFP UI: metrics, ROC curve, report and summary."""

import shutil
from pathlib import Path
from typing import Any

from gatehouse.data.splitting.parts import class_names
from gatehouse.evaluation.result import EvaluateResult
from gatehouse.metrics.catalogue import metric_named
from gatehouse.reports.advice import advised
from gatehouse.reports.contents import rendered
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import export, pull


def present(result: EvaluateResult, store: ArtifactStore, metrics: Any, roc: Any, report: Any, summary: Any) -> None:
    """Fill KFP's typed outputs from an evaluation: `dsl.Metrics`, `ClassificationMetrics`, `HTML` and `Markdown`."""
    for name, value in result.metrics.items():
        metrics.log_metric(name, value)
    curves = store.read_json(result.evaluation, "curves.json")["candidate"]
    if points := curves.get("roc"):
        roc.log_roc_curve(*([point[column] for point in points] for column in range(3)))
    if pairs := curves.get("confusion"):
        training_set = store.manifest(result.evaluation).derived_from["training_set"]
        classes = class_names(store.manifest(training_set).details)
        counts = {(label, predicted): rows for label, predicted, rows in pairs}
        # -1 stands for all other classes; those without a name are called by their number.
        numbers = sorted({number for pair in counts for number in pair}, key=lambda number: (number < 0, number))
        named = dict(enumerate(classes)) | {-1: "others"}
        roc.log_confusion_matrix(
            [named.get(number, f"class {number}") for number in numbers],
            [[counts.get((label, predicted), 0) for predicted in numbers] for label in numbers],
        )
    shutil.copyfile(rendered(store, result.evaluation), report.path)
    for artifact in (metrics, roc, report, summary):
        artifact.metadata["reference"] = store.address_of(result.evaluation)
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write(markdown(result))


def export_evaluation(store: ArtifactStore, evaluation: str, folder: str) -> None:
    """Write an evaluation's files to a folder, and below `store` all that a store needs of it."""
    pull(store, evaluation, ArtifactStore.open(Path(folder, "store")))
    export(store, evaluation, Path(folder))


def markdown(result: EvaluateResult) -> str:
    """Verdict, reasons and metrics as Markdown."""
    columns = {"candidate": result.metrics, "champion": result.champion_metrics, "baseline": result.baseline_metrics}
    shown = {name: values for name, values in columns.items() if values}
    lines = [f"# Candidate: {result.verdict}", ""]
    lines += [f"- {reason}" for reason in advised(result.reasons)] or ["No rule of the policy refuses it."]
    lines += [f"- warning: {warning}" for warning in result.warnings]
    lines += ["", f"| metric | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    for metric in result.metrics:
        written = metric_named(metric).text
        lines.append(f"| {metric} | {' | '.join(written(values[metric]) for values in shown.values())} |")
    return "\n".join([*lines, "", f"`{result.evaluation}`", ""])
