"""The KFP interface of the champion."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Find the champion", cpu="500m", memory="1G", minutes=5)
def resolve(
    store: str,
    model_name: str,
    model: dsl.Output[dsl.Model],
    training_set: dsl.Output[dsl.Dataset],
    split: dsl.Output[dsl.Artifact],
    evaluation: dsl.Output[dsl.Artifact],
    candidate: dsl.Input[dsl.Model] = None,
    required: bool = False,
    files: bool = True,
) -> NamedTuple("Outputs", [("version", int), ("registered", str)]):
    """Find the champion, its files, and what it was trained and judged on.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        candidate: A candidate of train, which is never its own champion; empty for the champion itself.
        required: Whether a model without a champion is an error.
        files: Whether to write the champion's files; else model holds its manifest.

    Returns:
        version: Its version; 0 for none.
        registered: When it was registered, in UTC; empty if the ledger does not say.
        model: The champion: a folder with its files, empty if there is no champion.
        training_set: Its training set; nothing for a model that Gatehouse did not train.
        split: The split that it was trained by; nothing for a model that Gatehouse did not train.
        evaluation: Its evaluation at the gate.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask
    from gatehouse.registry.stage import resolve as find

    task = ComponentTask(store)
    wanted = {"model_name": model_name, "candidate": task.take("candidate", candidate, "models"), "required": required}
    result = task.run(find, **wanted)
    if files and not result.champion:
        Path(model.path).mkdir(parents=True, exist_ok=True)
    facts = {"model_name": model_name, "version": str(result.version), "registered": result.registered}
    facts |= {"floor": result.floor}
    task.give(model, result.champion, facts, tables=files)
    for output, reference in ((training_set, result.training_set), (split, result.split)):
        task.give(output, reference)
    task.give(evaluation, result.evaluation)
    return (result.version, result.registered)
