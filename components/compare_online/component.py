"""The KFP interface of the comparison of online features with those that a model was trained on."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Compare online features", cpu="2", memory="4G")
def compare_online(
    training_set: dsl.Input[dsl.Dataset],
    comparison: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
    log: dsl.Input[dsl.Dataset] = None,
    max_skew: float = 0.0,
    spec: dict = {},
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("values", int)]):
    """Compare features as they are served with those of a training set: a sample of the online store, or a log.

    Args:
        training_set: The training set.
        log: Logged serving features, a dataset of a snapshot; empty to read a sample of the online store.
        max_skew: Of the online store: share of differing values above which the verdict is fail.
        spec: Of a log: thresholds for the distances between distributions, as a SkewSpec.
        store: Address of the artifact store; empty for that of the training set.

    Returns:
        verdict: pass, fail, or not checked, as where there is no online store.
        reasons: Why it is no pass.
        values: Number of values compared; of a log, of features.
        comparison: The comparison, with verdict and reasons, which integrate takes.
        report: The report.
        metrics: Of a log, the greatest distance and the numbers of features and anomalies.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.data.validation.skew_report import show
    from gatehouse.data.validation.skew_stage import skew
    from gatehouse.online.comparing_stage import compare_online as compare

    task = ComponentTask(store, training_set, log)
    rows = task.take("training_set", training_set, "training-sets")
    if log:
        served = task.take("log", log, "datasets", "snapshots")
        if served.startswith("snapshots/"):
            (served,) = task.store.manifest(served).derived_from.values()
        result = task.run(skew, training_set=rows, serving=served, spec=spec)
        show(result, task.store, metrics, report)
        verdict, reasons = result.verdict, list(result.reasons)
        reference, values = result.skew, int(metrics.metadata.get("features", 0))
    else:
        sampled = task.run(compare, training_set=rows, max_skew=max_skew)
        verdict, reasons = sampled.verdict, list(sampled.reasons)
        reference, values = sampled.comparison, sampled.values
        task.show(report, reference)
    task.label(reference, report, metrics)
    task.give(comparison, reference, verdict_facts(verdict, reasons))
    return (verdict, reasons, values)
