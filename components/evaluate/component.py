"""The KFP interface of the task that measures a candidate and judges it against the champion."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Evaluate against the champion", cpu="2", memory="4G", minutes=35)
def evaluate(
    store: str,
    model: str,
    split: str,
    metrics: dsl.Output[dsl.Metrics],
    roc: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    spec: dict = {},
    policy: dict = {},
    model_name: str = "",
    champion: str = "",
    validation: str = "",
    leakage: str = "",
    split_checks: str = "",
    integration: str = "",
    rerun: str = "",
) -> NamedTuple("Outputs", [("evaluation", str), ("champion", str), ("verdict", str), ("reasons", list)]):
    """Find the champion, measure a candidate on the test part, and judge it against policy, baseline and champion.

    Args:
        store: Address of the artifact store.
        model: Reference of the candidate.
        split: Reference of the split of its training set.
        spec: What is measured, as an EvaluationSpec.
        policy: The promotion policy, as a GatePolicy.
        model_name: Name of the registered model. The candidate is compared with its champion; empty for no champion.
        champion: Reference of the model to compare with, if `model_name` is empty; empty for none.
        validation: Reference of the contract's verdict on the data; empty for none.
        leakage: Reference of the check for leakage; empty for none.
        split_checks: Reference of the checks of the split; empty for none.
        integration: Reference of the candidate's integration suite; empty for none.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        evaluation: Reference of the evaluation.
        champion: The champion that it was judged against; empty for none.
        verdict: pass, refused or inconclusive.
        reasons: Why it is no pass.
        metrics: Test metrics for the UI.
        roc: The ROC curve and the confusion matrix for the UI.
        report: The report for the UI.
        summary: Verdict and reasons for the UI.
    """
    from gatehouse.evaluation.presentation import present
    from gatehouse.evaluation.stage import evaluate as judge
    from gatehouse.registry.stage import resolve
    from gatehouse.store.parameters import open_store, request_of, runner

    opened = open_store(store)
    run = runner(opened, rerun)
    if model_name:
        champion = run(resolve, request_of(resolve, model_name=model_name, candidate=model, policy=policy)).champion
    checks = {"validation": validation, "leakage": leakage, "split_checks": split_checks, "integration": integration}
    result = run(
        judge, request_of(judge, model=model, champion=champion, split=split, **checks, spec=spec, policy=policy)
    )
    present(result, opened, metrics, roc, report, summary)
    return (result.evaluation, champion, result.verdict, list(result.reasons))
