"""The KFP interface of materialization."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Materialize online", cpu="2", memory="4G", minutes=60)
def materialize(
    feature_tables: dsl.Input[dsl.Dataset],
    service: str,
    materialization: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    max_skew: float = 0.0,
    rewrite: bool = False,
    store: str = "",
) -> NamedTuple(
    "Outputs",
    [("verdict", str), ("reasons", list), ("skew", float), ("values", int), ("written", dict)],
):
    """Write the newest features to the online store, read a sample back, and judge the skew.

    Args:
        feature_tables: Of compute_features, whose project names the online store.
        service: Name of the feature service.
        max_skew: Share of differing values above which the verdict is fail.
        rewrite: Write all rows, even if the store is at a later time.
        store: Address of the artifact store; empty for that of the feature tables.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail.
        skew: Share of the values read back online that differ from the offline values.
        values: Number of comparisons with a value online or offline.
        written: Rows that changed the content of the store, by view.
        materialization: The comparison by view, with verdict and reasons.
        report: The report.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.online.stage import materialize as write

    task = ComponentTask(store, feature_tables)
    computed = task.take("feature_tables", feature_tables, "feature-tables")
    manifest = task.store.manifest(computed)
    origin = {name: task.origin(computed, name) for name in ("snapshot", "definitions")}
    origin |= {"feature_tables": computed, "project": manifest.name, "as_of": manifest.details["as_of"]}
    result = task.run(write, **origin, service=service, max_skew=max_skew, rewrite=rewrite)
    task.give(materialization, result.report, verdict_facts(result.verdict, result.reasons))
    task.show(report, result.report)
    return (result.verdict, list(result.reasons), result.skew, result.values, result.written)
