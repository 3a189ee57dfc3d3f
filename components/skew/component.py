"""The KFP interface of the skew stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Compare serving with training", caching=True, cpu="2", memory="4G")
def skew(
    store: str,
    training_set: str,
    serving: str,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    spec: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("skew", str), ("verdict", str), ("reasons", list)]):
    """Compare logged serving features with a training set; skew is a verdict, and the report is written either way.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        serving: Reference of the dataset with the logged features.
        spec: Thresholds, as a SkewSpec.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        skew: Reference of the comparison.
        verdict: pass, fail or unjudged.
        reasons: Why it is no pass.
        metrics: The greatest distance and the numbers of features and anomalies for the UI.
        report: The report for the UI.
    """
    from gatehouse.data.validation.skew_report import show
    from gatehouse.data.validation.skew_stage import skew as compare
    from gatehouse.store.parameters import open_store, request_of, runner

    opened = open_store(store)
    compared = {"training_set": training_set, "serving": serving, "spec": spec}
    result = runner(opened, rerun)(compare, request_of(compare, **compared))
    show(result, opened, metrics, report)
    return (result.skew, result.verdict, list(result.reasons))
