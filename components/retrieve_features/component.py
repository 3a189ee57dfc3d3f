"""The KFP interface of the retrieval from a plain Feast repository."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Retrieve features from Feast", cpu="2", memory="8G", artifacts=("repository",))
def retrieve_features(
    entity_rows: dsl.Input[dsl.Dataset],
    training_set: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
    repository: dsl.Input[dsl.Artifact] = None,  # KFP reads this form alone.
    repository_address: str = "",
    service: str = "",
    features: list = [],
    event_timestamp: str = "event_timestamp",
    offline_store: str = "",
    full_feature_names: bool = False,
    filter_by_created_timestamp: bool = False,
    unchecked: dict = {},
    label: str = "",
    task: str = "binary",
    name: str = "features",
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list), ("reference", str)]):
    """Join features of a Feast repository to rows point-in-time, and check that none is later than its row.

    The Python files of the repository are run in this task: give only a repository that you trust. It need not have
    been applied, and nothing is written to its registry or stores.

    Args:
        entity_rows: Rows with join keys, a time, and what on-demand views request; other columns stay.
        repository: A folder with `feature_store.yaml`, or a .zip or .tar.gz archive of it.
        repository_address: Its address instead, as s3://bucket/folder, gs://bucket/repo.zip, or a path.
        service: Name of the feature service; empty for the only one, or for features.
        features: Names as view:feature instead of a service.
        event_timestamp: Column with the time of each row; a time without a zone is UTC.
        offline_store: A type of Feast's offline stores, or gatehouse for ours; empty for that of `feature_store.yaml`.
        full_feature_names: Name features view__feature.
        filter_by_created_timestamp: Leave out values whose created timestamp is after the time of the row.
        unchecked: Why a view that has values may go unchecked, by its name.
        label: Column of the label, with which the store keeps the training set; empty for none.
        task: Task of the training set: binary, multiclass, regression or ranking.
        name: Name of the training set in the store.
        format: parquet, csv or jsonl; empty to look at the rows.
        store: Address of the artifact store that keeps the training set; empty for none.

    Returns:
        verdict: fail if a value differs in the replay, inconclusive if a view has no values or could not be checked, or
            pass.
        reasons: Why it is not pass.
        warnings: Features without values, and views that may go unchecked.
        reference: Reference of the training set, for split and train; empty without label and store.
        training_set: The rows in their order, then the features, as Parquet.
        report: Which views were replayed, and which values differ.
        metrics: Numbers of features, views compared and not checked, features that differ, and warnings.
    """
    from gatehouse.data.datasets import read_dataset, write_dataset
    from gatehouse.data.splitting.publication import Roles, publish_table
    from gatehouse.errors import ConfigurationError
    from gatehouse.features.leakage.retrieved import retrieve
    from gatehouse.store.parameters import checked, open_store

    if (repository is None) == (not repository_address):
        raise ConfigurationError("Expected a Feast repository as `repository`, or its `repository_address`, not both.")
    opened, rows = open_store(store), read_dataset(entity_rows.path, format)
    place = repository.path if repository else repository_address
    with opened.workspace() as workspace:
        retrieved = retrieve(
            place,
            rows,
            workspace,
            service=service,
            features=features,
            time=event_timestamp,
            offline_store=offline_store,
            full_feature_names=full_feature_names,
            filter_by_created_timestamp=filter_by_created_timestamp,
        )
    verdict, reasons, warnings, page = retrieved.judged(unchecked, service or name)
    write_dataset(retrieved.table, training_set.path)
    with open(report.path, "w", encoding="utf-8") as file:
        file.write(page)
    for title in ("features", "compared", "differences", "unchecked", "warnings"):
        metrics.log_metric(title, len(getattr(retrieved, title)))
    reference = ""
    if store and label:
        columns = {"keys": retrieved.keys, "event_time": event_timestamp, "features": retrieved.features}
        roles = checked("columns", Roles, {"label": label, "task": task, **columns})
        kept = publish_table(opened, name, read_dataset(training_set.path), roles, entity_rows=entity_rows)
        reference = opened.address_of(kept)
        training_set.metadata["reference"] = reference
    return (verdict, reasons, warnings, reference)
