"""The KFP interface of the stage `retrieve_training_set`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("data", title="Join features point-in-time", caching=True, cpu="2", memory="8G")
def retrieve_training_set(
    store: str,
    snapshot: str,
    feature_tables: str,
    definitions: str,
    service: str,
    as_of: str,
    rerun: str = "",
) -> NamedTuple("Outputs", [("training_set", str), ("rows", int), ("set_aside", dict)]):
    """Join a feature service to the entity rows point-in-time, through Feast.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        service: Name of the feature service.
        as_of: Time at which labels must be known, ISO 8601.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        training_set: Reference of the training set.
        rows: Number of rows.
        set_aside: Number of entity rows that were set aside, by reason.
    """
    from gatehouse.features.point_in_time.stage import retrieve_training_set as run_retrieve_training_set
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store), rerun)
    request = request_of(
        run_retrieve_training_set,
        snapshot=snapshot,
        feature_tables=feature_tables,
        definitions=definitions,
        service=service,
        as_of=as_of,
    )
    return values_of(run(run_retrieve_training_set, request))
