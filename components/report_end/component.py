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

    Returns:
        state: How the run ended.
        failed_stage: The stage that failed first; empty for none.
        posted: Whether the webhook accepted the notice.
        summary: What happened to each stage, for the UI.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask
    from gatehouse.operations.ending_stage import report_end as report
    from gatehouse.operations.ending_stage import summary_of

    task = ComponentTask(store)
    ended = {"project": project, "pipeline": pipeline, "kfp_state": status.state}
    result = task.run(report, **ended, when=when, form=form, owners=owners)
    Path(summary.path).write_text(summary_of(task.store, result), encoding="utf-8")
    return (result.state, result.failed_stage, result.posted)
