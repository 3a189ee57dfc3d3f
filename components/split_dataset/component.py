"""The KFP interface of a split of a Dataset."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "data",
    title="Split a dataset",
    caching=True,
    cpu="2",
    memory="4G",
    stored=("training_set", "split", "split_checks"),
)
def split_dataset(
    dataset: dsl.Input[dsl.Dataset],
    label: str,
    train: dsl.Output[dsl.Dataset],
    validation: dsl.Output[dsl.Dataset],
    test: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    spec: dict = {},
    spec_file: dsl.Input[dsl.Artifact] = None,
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
        ("warnings", list),
        ("checks", dict),
        ("training_set", str),
        ("split", str),
        ("split_checks", str),
    ],
):
    """Divide a Dataset into train, validation and test, and check that nothing leaks between them.

    Where the verdict is fail, there are no parts.

    Args:
        dataset: A table in Parquet (a file or a folder), CSV or JSON lines; of `dsl.importer`, set reimport=True.
        label: The column that is predicted: numbers, truth values, or names of classes.
        spec: How to divide, as a SplitSpec, by the strategy time, random, stratified, entity, group, k_fold or
            rolling_origin; empty for random.
        spec_file: The same as a file in YAML or JSON, in place of `spec`.
        task: binary, multiclass, regression or ranking.
        columns: What other columns are: keys (which entity a row is about), event_time (when the prediction is made),
            label_time (when the label is known), group (of ranking: in which rows are ordered) and features (empty for
            every other number, truth value and text). Besides, the names of classes, of two the positive one last.
        name: Name of the training set.
        format: parquet, csv or jsonl; empty to look.
        store: Address of an artifact store that keeps training set and split; empty for none.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail: every part that is not what the strategy promises.
        warnings: What to look at.
        checks: What became of each check: passed, failed, noted or could not run.
        training_set: Reference of the training set, which `train` takes; empty without a store.
        split: Reference of the split, which `train` takes; empty without a store.
        split_checks: Reference of its checks, which `evaluate` takes; empty without a store.
        train: The rows to fit on, as Parquet.
        validation: The rows to choose by.
        test: The rows to judge by.
        report: The report, with the level of labels in each part.
    """
    from pathlib import Path

    import pyarrow.parquet as pq

    from gatehouse.data.datasets import read_dataset, write_dataset
    from gatehouse.data.splitting.publication import Roles, publish_table
    from gatehouse.data.splitting.report import page, refusal
    from gatehouse.data.splitting.stage import split as divide
    from gatehouse.errors import ConfigurationError, GatehouseError
    from gatehouse.store.parameters import checked, given, open_store

    opened, rows = open_store(store), read_dataset(dataset.path, format)
    roles = checked("columns", Roles, {"label": label, "task": task, **columns})
    strategy = given("spec", spec, spec_file, default={"strategy": "random"})
    if {"train_until", "test_from"} & strategy.keys() and not roles.event_time:
        raise ConfigurationError("spec: this strategy divides by time: give columns.event_time.")
    request = checked("spec", divide.request, {"training_set": "", "spec": strategy})
    training_set = publish_table(opened, name, rows, roles, dataset=dataset)
    kept = opened.address_of(training_set) if store else ""
    try:
        parts = divide(request.model_copy(update={"training_set": str(training_set)}), opened)
    except GatehouseError as error:
        if not error.reasons:
            raise
        Path(report.path).write_text(refusal(name, error.reasons), encoding="utf-8")
        return ("fail", list(error.reasons), [], {}, kept, "", "")
    made, checks = (opened.address_of(made) if store else "" for made in (parts.split, parts.split_checks))
    for part, output in (("train", train), ("validation", validation), ("test", test)):
        chosen = pq.read_table(opened.path(parts.split, f"{part}.parquet"))["row"]
        write_dataset(rows.take(chosen), output.path)
        output.metadata |= {"rows": len(chosen)} | ({"reference": made} if store else {})
    Path(report.path).write_text(page(opened, parts.split_checks), encoding="utf-8")
    return ("pass", [], list(parts.warnings), parts.checks, kept, made, checks)
