"""The KFP interface of a person's file of keys."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Take the keys to score")
def take_keys(
    store: str,
    address: str,
    keys: dsl.Output[dsl.Dataset],
    name: str = "keys",
) -> NamedTuple("Outputs", [("number_of_files", int)]):
    """Publish a file of keys and times as it is, for retrieve_features.

    Args:
        store: Address of the artifact store.
        address: Path or URL of a CSV or Parquet file, or a reference of published keys; empty for none.
        name: Name of the artifact.

    Returns:
        number_of_files: 1, or 0 without an address.
        keys: The keys; nothing without an address.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.features.keys_stage import take_keys as publish

    task = ComponentTask(store)
    taken = task.run(publish, keys=address, name=name).taken
    task.give(keys, taken)
    return (int(bool(taken)),)
