"""The KFP interface of the stage `retrieve_decisions`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("data", title="Retrieve the rows to score", caching=True, cpu="2", memory="8G")
def retrieve_decisions(
    store: str,
    snapshot: str,
    feature_tables: str,
    definitions: str,
    service: str,
    as_of: str,
    since: str = "",
    until: str = "",
    keys: str = "",
    unlabelled: bool = False,
    rerun: str = "",
) -> NamedTuple("Outputs", [("decisions", str), ("rows", int)]):
    """Join a feature service point-in-time to decisions whose outcome need not be known; no label is read.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        service: Name of the feature service.
        as_of: The newest time that the snapshot covers, ISO 8601.
        since: Only decisions from this time on, ISO 8601; empty for all.
        until: Only decisions before this time, ISO 8601; empty for all up to `as_of`.
        keys: Reference of keys and times to score instead of the label's decisions; empty for the label's decisions.
        unlabelled: Only decisions whose label is not known yet or younger than its horizon; the result may be empty.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        decisions: Reference of the rows; empty where there are none.
        rows: Number of rows.
    """
    from gatehouse.features.decisions_stage import retrieve_decisions as run_retrieve_decisions
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store), rerun)
    request = request_of(
        run_retrieve_decisions,
        snapshot=snapshot,
        feature_tables=feature_tables,
        definitions=definitions,
        service=service,
        as_of=as_of,
        since=since,
        until=until,
        keys=keys,
        unlabelled=unlabelled,
    )
    return values_of(run(run_retrieve_decisions, request))
