"""The KFP interface of a model's deployment."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Deploy", minutes=45, configurations={"settings": "deployment"})
def deploy(
    store: str,
    model: str,
    deployment: dsl.Output[dsl.Artifact],
    settings: dict = {},
    action: str = "deploy",
    timeout_minutes: float = 15.0,
) -> NamedTuple("Outputs", [("version", int), ("address", str)]):
    """Run the predictor of a model in the cluster, and wait until it answers with the version; else go back, and fail.

    A repeat changes nothing. The task's service account needs the role of docs/deploy-role.yaml.

    Args:
        store: Address of the artifact store, which the predictor reads too.
        model: NAME for its champion, canary and shadow; NAME@champion, or NAME:2.
        settings: As `deploy` of a platform profile: kind, replicas, cpu, memory, image, namespace, arguments, …
        action: deploy; rollback, to the deployment before the present one; write, to give the manifests and apply
            nothing; or try, to ask the cluster whether it would take them.
        timeout_minutes: How long the pods may take until all of them answer with the version.

    Returns:
        version: The version that answers.
        address: The address of the service in the cluster; empty if nothing was applied.
        deployment: The manifests.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.deployment.stage import deploy as apply

    task = ComponentTask(store)
    where = {"timeout_minutes": timeout_minutes} | settings
    result = task.run(apply, model=model, settings=where, action=action)
    task.give(deployment, result.deployment, {"address": result.address}, tables=True)
    return (result.version, result.address)
