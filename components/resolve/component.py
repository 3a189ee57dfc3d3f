"""The KFP interface of the stage `resolve`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Find the champion", cpu="500m", memory="1G", minutes=5)
def resolve(
    store: str,
    model_name: str,
    model: dsl.Output[dsl.Model],
    candidate: str = "",
    required: bool = False,
    files: bool = True,
) -> NamedTuple(
    "Outputs",
    [
        ("champion", str),
        ("version", int),
        ("training_set", str),
        ("split", str),
        ("evaluation", str),
        ("registered", str),
        ("reference", str),
    ],
):
    """Find the champion, its files and its training data; or the one that a candidate must be compared with.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        candidate: Reference of a candidate, which is never its own champion; empty for the champion itself.
        required: Whether a model without a champion is an error.
        files: Whether to give the champion's files too.

    Returns:
        champion: Reference of the champion; empty for none.
        version: Its version; 0 for none.
        training_set: Reference of its training set; empty for none.
        split: Reference of its split; empty for none.
        evaluation: Reference of its evaluation at the gate.
        registered: When it was registered, in UTC; empty if the ledger does not say.
        reference: Address of the champion; empty for none.
        model: A folder with the champion's files; empty for none.
    """
    from pathlib import Path

    from gatehouse.registry.stage import resolve as run_resolve
    from gatehouse.store.parameters import checked, open_store, runner, values_of
    from gatehouse.store.transfer import export

    opened = open_store(store)
    champion_of = {"model_name": model_name, "candidate": candidate, "required": required}
    result = runner(opened)(run_resolve, checked("resolve", run_resolve.request, champion_of))
    reference = opened.address_of(result.champion) if result.champion else ""
    if files:
        Path(model.path).mkdir(parents=True, exist_ok=True)
        if result.champion:
            export(opened, result.champion, Path(model.path))
            model.metadata["reference"] = reference
    return (*values_of(result), reference)
