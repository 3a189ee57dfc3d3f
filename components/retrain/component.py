"""The KFP interface of an order for a new model."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "training",
    title="Order a new model",
    cpu="500m",
    memory="1G",
    minutes=15,
    configurations={"spec": "retraining", "submission": "submission"},
)
def retrain(
    drift: dsl.Input[dsl.Artifact],
    champion: dsl.Input[dsl.Model],
    project: str,
    model_name: str,
    spec: dict = {},
    source: str = "",
    window: str = "",
    until: str = "",
    submission: dict = {},
    store: str = "",
) -> NamedTuple(
    "Outputs", [("action", str), ("cause", str), ("run", str), ("reasons", list), ("summary", str), ("warnings", list)]
):
    """Order a training if one is due and no limit holds it back; a cause is ordered once.

    Args:
        drift: The judgement of monitor.
        champion: The model that it judged, of resolve.
        project: Name of the project whose training pipeline is run.
        model_name: Name under which models are registered.
        spec: What asks for a new model, and how often, as a RetrainSpec.
        source: Where the training reads the raw tables; empty for the project's source.
        window: The events that the training reads; empty for all.
        until: End of the window that was monitored; empty if it reaches up to now. A window of the past, as in a
            backfill, orders nothing.
        submission: Version, experiment, service account and plug-ins of the run, as a SubmissionSpec.
        store: Address of the artifact store; empty for that of the judgement.

    Returns:
        action: nothing, held back, done, under way, submitted, or ordered.
        cause: What the new model is for.
        run: Name of the run that trains it; empty for none.
        reasons: Why the verdict is not pass.
        summary: The result in one line.
        warnings: What a person should know, though the verdict is pass.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.monitoring.retraining_stage import retrain as order

    task = ComponentTask(store, drift, champion)
    judged = {"drift": task.take("drift", drift, "drift-reports")}
    judged["registered"] = champion.metadata.get("registered", "")
    run = {"project": project, "model_name": model_name, "source": source, "window": window, "until": until}
    result = task.run(order, **judged, **run, spec=spec, submission=submission)
    ordered = (result.action, result.cause, result.run)
    return (*ordered, list(result.reasons), result.summary, list(result.warnings))
