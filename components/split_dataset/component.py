"""The KFP interface of a split of a Dataset."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Split a dataset", caching=True, cpu="2", memory="4G")
def split_dataset(
    dataset: dsl.Input[dsl.Dataset],
    label: str,
    train: dsl.Output[dsl.Dataset],
    validation: dsl.Output[dsl.Dataset],
    test: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    strategy: dict = {"strategy": "random"},
    strategy_file: dsl.Input[dsl.Artifact] = None,
    task: str = "binary",
    columns: dict = {},
    name: str = "dataset",
    format: str = "",
    store: str = "",
) -> NamedTuple(
    "Outputs",
    [
        ("verdict", str),
        ("reasons", list),
        ("checks", dict),
        ("training_set", str),
        ("split", str),
        ("split_checks", str),
    ],
):
    """Divide a Dataset into train, validation and test, and check that nothing leaks between them.

    Where the verdict is fail, there are no parts.

    Args:
        dataset: A table in Parquet (a file or a folder), CSV or JSON lines.
        label: The column that is predicted: numbers, truth values, or names of classes.
        strategy: How to divide, as a SplitSpec: time, random, stratified, entity, group, k_fold or rolling_origin.
        strategy_file: The same as a file in YAML or JSON, in place of `strategy`.
        task: binary, multiclass, regression or ranking.
        columns: What other columns are: keys (which entity a row is about), event_time (when the prediction is made),
            label_time (when the label is known), group (of ranking: in which rows are ordered) and features (empty for
            every other number, truth value and text). Besides, the names of classes, of two the positive one last.
        name: Name of the training set.
        format: parquet, csv or jsonl; empty to look.
        store: Address of an artifact store that keeps training set and split; empty for none.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail: every part that is not what the strategy promises; else what to look at.
        checks: What became of each check: passed, failed, noted or could not run.
        training_set: Reference of the training set, which `train` takes; empty without a store.
        split: Reference of the split, which `train` takes; empty without a store.
        split_checks: Reference of its checks, which `evaluate` takes; empty without a store.
        train: The rows to fit on, as Parquet.
        validation: The rows to choose by.
        test: The rows to judge by.
        report: The report, with the level of labels in each part.
    """
    import shutil
    from pathlib import Path

    import pyarrow.parquet as pq

    from gatehouse.data.datasets import read_dataset, write_dataset
    from gatehouse.data.splitting.publication import Roles, publish_rows
    from gatehouse.data.splitting.report import refusal
    from gatehouse.data.splitting.stage import split as divide
    from gatehouse.errors import GatehouseError
    from gatehouse.reports.rendering import rendered
    from gatehouse.store.parameters import checked, given, open_store
    from gatehouse.store.reference import is_identity

    opened, table = open_store(store), read_dataset(dataset.path, format)
    rows, details = checked("columns", Roles, {"label": label, "task": task, **columns}).applied(table)
    before = str(dataset.metadata.get("reference", ""))
    inputs = {"dataset": before} if is_identity(before) and opened.exists(before) else {}
    training_set = str(publish_rows(opened, "training-sets", name, rows, details, inputs))
    spec = given("strategy", {} if strategy_file else strategy, strategy_file)
    try:
        request = checked("strategy", divide.request, {"training_set": training_set, "spec": spec})
        parts = divide(request, opened)
    except GatehouseError as error:
        if not error.reasons:
            raise
        Path(report.path).write_text(refusal(name, error.reasons), encoding="utf-8")
        return ("fail", list(error.reasons), {}, training_set if store else "", "", "")
    for part, output in (("train", train), ("validation", validation), ("test", test)):
        chosen = pq.read_table(opened.path(parts.split, f"{part}.parquet"))["row"]
        write_dataset(table.take(chosen), output.path)
        output.metadata |= {"rows": len(chosen)} | ({"reference": parts.split} if store else {})
    shutil.copyfile(rendered(opened, parts.split_checks), report.path)
    kept = (training_set, parts.split, parts.split_checks) if store else ("", "", "")
    return ("pass", list(parts.warnings), parts.checks, *kept)
