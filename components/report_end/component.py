"""The KFP interface of the stage that reports the end of a run."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Report the end", cpu="500m", memory="512M", minutes=5)
def report_end(
    store: str,
    project: str,
    pipeline: str,
    status: dsl.PipelineTaskFinalStatus,
    summary: dsl.Output[dsl.Markdown],
    when: str = "fail",
    form: str = "generic",
    owners: dict = {},
    events: dict = {},
    model_name: str = "",
) -> NamedTuple("Outputs", [("state", str), ("failed_stage", str), ("posted", bool)]):
    """Record how the run ended, and report it.

    Args:
        store: Address of the artifact store.
        project: The project.
        pipeline: The pipeline that ran.
        status: KFP's status of the tasks before.
        when: Which ends are sent to the webhook: fail, warn, always or never.
        form: Format of the webhook: generic, slack or teams.
        owners: Owner of each stage, by stage name.
        events: Webhooks that get events, by name, as in project.yaml.
        model_name: The model whose ledger they hear of; empty for none.

    Returns:
        state: How the run ended.
        failed_stage: The stage that failed first; empty for none.
        posted: Whether all webhooks that get the end accepted it.
        summary: What happened to each stage, for the UI.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask
    from gatehouse.operations.ending_stage import report_end as report
    from gatehouse.operations.ending_stage import summary_of

    task = ComponentTask(store)
    ended = {"project": project, "pipeline": pipeline, "kfp_state": status.state}
    told = {"when": when, "form": form, "owners": owners, "events": events, "model_name": model_name}
    result = task.run(report, **ended, **told)
    Path(summary.path).write_text(summary_of(task.store, result), encoding="utf-8")
    return (result.state, result.failed_stage, result.posted)
