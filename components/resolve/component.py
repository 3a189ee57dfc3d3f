"""The KFP interface of the stage `resolve`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("resolve"), packages_to_install=[], install_kfp_package=False)
def resolve(
    store: str,
    model_name: str,
    candidate: str,
    training_set: str,
    split: str,
    policy: dict,
) -> NamedTuple("Outputs", [("champion", str)]):
    """Find the champion that the candidate must be compared with; it is never the candidate itself.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        candidate: Reference of the candidate.
        training_set: Reference of the training set.
        split: Reference of its split.
        policy: The promotion policy, as a GatePolicy.

    Returns:
        champion: Reference of the champion; empty for none.
    """
    from gatehouse.registry.stage import resolve as run_resolve
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore

    run = runner(ArtifactStore.open(store))
    request = request_of(
        run_resolve, model_name=model_name, candidate=candidate, training_set=training_set, split=split, policy=policy
    )
    return values_of(run(run_resolve, request))
