"""The KFP interface of one look at a rollout, and of its next step."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "training",
    title="Step the rollout",
    shows_models=True,
    cpu="2",
    memory="4G",
    configurations={"policy": "policy"},
)
def roll_out(
    store: str,
    model_name: str,
    policy: dict,
    evaluation: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    outcomes: str = "",
    label: str = "label",
    label_time: str = "",
    positive: str = "",
) -> NamedTuple("Outputs", [("decision", str), ("number", int), ("share", float), ("reasons", list)]):
    """Compare a canary with its champion on live outcomes, record the verdict, and take the rollout one step.

    Without a canary, the version in staging becomes it. A repeat takes no second step.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        policy: The promotion policy, as a GatePolicy, with sections live and rollout.
        outcomes: A file with outcomes as the task sees it, or the reference of a table; needed once there is a canary.
        label: Column of labels.
        label_time: Column that says when an outcome became known; empty if nobody says.
        positive: The positive one of two labels with names.

    Returns:
        decision: began, stepped, promoted, taken back, waits, overtaken or nothing.
        number: The version; 0 for none.
        share: The share of the requests that it gets now.
        reasons: Why.
        evaluation: The evaluation; nothing without logged rows of a canary.
        report: The report, likewise.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask
    from gatehouse.registry.live_stage import evaluate_live, published_outcomes
    from gatehouse.registry.rollout_stage import logged_arms, record_live, sections_of, step_rollout

    task = ComponentTask(store)
    rules, steps = (section.model_dump(mode="json") for section in sections_of(policy))
    log, judged = logged_arms(task.store, model_name), ""
    if log:
        read = {"label": label, "label_time": label_time, "positive": positive}
        table = published_outcomes(task.store, outcomes)
        judged = task.run(evaluate_live, model_name=model_name, log=log, outcomes=table, rules=rules, **read).evaluation
        task.run(record_live, evaluation=judged)
        task.show(report, judged)
    else:
        Path(report.path).touch()
    task.give(evaluation, judged)
    result = task.run(step_rollout, model_name=model_name, rules=rules, rollout=steps)
    return (result.decision, result.version, result.share, list(result.reasons))
