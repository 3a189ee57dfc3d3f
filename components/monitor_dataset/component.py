"""The KFP interface of the comparison of two Datasets."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Compare two Datasets", cpu="2", memory="4G")
def monitor_dataset(
    current: dsl.Input[dsl.Dataset],
    baseline: dsl.Input[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    features: list = [],
    label: str = "",
    score: str = "",
    task: str = "binary",
    positive: str = "",
    event_time: str = "",
    group: str = "",
    spec: dict = {},
    spec_file: dsl.Input[dsl.Artifact] = None,
    format: str = "",
    store: str = "",
) -> NamedTuple(
    "Outputs", [("decision", str), ("verdict", str), ("reasons", list), ("warnings", list), ("reference", str)]
):
    """Compare rows with earlier ones, as those that a model was trained on: drift, quality, and performance.

    Args:
        current: The newest rows.
        baseline: What they are compared with, of the same columns.
        features: The columns to compare; empty for all numbers and categories besides the columns named below, and
            besides ids, of which no value occurs twice.
        label: Column of labels, null while they are not known; empty for none.
        score: Column of predictions, as judge reads them; empty for none.
        task: binary, multiclass, regression or ranking.
        positive: The positive one of two classes with names.
        event_time: Column with the time of each row, so that seasons and days count; empty if rows are independent.
        group: Column of the rows that are ranked together; empty for none.
        spec: What is checked, as a MonitoringSpec; empty for the default.
        spec_file: The same as a file of YAML or JSON.
        format: parquet, csv or jsonl; empty to look at the Datasets.
        store: Address of the artifact store that keeps the drift report; empty for none.

    Returns:
        decision: retrain, keep or not judged.
        verdict: fail if a check alarms, also one of quality, which asks for no new model and leaves decision at keep;
            inconclusive if neither drift nor performance could be judged; or pass.
        reasons: Why it is no pass.
        warnings: Changes that gave no alarm, and checks that could not run.
        reference: Reference of the drift report in the store; empty without one.
        report: The report for the UI.
        summary: Decision, checks and reasons for the UI.
        metrics: The number of each check for the UI.
    """
    from gatehouse.data.datasets import read_dataset
    from gatehouse.data.splitting.publication import publish_rows
    from gatehouse.monitoring.report import present
    from gatehouse.monitoring.rows import ComparedColumns, MonitorRequest
    from gatehouse.monitoring.spec import MonitoringSpec
    from gatehouse.monitoring.stage import monitor
    from gatehouse.store.parameters import checked, given, open_store

    settings = checked("spec", MonitoringSpec, given("spec", spec, spec_file, default={}))
    columns = {"label": label, "score": score, "task": task, "positive": positive}
    columns |= {"event_time": event_time, "group": group}
    opened = open_store(store)
    before, now = (
        str(publish_rows(opened, "tables", "rows", read_dataset(dataset.path, format), {}, {}))
        for dataset in (baseline, current)
    )
    compared = checked("columns", ComparedColumns, {**columns, "features": features})
    result = monitor(MonitorRequest(baseline=before, current=now, columns=compared, spec=settings), opened)
    present(opened, result.drift, report, summary, metrics)
    if not store:
        for artifact in (report, summary, metrics):
            del artifact.metadata["reference"]
    judged = result.decision != "not judged"
    verdict = "fail" if result.alarms else "pass" if judged else "inconclusive"
    reasons = list(result.alarms or (() if judged else result.reasons))
    warnings = [text for text in result.warnings if text.removeprefix("not judged: ") not in reasons]
    return (result.decision, verdict, reasons, warnings, opened.address_of(result.drift) if store else "")
