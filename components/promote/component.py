"""The KFP interface of the promote stage."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Move the champion alias", shows_models=True)
def promote(
    store: str, model_name: str, action: str = "promote", version: int = 0, reason: str = "", to: str = "champion"
) -> NamedTuple("Outputs", [("decision", str), ("version", int), ("champion", str), ("reference", str)]):
    """Promote, roll back or archive a registered version.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        action: promote, rollback or archive.
        version: The version to promote (0 for the one in staging), to withdraw, or to archive.
        reason: The person's reason, recorded in the ledger.
        to: The alias that a promoted version gets: staging, shadow, canary or champion.

    Returns:
        decision: promoted, rolled back, archived, or for example champion already if there was nothing to do.
        version: The version.
        champion: The champion afterwards; empty for none.
        reference: Its address; empty for none.
    """
    from gatehouse.registry.stage import promote as act
    from gatehouse.store.parameters import open_store, request_of

    request = request_of(act, model_name=model_name, action=action, version=version, reason=reason, to=to)
    result = act(request, opened := open_store(store))
    address = opened.address_of(result.champion) if result.champion else ""
    return (result.decision, result.version, result.champion, address)
