"""The KFP interface of a snapshot: of a source or of a Dataset, judged by its contract."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "data",
    title="Snapshot and validate",
    cpu="2",
    memory="4G",
    minutes=65,
    files={"component": (), "of_dataset": ("dataset",)},
    configurations={"source": "source", "contract": "contract"},
)
def snapshot(
    store: str,
    snapshot: dsl.Output[dsl.Dataset],
    validation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    source: dict = {},
    source_file: dsl.Input[dsl.Artifact] = None,
    dataset: dsl.Input[dsl.Dataset] = None,
    contract: dict = {},
    contract_file: dsl.Input[dsl.Artifact] = None,
    name: str = "dataset",
    keys: list = [],
    event_time: str = "",
    sensitive: list = [],
    format: str = "",
    location: str = "",
    window: str = "",
    backfill: str = "",
    baseline: str = "",
    snapshots: dict = {},
    configs: list = [],
    model_name: str = "",
    since: str = "",
    until: str = "",
    rerun: str = "",
    tables: bool = False,
) -> NamedTuple("Outputs", [("rows", dict), ("as_of", str), ("verdict", str), ("reasons", list), ("warnings", list)]):
    """Keep the rows of a source or of a Dataset in a store, where they never change, and judge them by a contract.

    Equal rows give the same snapshot. A broken contract is a verdict: the next task that gets `validation` refuses it.

    Args:
        store: Address of the artifact store.
        source: Where raw tables are read, as a SourceSpec; or a Dataset.
        source_file: The same as a file of YAML or JSON.
        dataset: A table in place of a source: Parquet (a file or a folder), CSV or JSON lines.
        contract: What the rows promise; empty for no judgement.
        contract_file: The same as a file of YAML or JSON.
        name: Name of the snapshot of a Dataset, and of its table.
        keys: Columns of a Dataset that, with the event time, no two rows share; the rows are sorted by them.
        event_time: Column of a Dataset with the times from which rows are known, which features need; empty for none.
        sensitive: Columns of a Dataset whose values are never shown.
        format: parquet, csv or jsonl; empty to look at the Dataset.
        location: Read the source's tables here; empty for the source's own place.
        window: Only events of START/END, as 2013-01-01/2013-07-01; empty for all.
        backfill: Why rows of the earlier snapshot may change; empty where they may not.
        baseline: Reference of an earlier validation, with which rules on drift compare; empty for none.
        snapshots: References of other snapshots that foreign keys lead to, by the name that the contract gives them.
        configs: References of published configuration that later tasks read, which must be in the store.
        model_name: The model that the run trains, where monitoring may have ordered it; empty for none.
        since: Start of the span that the run is for (ISO 8601 with zone); empty for none.
        until: Its end; empty for none.
        rerun: Stages of this run that run whatever the memo holds, as train,evaluate; empty for none.
        tables: Whether to write the rows of one table for tasks that do not know Gatehouse, in place of a manifest.

    Returns:
        rows: Number of rows by table.
        as_of: The newest time from which a row is known; empty without an event time.
        verdict: pass or fail by the contract; not checked without one.
        reasons: Why it is no pass.
        warnings: What differs from the earlier snapshot, and rules that only warn.
        snapshot: The snapshot.
        validation: The judgement by the contract, with verdict and reasons.
        metrics: Numbers of rules judged, failed and warned.
        report: The report of the validation, else of the snapshot.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.data.snapshot.stage import snapshot as take_snapshot
    from gatehouse.data.snapshot.whole_table import snapshot_table
    from gatehouse.data.validation.contract import publish_contract
    from gatehouse.data.validation.report import show
    from gatehouse.data.validation.stage import validate
    from gatehouse.operations.preparing_stage import prepare
    from gatehouse.store.canonical import canonical_json
    from gatehouse.store.parameters import configuration_of

    task = ComponentTask(store)
    task.run(prepare, rerun=rerun, configs=configs, model_name=model_name, since=since, until=until)
    if dataset:
        rows = task.table(dataset, format)
        made = snapshot_table(task.store, rows, name, keys=keys, event_time=event_time, sensitive=sensitive)
    else:
        read = {"location": location, "window": window, "backfill": backfill}
        made = task.run(take_snapshot, source=configuration_of("source", source, source_file), **read)
    task.give(snapshot, made.snapshot, {"delivery": canonical_json(list(made.delivery))}, tables=tables)
    verdict, reasons, warnings, judged = "not checked", ["the snapshot has no contract"], list(made.warnings), ""
    if contract or contract_file:
        promised = publish_contract(task.store, configuration_of("contract", contract, contract_file))
        about = {"baseline": baseline, "snapshots": snapshots, "delivery": list(made.delivery)}
        result = task.run(validate, snapshot=made.snapshot, contract=promised, **about)
        show(result, task.store, metrics, report)
        verdict, reasons, judged = result.verdict, list(result.reasons), result.validation
        warnings += [warning for warning in result.warnings if warning not in warnings]
    else:
        task.show(report, made.snapshot)
    task.label(judged or made.snapshot, metrics, report)
    task.give(validation, judged, verdict_facts(verdict, reasons))
    return (made.rows, made.as_of, verdict, reasons, warnings)
