"""The KFP interface of a validation: of a snapshot, or of any table."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "data",
    title="Validate against the contract",
    caching=True,
    standalone=True,
    cpu="2",
    memory="4G",
    configurations={"contract": "contract"},
)
def validate(
    data: dsl.Input[dsl.Dataset],
    validation: dsl.Output[dsl.Artifact],
    statistics: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    contract: dict = {},
    contract_file: dsl.Input[dsl.Artifact] = None,
    baseline: dsl.Input[dsl.Artifact] = None,
    table: str = "",
    allow_unchecked: bool = False,
    snapshots: dict = {},
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list)]):
    """Judge data by a contract: columns, types, nulls, ranges, keys, freshness, and drift from a baseline.

    The task succeeds whatever the verdict is, so that its report is shown; the next task refuses a verdict of fail.

    Args:
        data: A snapshot; or a table in Parquet (a file or a folder), CSV or JSON lines.
        contract: A contract, or its reference; for a table also the rules of that table alone, as {columns: …}.
        contract_file: The same as a file of YAML or JSON.
        baseline: With which the rules on drift compare: an earlier validation; of a table also an earlier table.
        table: The table of the contract that this is, if it has several.
        allow_unchecked: Whether rules may go unchecked that one table cannot show (freshness, keys in other tables),
            and those on drift without a baseline. Else they fail, unless the contract only warns of them. Of a
            snapshot, require_judged of the contract decides.
        snapshots: References of other snapshots that foreign keys lead to, by the name that the contract gives them.
        format: parquet, csv or jsonl; empty to look.
        store: Address of the artifact store; empty for that of the data, or for none.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail: every rule that is broken or not checked.
        warnings: Rules that are broken and only warn, and those that may go unchecked and did.
        validation: The judgement, with verdict and reasons.
        statistics: Statistics of every column as JSON, in the form gatehouse/statistics/1.
        metrics: Numbers of rules judged, failed and warned.
        report: The report, with a card of every column.
    """
    import json
    import shutil
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.data.statistics.stage import STATISTICS_FILE, statistics_of
    from gatehouse.data.validation.contract import publish_contract
    from gatehouse.data.validation.datasets import contract_of_table, validate_table
    from gatehouse.data.validation.report import show
    from gatehouse.data.validation.stage import validate as judge
    from gatehouse.errors import MisfitError, NoRowsError
    from gatehouse.reports.page import Verdict, render
    from gatehouse.store.parameters import configuration_of

    task = ComponentTask(store, data, baseline)
    baseline = None if task.is_nothing(baseline) else baseline
    body = configuration_of("contract", contract, contract_file)
    if snapshot := task.find(data, "snapshots"):
        about = {"contract": publish_contract(task.store, body), "snapshots": snapshots}
        about |= {"baseline": task.take("baseline", baseline, "validations", "statistics")}
        about |= {"delivery": json.loads(data.metadata.get("delivery", "[]"))}
        result = task.run(judge, snapshot=snapshot, **about)
    else:
        name, promised = contract_of_table(task.store, body, table, allow_unchecked)
        types = {column: str(rules.type.value) for column, rules in promised.tables[name].columns.items()}
        try:
            before = task.find(baseline, "validations", "statistics")
            earlier = task.table(baseline, format, types) if baseline and not before else None
            result = validate_table(task.store, promised, task.table(data, format, types), earlier, before)
        except (MisfitError, NoRowsError) as error:
            page = render("report.html", f"Validation of {name}", "", Verdict("fail", str(error)))
            Path(report.path).write_text(page, encoding="utf-8")
            task.give(validation, "", verdict_facts("fail", [str(error)]))
            return ("fail", [str(error)], [])
    show(result, task.store, metrics, report)
    task.label(result.validation, metrics, report)
    measured = statistics_of(task.store, result.validation)
    shutil.copyfile(task.store.path(measured, STATISTICS_FILE), statistics.path)
    task.label(measured, statistics)
    task.give(validation, result.validation, verdict_facts(result.verdict, result.reasons))
    return (result.verdict, list(result.reasons), list(result.warnings))
