"""The KFP interface of the task that makes rows out of a snapshot: feature tables, their age, and a training set."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Compute feature tables", cpu="2", memory="8G", minutes=110)
def compute_features(
    store: str,
    snapshot: str,
    definitions: dict,
    project: str,
    as_of: str,
    metrics: dsl.Output[dsl.Metrics],
    verdict: str = "pass",
    reasons: list = [],
    validation: str = "",
    against: str = "clock",
    service: str = "",
    leakage: dict = {},
    rerun: str = "",
) -> NamedTuple(
    "Outputs",
    [
        ("feature_tables", str),
        ("freshness", str),
        ("stale", list),
        ("training_set", str),
        ("leakage", str),
        ("verdict", str),
        ("reasons", list),
        ("definitions", str),
    ],
):
    """Compute the features of a snapshot that keeps its contract, join them to its rows, and check these for leakage.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        definitions: The feature definitions, as config gives them, or their reference under the key reference.
        project: Name of the project.
        as_of: Time of the run, at which labels must be known, ISO 8601.
        verdict: What the contract says of the snapshot; anything but pass ends the run.
        reasons: Why it is no pass.
        validation: Reference of the validation that says so.
        against: What the age of features is measured from: `as_of` or `clock`.
        service: Name of the feature service whose features are joined; empty to join none.
        leakage: How the training set is checked for leakage: alarm and unchecked; empty not to check.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        feature_tables: Reference of the feature tables.
        freshness: pass, or fail where a view is stale.
        stale: Which views are stale, and by how much.
        training_set: Reference of the training set; empty where none is joined.
        leakage: Reference of the check for leakage; empty where nothing is checked.
        verdict: pass or fail, by that check.
        reasons: Why it is fail.
        definitions: Reference of the feature definitions.
        metrics: The number of stale views and the age of every view in hours for the UI.
    """
    from gatehouse.features.computing.previous.stage import previous_features
    from gatehouse.features.computing.stage import compute_features as compute
    from gatehouse.features.definitions.published import publish_definitions
    from gatehouse.features.freshness_stage import freshness, show
    from gatehouse.features.leakage.stage import check_leakage
    from gatehouse.features.point_in_time.stage import retrieve_training_set
    from gatehouse.operations.preparing_stage import require_contract
    from gatehouse.store.parameters import open_store, request_of, runner

    opened = open_store(store)
    run = runner(opened, rerun)
    run(require_contract, request_of(require_contract, verdict=verdict, reasons=reasons, report=validation))
    defined = publish_definitions(opened, project, definitions)
    origin = {"snapshot": snapshot, "definitions": defined}
    earlier = run(previous_features, request_of(previous_features, **origin, project=project))
    parent = earlier.feature_tables
    tables = run(compute, request_of(compute, **origin, project=project, parent=parent)).feature_tables
    ages = {"feature_tables": tables, "definitions": defined, "as_of": as_of, "against": against}
    aged = run(freshness, request_of(freshness, **ages))
    show(aged, metrics)
    rows = ""
    checked: tuple[str, str, list] = ("", "pass", [])
    if service:
        joined = {**origin, "feature_tables": tables}
        rows_request = request_of(retrieve_training_set, **joined, service=service, as_of=as_of)
        rows = run(retrieve_training_set, rows_request).training_set
        if leakage:
            leaks = run(check_leakage, request_of(check_leakage, **joined, training_set=rows, **leakage))
            checked = (leaks.leakage, leaks.verdict, list(leaks.reasons))
    return (tables, aged.verdict, list(aged.reasons), rows, *checked, defined)
