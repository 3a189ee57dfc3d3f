"""The KFP interface of a validation of a Dataset."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Validate a dataset", caching=True, cpu="2", memory="4G")
def validate_dataset(
    dataset: dsl.Input[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    statistics: dsl.Output[dsl.Artifact],
    contract: dict = {},
    contract_file: dsl.Input[dsl.Artifact] = None,
    baseline: dsl.Input[dsl.Dataset] = None,
    table: str = "",
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("validation", str)]):
    """Judge the rows of a Dataset by a contract: columns, types, nulls, ranges, keys, and drift from a baseline.

    Args:
        dataset: A table in Parquet (a file or a folder), CSV or JSON lines.
        contract: What the table promises: a contract, what it has of one table (columns, …), or its reference.
        contract_file: The contract as a file in YAML or JSON, in place of `contract`.
        baseline: An earlier Dataset, with which the rules on drift compare.
        table: The table of the contract that this is, if it has several.
        format: parquet, csv or jsonl; empty to look.
        store: Address of an artifact store that keeps snapshot, statistics and validation; empty for none.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail: every broken rule.
        validation: Reference of the validation; empty without a store.
        metrics: Numbers of rules judged, failed and warned.
        report: The report, with a card of every column.
        statistics: Statistics of every column as JSON, in the form gatehouse/statistics/1.
    """
    import shutil

    from gatehouse.data.datasets import read_dataset
    from gatehouse.data.snapshot.whole_table import snapshot_table
    from gatehouse.data.statistics.measurement import STATISTICS_FILE, statistics_of
    from gatehouse.data.statistics.stage import MeasureRequest, measure
    from gatehouse.data.validation.contract import CONTRACT_FILE, contract_of_table, contract_text
    from gatehouse.data.validation.report import show
    from gatehouse.data.validation.stage import ValidateRequest, validate
    from gatehouse.store.parameters import given, open_store

    opened, before = open_store(store), ""
    name, promised, lost = contract_of_table(opened, given("contract", contract, contract_file), table)
    types = {column: str(rules.type.value) for column, rules in promised.tables[name].columns.items()}
    for artifact in filter(None, (baseline, dataset)):
        rows = read_dataset(artifact.path, format, types)
        hidden = tuple(sorted(promised.sensitive(name, rows.column_names).intersection(rows.column_names)))
        taken = snapshot_table(opened, rows, name, sensitive=hidden, look=True)
        if artifact is baseline:
            datasets = opened.manifest(taken.snapshot).derived_from
            before = measure(MeasureRequest(name=name, datasets=datasets, sensitive={name: hidden}), opened).statistics
    published = str(opened.publish("config", "contract", {CONTRACT_FILE: contract_text(promised)}))
    about = {"contract": published, "baseline": before, "delivery": (*taken.delivery, *lost)}
    result = validate(ValidateRequest(snapshot=taken.snapshot, **about), opened)
    show(result, opened, metrics, report)
    measured = statistics_of(opened, result.validation)
    shutil.copyfile(opened.path(measured, STATISTICS_FILE), statistics.path)
    if not store:
        report.metadata.clear()  # Nobody finds the temporary store.
        return (result.verdict, list(result.reasons), "")
    statistics.metadata["reference"] = measured
    return (result.verdict, list(result.reasons), result.validation)
