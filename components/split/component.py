"""The KFP interface of a split: of a training set, or of any table."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "data",
    title="Split",
    caching=True,
    standalone=True,
    cpu="2",
    memory="4G",
    minutes=65,
    configurations={"spec": "split", "columns": "roles"},
)
def split(
    data: dsl.Input[dsl.Dataset],
    split: dsl.Output[dsl.Artifact],
    train: dsl.Output[dsl.Dataset],
    validation: dsl.Output[dsl.Dataset],
    test: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    spec: dict = {},
    spec_file: dsl.Input[dsl.Artifact] = None,
    leakage: dsl.Input[dsl.Artifact] = None,
    label: str = "",
    task: str = "binary",
    columns: dict = {},
    name: str = "dataset",
    format: str = "",
    store: str = "",
    tables: bool = False,
) -> NamedTuple(
    "Outputs",
    [("verdict", str), ("reasons", list), ("warnings", list), ("rows", dict), ("checks", dict)],
):
    """Divide rows into train, validation and test, and check that nothing leaks between them.

    The task succeeds whatever the verdict is. Where it is fail there are no parts, and `train` refuses the split.

    Args:
        data: A training set; or a table in Parquet (a file or a folder), CSV or JSON lines.
        spec: How to divide, as a SplitSpec, by the strategy time, random, stratified, entity, group, k_fold or
            rolling_origin; empty for random.
        spec_file: The same as a file of YAML or JSON.
        leakage: The check of the training set for leakage; a verdict other than pass ends the run. Empty for none.
        label: The column of a table that is predicted: numbers, truth values, or names of classes.
        task: What is predicted of a table: binary, multiclass, regression or ranking.
        columns: What other columns of a table are: keys (which entity a row is about), event_time (when the prediction
            is made), label_time (when the label is known), group (of ranking: in which rows are ordered) and features
            (empty for every other number, truth value and text). Besides, the names of classes, of two the positive one
            last.
        name: Name of the training set that a table becomes.
        format: parquet, csv or jsonl; empty to look.
        store: Address of the artifact store; empty for that of the data, or for none.
        tables: Whether to write the rows of the parts for tasks that do not know Gatehouse; without a store they are
            always written.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail: every part that is not what the strategy promises.
        warnings: What to look at.
        rows: Number of rows by part.
        checks: What became of each check: passed, failed, noted or could not run.
        split: The split, which `train` and `evaluate` take.
        train: The rows to fit on, as Parquet.
        validation: The rows to choose by.
        test: The rows to judge by.
        report: The report, with the level of labels in each part.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.data.splitting.publication import publish_table, roles_of
    from gatehouse.data.splitting.report import page, refusal
    from gatehouse.data.splitting.stage import split as divide
    from gatehouse.errors import GatehouseError
    from gatehouse.operations.preparing_stage import require_no_leakage
    from gatehouse.store.parameters import configuration_of

    run = ComponentTask(store, data, leakage)
    if leakage:
        run.run(require_no_leakage, **run.verdict("The training set", leakage, "leakage"))
    strategy = configuration_of("spec", spec, spec_file, default={"strategy": "random"})
    training_set = run.find(data, "training-sets")
    if not training_set:
        roles = roles_of({"label": label, "task": task, **columns}, strategy)
        origin = {"dataset": run.find(data)}
        training_set = str(publish_table(run.store, name, run.table(data, format), roles, origin))
    try:
        parts = run.run(divide, training_set=training_set, spec=strategy)
    except GatehouseError as error:
        if not error.reasons:
            raise
        Path(report.path).write_text(refusal(name, error.reasons), encoding="utf-8")
        for output in (split, train, validation, test):
            run.give(output, "", verdict_facts("fail", error.reasons))
        return ("fail", list(error.reasons), [], {}, {})
    checked = {"split_checks": run.address(parts.split_checks)}
    run.give(split, parts.split, verdict_facts("pass", []) | checked)
    for part, output in (("train", train), ("validation", validation), ("test", test)):
        run.give(output, parts.split, part=part, tables=tables)
    Path(report.path).write_text(page(run.store, parts.split_checks), encoding="utf-8")
    run.label(parts.split_checks, report)
    return ("pass", [], list(parts.warnings), parts.rows, parts.checks)
