"""The KFP interface of a person's decision about a version."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Move the champion alias", shows_models=True)
def promote(
    store: str,
    model_name: str,
    champion: dsl.Output[dsl.Model],
    action: str = "promote",
    version: int = 0,
    reason: str = "",
    to: str = "champion",
) -> NamedTuple("Outputs", [("decision", str), ("number", int)]):
    """Promote a registered version, roll back to the champion before it, or archive it. A repeat changes nothing.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        action: promote; rollback, which withdraws a version, so that the previous champion returns; or archive.
        version: The version to promote (0 for the one in staging), to withdraw, or to archive.
        reason: The person's reason, recorded in the ledger.
        to: The alias that a promoted version gets: staging, shadow, canary or champion.

    Returns:
        decision: promoted, rolled back, archived, or for example champion already if there was nothing to do.
        number: The version.
        champion: The champion afterwards; nothing if there is none.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.registry.stage import promote as act

    task = ComponentTask(store)
    asked = {"action": action, "version": version, "reason": reason, "to": to}
    result = task.run(act, model_name=model_name, **asked)
    task.give(champion, result.champion, {"model_name": model_name})
    return (result.decision, result.version)
