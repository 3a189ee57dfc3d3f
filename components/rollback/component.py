"""The KFP interface of a rollback, which the promote stage does."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Roll back", shows_models=True)
def rollback(store: str, model_name: str, version: int, reason: str = "") -> NamedTuple(
    "Outputs", [("decision", str), ("version", int), ("reference", str)]
):
    """Withdraw a version: the previous champion returns if it is the champion. A repeat changes nothing.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        version: The version to withdraw.
        reason: The person's reason, recorded in the ledger.

    Returns:
        decision: rolled back.
        version: The version.
        reference: Address of the champion afterwards; empty for none.
    """
    from gatehouse.registry.stage import promote as act
    from gatehouse.store.parameters import open_store, request_of

    opened = open_store(store)
    request = request_of(act, model_name=model_name, action="rollback", version=version, reason=reason)
    result = act(request, opened)
    return (result.decision, result.version, opened.address_of(result.champion) if result.champion else "")
