"""The KFP interface of the stage `champion`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Find the champion", cpu="500m", memory="1G", minutes=5)
def champion(
    store: str,
    model_name: str,
) -> NamedTuple(
    "Outputs",
    [
        ("model", str),
        ("version", int),
        ("training_set", str),
        ("split", str),
        ("evaluation", str),
        ("registered", str),
    ],
):
    """Find the champion and its training data.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.

    Returns:
        model: Reference of the model.
        version: Its version; 0 for none.
        training_set: Reference of the training set.
        split: Reference of its split.
        evaluation: Reference of its evaluation at the gate.
        registered: When it was registered, in UTC; empty if the ledger does not say.
    """
    from gatehouse.registry.stage import champion as run_champion
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(run_champion, model_name=model_name)
    return values_of(run(run_champion, request))
