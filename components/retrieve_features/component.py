"""The KFP interface of point-in-time retrieval: from feature tables of Gatehouse, or from any Feast repository."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "data",
    title="Join features point-in-time",
    cpu="2",
    memory="8G",
    files={"component": ("feature_tables",), "of_feast_repository": ("entity_rows", "repository")},
)
def retrieve_features(
    rows: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
    feature_tables: dsl.Input[dsl.Dataset] = None,
    entity_rows: dsl.Input[dsl.Dataset] = None,
    repository: dsl.Input[dsl.Artifact] = None,  # KFP reads this form alone.
    repository_address: str = "",
    service: str = "",
    features: list = [],
    decisions: str = "labelled",
    since: str = "",
    until: str = "",
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
    tables: bool = False,
) -> NamedTuple(
    "Outputs", [("verdict", str), ("reasons", list), ("warnings", list), ("number", int), ("set_aside", dict)]
):
    """Join features to rows point-in-time, from feature tables of compute_features, or from any Feast repository.

    The values of a Feast repository are checked: none may be later than its row. The Python files of the repository
    are run in this task: give only a repository that you trust. It need not have been applied, and nothing is written
    to its registry or stores.

    Args:
        feature_tables: Of compute_features; or a Feast repository.
        entity_rows: Rows with join keys and a time, and of a Feast repository with what on-demand views request; other
            columns stay. With feature tables the default are the rows of their label.
        repository: A folder with `feature_store.yaml`, or a .zip or .tar.gz archive of it.
        repository_address: Its address instead, as s3://bucket/folder, gs://bucket/repo.zip, or a path.
        service: Name of the feature service; empty for the only one, or for features.
        features: Names as view:feature instead of a service, of a Feast repository.
        decisions: With feature tables, which rows of the label: labelled for those that have one; all, of which no
            label is read; or unlabelled for those whose label is not known yet.
        since: Of all, only rows from this time on (ISO 8601 with zone); empty for all.
        until: Of all, only rows before this time; empty for all that the snapshot covers.
        event_timestamp: Column of a Feast repository's rows with their time; a time without a zone is UTC.
        offline_store: A type of Feast's offline stores, or gatehouse for ours; empty for that of `feature_store.yaml`.
        full_feature_names: Name features view__feature.
        filter_by_created_timestamp: Leave out values whose created timestamp is after the time of the row.
        unchecked: Why a view that has values may go unchecked, by its name.
        label: Column of the label, with which the rows become a training set in the store; empty for none.
        task: Task of that training set: binary, multiclass, regression or ranking.
        name: Its name in the store.
        format: parquet, csv or jsonl; empty to look at the rows.
        store: Address of the artifact store; empty for that of the feature tables, or for none.
        tables: Whether to write the rows for tasks that do not know Gatehouse, in place of a manifest.

    Returns:
        verdict: Of a Feast repository, fail if a value differs in the replay, inconclusive if a view has no values or
            could not be checked, or pass. Of feature tables not checked, which check_leakage does.
        reasons: Why it is not pass.
        warnings: Features without values, and views that may go unchecked.
        number: Number of rows.
        set_aside: Number of rows that were set aside, by reason.
        rows: The rows, then their features; without a store as Parquet.
        report: Which views were replayed, and which values differ; or the page of the rows.
        metrics: Numbers of features, views compared and not checked, features that differ, and warnings.
    """
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.data.datasets import read_dataset, write_dataset
    from gatehouse.data.splitting.publication import publish_table, roles_of
    from gatehouse.errors import ConfigurationError
    from gatehouse.features.decisions_stage import retrieve_decisions
    from gatehouse.features.keys_stage import publish_keys
    from gatehouse.features.leakage.retrieved import retrieve
    from gatehouse.features.point_in_time.stage import retrieve_training_set

    sources = {"feature_tables": feature_tables, "repository": repository, "repository_address": repository_address}
    if len(named := [name for name, value in sources.items() if value]) != 1:
        raise ConfigurationError(f"Expected one of {', '.join(sources)}, found {', '.join(named) or 'none'}.")
    run = ComponentTask(store, feature_tables, entity_rows)
    entity_rows = None if run.is_nothing(entity_rows) else entity_rows
    if feature_tables:
        computed = run.take("feature_tables", feature_tables, "feature-tables")
        origin = {name: run.origin(computed, name) for name in ("snapshot", "definitions")}
        as_of = run.store.manifest(computed).details["as_of"]
        origin |= {"feature_tables": computed, "service": service, "as_of": as_of}
        verdict, reasons, set_aside = "not checked", ["check_leakage checks a training set of feature tables"], {}
        if decisions == "labelled" and not entity_rows:
            made = run.run(retrieve_training_set, **origin)
            joined, number, set_aside = made.training_set, made.rows, made.set_aside
        elif decisions in ("all", "unlabelled", "labelled"):
            keys = run.find(entity_rows, "keys")
            if entity_rows and not keys:
                keys = publish_keys(run.store, name, run.table(entity_rows, format))
            wanted = {"since": since, "until": until, "keys": keys, "unlabelled": decisions == "unlabelled"}
            taken = run.run(retrieve_decisions, **origin, **wanted)
            joined, number = taken.decisions, taken.rows
        else:
            raise ConfigurationError(f"decisions: expected labelled, all or unlabelled, found {decisions!r}.")
        run.give(rows, joined, tables=tables)
        if joined:
            run.show(report, joined)
        else:
            Path(report.path).write_text("<p>There are no such rows.</p>", encoding="utf-8")
        return (verdict, reasons, [], number, set_aside)
    if not entity_rows:
        raise ConfigurationError("entity_rows: expected the rows that get features of the repository, found none.")
    place = repository.path if repository else repository_address
    with run.store.workspace() as workspace:
        retrieved = retrieve(
            place,
            run.table(entity_rows, format),
            workspace,
            service=service,
            features=features,
            time=event_timestamp,
            offline_store=offline_store,
            full_feature_names=full_feature_names,
            filter_by_created_timestamp=filter_by_created_timestamp,
        )
    verdict, reasons, warnings, page = retrieved.judged(unchecked, service or name)
    write_dataset(retrieved.table, rows.path)
    Path(report.path).write_text(page, encoding="utf-8")
    for title in ("features", "compared", "differences", "unchecked", "warnings"):
        metrics.log_metric(title, len(getattr(retrieved, title)))
    if run.kept and label:
        columns = {"keys": retrieved.keys, "event_time": event_timestamp, "features": retrieved.features}
        roles = roles_of({"label": label, "task": task, **columns}, {})
        read, origin = read_dataset(rows.path), {"entity_rows": run.find(entity_rows)}
        kept = str(publish_table(run.store, name, read, roles, origin))
        run.give(rows, kept, verdict_facts(verdict, reasons), tables=tables)
    return (verdict, reasons, warnings, retrieved.table.num_rows, {})
