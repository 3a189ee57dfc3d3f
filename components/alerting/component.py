"""The KFP interface of the alert stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def alert(
    store: str,
    project: str,
    pipeline: str,
    stage: str,
    verdict: str,
    reasons: list,
    report: str,
    when: str,
) -> NamedTuple("Outputs", [("delivered", bool), ("why", str)]):
    """Tell a webhook of a verdict; a webhook that is down fails nothing.

    The webhook's address comes from the environment (GATEHOUSE_ALERT_WEBHOOK), on a cluster from a secret.

    Args:
        store: Address of the artifact store.
        project: The project's name.
        pipeline: The pipeline's name.
        stage: The stage that judged.
        verdict: What it said.
        reasons: Why.
        report: Reference of the artifact with the report.
        when: Which verdicts are told: fail, warn (and fail), always or never.
    """
    from gatehouse.components.alerting.stage import AlertRequest
    from gatehouse.components.alerting.stage import alert as tell
    from gatehouse.components.artifacts.store import ArtifactStore

    request = AlertRequest(
        project=project,
        pipeline=pipeline,
        stage=stage,
        verdict=verdict,
        reasons=tuple(reasons),
        report=report,
        when=when,
    )
    result = tell(request, ArtifactStore.open(store))
    return (result.delivered, result.why)
