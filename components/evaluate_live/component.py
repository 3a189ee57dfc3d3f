"""The KFP interface of the comparison of champion and canary on live outcomes."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Compare on live outcomes", cpu="2", memory="4G")
def evaluate_live(
    store: str,
    model_name: str,
    outcomes: dsl.Input[dsl.Dataset],
    rules: dict,
    evaluation: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
    label: str = "label",
    label_time: str = "",
    positive: str = "",
    format: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list)]):
    """Compare the canary of a model with its champion on the outcomes of the rows that both answered.

    The verdict is recorded in the ledger. The rows are those that predictors with a log wrote to the store.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        outcomes: A table with `request_id`, or the entity keys and perhaps `decision_time`, and with what came of it.
        rules: What must hold, as LiveRules: the section `live` of a policy.
        label: Column of labels.
        label_time: Column that says when an outcome became known; empty if nobody says.
        positive: The positive one of two labels with names.
        format: parquet, csv or jsonl; empty to look at the table.

    Returns:
        verdict: promote, go on or back.
        reasons: Why it is not promote.
        evaluation: The evaluation.
        report: The report.
        metrics: For each difference, by how much the canary is worse.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.registry.live_stage import FILE, collect_arms
    from gatehouse.registry.live_stage import evaluate_live as compare
    from gatehouse.registry.rollout_stage import record_live

    task = ComponentTask(store)
    log = collect_arms(task.store, model_name)
    asked = {"label": label, "label_time": label_time, "positive": positive, "rules": rules}
    result = task.run(compare, model_name=model_name, log=log, outcomes=task.published(outcomes, format), **asked)
    task.run(record_live, evaluation=result.evaluation)
    for difference in task.store.read_json(result.evaluation, FILE)["differences"]:
        metrics.log_metric(f"{difference['name']}, worse by", difference["worse_by"])
    task.show(report, result.evaluation)
    task.label(result.evaluation, metrics)
    task.give(evaluation, result.evaluation, verdict_facts(result.verdict, result.reasons))
    return (result.verdict, list(result.reasons))
