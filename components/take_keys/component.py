"""The KFP interface of the stage `take_keys`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Take the keys to score")
def take_keys(
    store: str,
    keys: str,
    name: str,
) -> NamedTuple("Outputs", [("taken", str)]):
    """Publish a file of keys and times as it is.

    Args:
        store: Address of the artifact store.
        keys: Path or URL of a CSV or Parquet file, or a reference of published keys; empty for none.
        name: Name of the artifact.

    Returns:
        taken: Reference of the table; empty for none.
    """
    from gatehouse.features.keys_stage import take_keys as run_take_keys
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(run_take_keys, keys=keys, name=name)
    return values_of(run(run_take_keys, request))
