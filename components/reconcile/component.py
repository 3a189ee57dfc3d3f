"""The KFP interface of the stage `reconcile`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Look after earlier runs", cpu="500m", memory="1G", minutes=15)
def reconcile(
    store: str,
    project: str,
    pipelines: list,
    schedules: dict = {},
    when: str = "never",
    form: str = "generic",
    owners: dict = {},
    quiet_hours: float = 48.0,
    events: dict = {},
    model_name: str = "",
) -> NamedTuple("Outputs", [("unreported", list), ("removed", int), ("summary", str), ("warnings", list)]):
    """Compare KFP's list of runs with the records in the store; report and clean up what ended unreported.

    Args:
        store: Address of the artifact store.
        project: The project.
        pipelines: Names of its pipelines.
        schedules: The schedules to check for lateness, by name, as in project.yaml.
        when: Which ends are sent to the webhook: `fail`, `warn`, `always` or `never`.
        form: Format of the webhook: `generic`, `slack` or `teams`.
        owners: Owner of each stage, by stage name; under "" the owner of all other stages.
        quiet_hours: Hours without a sign of life after which a run on another machine counts as ended.
        events: Webhooks that get events, by name, as in project.yaml.
        model_name: The model whose ledger they hear of; empty for none.

    Returns:
        unreported: Runs that ended without a report.
        removed: Number of leftovers that were removed.
        summary: The result in one line.
        warnings: What a person should know, though the verdict is pass.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.operations.reconciling_stage import reconcile as look_after

    notices = {"when": when, "form": form, "owners": owners, "events": events, "model_name": model_name}
    watched = {"project": project, "pipelines": pipelines, "schedules": schedules, "quiet_hours": quiet_hours}
    result = ComponentTask(store).run(look_after, **watched, **notices)
    return (list(result.unreported), result.removed, result.summary, list(result.warnings))
