"""The KFP interface of the stage `resolve`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Resolve the champion", cpu="500m", memory="1G", minutes=5)
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
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(
        run_resolve, model_name=model_name, candidate=candidate, training_set=training_set, split=split, policy=policy
    )
    return values_of(run(run_resolve, request))
