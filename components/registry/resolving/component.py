"""The KFP interface of the resolve stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def resolve(store: str, model_name: str, candidate: str, training_set: str, split: str, policy: str) -> NamedTuple(
    "Outputs", [("champion", str)]
):
    """Find the champion that a candidate must compare with; empty where there is none.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        candidate: Reference of the candidate.
        training_set: Reference of the training set.
        split: Reference of its split.
        policy: The promotion policy, as canonical JSON of a GatePolicy.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.evaluation.spec import GatePolicy
    from gatehouse.components.registry.resolving.stage import ResolveRequest
    from gatehouse.components.registry.resolving.stage import resolve as find

    rules = GatePolicy.model_validate_json(policy)
    request = ResolveRequest(
        model_name=model_name, candidate=candidate, training_set=training_set, split=split, policy=rules
    )
    return (find(request, ArtifactStore.open(store)).champion,)
