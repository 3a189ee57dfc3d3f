"""The KFP interface of features: tables computed from a snapshot, and a training set joined to its rows."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Compute features", cpu="2", memory="8G", minutes=110, configurations={"engine": "engine"})
def compute_features(
    snapshot: dsl.Input[dsl.Dataset],
    definitions: dict,
    feature_tables: dsl.Output[dsl.Dataset],
    training_set: dsl.Output[dsl.Dataset],
    leakage: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    validation: dsl.Input[dsl.Artifact] = None,
    project: str = "features",
    service: str = "",
    leakage_alarm: float = 0.95,
    unchecked: dict = {},
    check: bool = True,
    freshness_against: str = "clock",
    store: str = "",
    tables: bool = False,
    engine: dict = {},
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("rows", int), ("stale", list)]):
    """Compute the features of a snapshot, join them to its labelled rows point-in-time, and check these for leakage.

    The task succeeds whatever the verdict is; `split` refuses a training set that leaks.

    Args:
        snapshot: The snapshot.
        definitions: The feature definitions, as config gives them of a folder, or their reference.
        validation: The judgement of the snapshot; a verdict other than pass ends the run. Empty to ask for none.
        project: Name of the feature tables, which later ones extend.
        service: The feature service whose features are joined; empty to join none.
        leakage_alarm: ROC AUC above which one feature is taken for a leak.
        unchecked: Views that need not be checked for leakage, each with the reason.
        check: Whether the training set is checked for leakage.
        freshness_against: What the age of features is measured from: clock; or as_of, the newest time in the snapshot.
        store: Address of the artifact store; empty for that of the snapshot.
        tables: Whether to write the rows of the training set for tasks that do not know Gatehouse.
        engine: Where pieces of the work run, as {"kind": "ray", "address": …}; empty for processes of the task's pod.

    Returns:
        verdict: pass or fail, by the check for leakage; not checked without one.
        reasons: Why it is no pass.
        rows: Number of rows of the training set.
        stale: Which views are stale, and by how much.
        feature_tables: A table for each view, which retrieve_features and materialize take.
        training_set: Rows with label and features; nothing without a service.
        leakage: The check for leakage, with verdict and reasons.
        metrics: The number of stale views and the age of every view in hours.
        report: The report of the check for leakage, else of the feature tables.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.features.computing.previous.stage import previous_features
    from gatehouse.features.computing.stage import compute_features as compute
    from gatehouse.features.definitions.published import publish_definitions
    from gatehouse.features.freshness_stage import freshness, show
    from gatehouse.features.leakage.stage import check_leakage
    from gatehouse.features.point_in_time.stage import retrieve_training_set
    from gatehouse.operations.preparing_stage import require_contract

    task = ComponentTask(store, snapshot, engine=engine)
    if validation:
        task.run(require_contract, **task.verdict("The snapshot", validation, "validations"))
    taken = task.take("snapshot", snapshot, "snapshots")
    defined = publish_definitions(task.store, project, definitions)
    origin = {"snapshot": taken, "definitions": defined}
    earlier = task.run(previous_features, **origin, project=project).feature_tables
    computed = task.run(compute, **origin, project=project, parent=earlier).feature_tables
    as_of = task.store.manifest(taken).details["as_of"]
    ages = {"feature_tables": computed, "definitions": defined, "as_of": as_of}
    aged = task.run(freshness, **ages, against=freshness_against)
    show(aged, metrics)
    task.give(feature_tables, computed)
    verdict, reasons, leaks, joined, rows = "not checked", ["nothing was joined"], "", "", 0
    if service:
        made = task.run(retrieve_training_set, **origin, feature_tables=computed, service=service, as_of=as_of)
        joined, rows, reasons = made.training_set, made.rows, ["the check for leakage was not asked for"]
        if check:
            judged = {"training_set": joined, "alarm": leakage_alarm, "unchecked": unchecked}
            result = task.run(check_leakage, **origin, feature_tables=computed, **judged)
            verdict, reasons, leaks = result.verdict, list(result.reasons), result.leakage
    task.give(training_set, joined, tables=tables)
    task.give(leakage, leaks, verdict_facts(verdict, reasons))
    task.show(report, leaks or computed)
    task.label(computed, metrics)
    return (verdict, reasons, rows, list(aged.stale))
