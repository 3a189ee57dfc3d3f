"""The KFP interface of the stage `alert`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Tell of the verdict", cpu="500m", memory="512M", minutes=5)
def alert(
    store: str,
    project: str,
    pipeline: str,
    stage: str,
    verdict: str,
    reasons: list = [],
    report: str = "",
    when: str = "fail",
    form: str = "generic",
) -> NamedTuple("Outputs", [("requested", bool), ("delivered", bool), ("attempts", int), ("why", str)]):
    """Post a verdict to the webhook that `GATEHOUSE_ALERT_WEBHOOK` names, where `when` asks for it.

    Args:
        store: Address of the artifact store.
        project: The project.
        pipeline: The pipeline that runs.
        stage: The stage that judged.
        verdict: What it said: `pass`, `warn`, `fail` or another word for a refusal.
        reasons: Why, as the stage gave them: redacted already where a column is sensitive.
        report: Reference of the artifact that the report shows.
        when: `fail` for every verdict that is a refusal; `warn` for these and for warnings; `always`; or `never`.
        form: What the webhook takes: `generic`, `slack` or `teams`.

    Returns:
        requested: Whether the project wants an alert for this verdict.
        delivered: Whether the webhook accepted it.
        attempts: Number of attempts.
        why: Why it was not delivered; empty if it was.
    """
    from gatehouse.operations.alerting.stage import alert as run_alert
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(
        run_alert,
        project=project,
        pipeline=pipeline,
        stage=stage,
        verdict=verdict,
        reasons=reasons,
        report=report,
        when=when,
        form=form,
    )
    return values_of(run(run_alert, request))
