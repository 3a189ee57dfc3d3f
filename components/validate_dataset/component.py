"""The KFP interface of a validation of a Dataset."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Validate a dataset", caching=True, cpu="2", memory="4G", stored=("reference",))
def validate_dataset(
    dataset: dsl.Input[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    statistics: dsl.Output[dsl.Artifact],
    contract: dict = {},
    contract_file: dsl.Input[dsl.Artifact] = None,
    baseline: dsl.Input[dsl.Dataset] = None,
    table: str = "",
    allow_unchecked: bool = False,
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list), ("reference", str)]):
    """Judge the rows of a Dataset by a contract: columns, types, nulls, ranges, keys, and drift from a baseline.

    Args:
        dataset: A table in Parquet (a file or a folder), CSV or JSON lines; of `dsl.importer`, set reimport=True.
        contract: What the table promises: a contract, what it has of one table (columns, …), or its reference.
        contract_file: The contract as a file in YAML or JSON, in place of `contract`.
        baseline: An earlier Dataset, with which the rules on drift compare.
        table: The table of the contract that this is, if it has several.
        allow_unchecked: Whether rules may go unchecked that one Dataset cannot show (freshness, keys in other tables),
            and those on drift without a baseline. Else they fail, unless the contract only warns of them.
        format: parquet, csv or jsonl; empty to look.
        store: Address of an artifact store that keeps snapshot, statistics and validation; empty for none.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail: every rule that is broken or not checked.
        warnings: Rules that are broken and only warn, and those that may go unchecked and did.
        reference: Reference of the validation; empty without a store.
        metrics: Numbers of rules judged, failed and warned.
        report: The report, with a card of every column.
        statistics: Statistics of every column as JSON, in the form gatehouse/statistics/1.
    """
    import shutil
    from pathlib import Path

    from gatehouse.data.datasets import read_dataset
    from gatehouse.data.statistics.stage import STATISTICS_FILE, statistics_of
    from gatehouse.data.validation.datasets import contract_of_table, validate_table
    from gatehouse.data.validation.report import show
    from gatehouse.errors import NoRowsError
    from gatehouse.reports.page import Verdict, render
    from gatehouse.store.parameters import given, open_store

    opened = open_store(store)
    body = given("contract", contract, contract_file)
    name, promised = contract_of_table(opened, body, table, allow_unchecked)
    types = {column: str(rules.type.value) for column, rules in promised.tables[name].columns.items()}
    try:
        before = read_dataset(baseline.path, format, types) if baseline else None
        result = validate_table(opened, promised, read_dataset(dataset.path, format, types), before)
    except NoRowsError as error:
        page = render("report.html", f"Validation of {name}", "", Verdict("fail", str(error)))
        Path(report.path).write_text(page, encoding="utf-8")
        return ("fail", [str(error)], [], "")
    show(result, opened, metrics, report)
    measured = statistics_of(opened, result.validation)
    shutil.copyfile(opened.path(measured, STATISTICS_FILE), statistics.path)
    if store:
        statistics.metadata["reference"] = opened.address_of(measured)
    else:
        report.metadata.clear()  # Nobody finds the temporary store.
    reference = opened.address_of(result.validation) if store else ""
    return (result.verdict, list(result.reasons), list(result.warnings), reference)
