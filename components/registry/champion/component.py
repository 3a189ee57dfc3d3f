"""The KFP interface of the champion stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def champion(store: str, model_name: str) -> NamedTuple(
    "Outputs", [("model", str), ("training_set", str), ("split", str)]
):
    """Find the champion and what it was trained on.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.champion.stage import ChampionRequest
    from gatehouse.components.registry.champion.stage import champion as find

    result = find(ChampionRequest(model_name=model_name), ArtifactStore.open(store))
    return (result.model, result.training_set, result.split)
