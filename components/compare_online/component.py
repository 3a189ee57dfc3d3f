"""The KFP interface of the comparison of online features with those that a model was trained on."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Compare online features", cpu="2", memory="4G")
def compare_online(
    training_set: dsl.Input[dsl.Dataset],
    comparison: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    max_skew: float = 0.0,
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("values", int)]):
    """Compare a sample of the online store with the features of a training set.

    Args:
        training_set: The training set.
        max_skew: Share of differing values above which the verdict is fail.
        store: Address of the artifact store; empty for that of the training set.

    Returns:
        verdict: pass, fail, or not checked, as where there is no online store.
        reasons: Why it is no pass.
        values: Number of values compared.
        comparison: The comparison, with verdict and reasons, which integrate takes.
        report: The report.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.online.comparing_stage import compare_online as compare

    task = ComponentTask(store, training_set)
    rows = task.take("training_set", training_set, "training-sets")
    result = task.run(compare, training_set=rows, max_skew=max_skew)
    task.show(report, result.comparison)
    reasons = list(result.reasons)
    task.give(comparison, result.comparison, verdict_facts(result.verdict, reasons))
    return (result.verdict, reasons, result.values)
