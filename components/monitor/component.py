"""The KFP interface of monitoring: the newest rows beside those of the champion, or beside any earlier table."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "training",
    title="Compare with the champion's data",
    cpu="2",
    memory="4G",
    files={"component": ("champion",), "of_tables": ("baseline",)},
    configurations={"spec": "monitoring"},
)
def monitor(
    current: dsl.Input[dsl.Dataset],
    drift: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    champion: dsl.Input[dsl.Model] = None,
    evaluation: dsl.Input[dsl.Artifact] = None,
    baseline: dsl.Input[dsl.Dataset] = None,
    predictions: str = "",
    predictions_table: dsl.Input[dsl.Dataset] = None,
    unlabelled: dsl.Input[dsl.Dataset] = None,
    since: str = "",
    until: str = "",
    stale: list = [],
    spec: dict = {},
    spec_file: dsl.Input[dsl.Artifact] = None,
    features: list = [],
    label: str = "",
    score: str = "",
    task: str = "binary",
    positive: str = "",
    event_time: str = "",
    group: str = "",
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("decision", str), ("verdict", str), ("reasons", list), ("warnings", list)]):
    """Compare the newest rows with those that a model was trained on: drift of data, labels and predictions, quality.

    With a champion of train, its own training set is the baseline, and its predictions are judged too. Without one any
    two tables are compared.

    Args:
        current: The newest rows: with a champion a training set, else a table.
        champion: The model, of resolve; empty to compare two tables.
        evaluation: The champion's evaluation at the gate, of resolve; empty for none.
        baseline: Without a champion: the earlier rows, of the same columns.
        predictions: With a champion: a log of predictions as a reference, `latest` for the newest of batch scoring,
            `live` for what its predictors answered, or Parquet files at a path or an address; empty to let the champion
            score the newest rows.
        predictions_table: The same log as a table, or of score.
        unlabelled: With a champion: rows whose label is not known yet, which are checked too.
        since: With a champion: only rows decided from this time on (ISO 8601 with zone); empty for all after the last
            train row.
        until: With a champion: only rows decided before this time; empty for all.
        stale: For each stale feature view why it is stale, of compute_features.
        spec: What is checked, as a MonitoringSpec; empty for the default.
        spec_file: The same as a file of YAML or JSON.
        features: The columns of two tables to compare; empty for all numbers and categories besides the columns named
            below, and besides ids, of which no value occurs twice.
        label: Column of labels, null while they are not known; empty for none.
        score: Column of predictions, as evaluate reads them; empty for none.
        task: binary, multiclass, regression or ranking.
        positive: The positive one of two classes with names.
        event_time: Column with the time of each row, so that seasons and days count; empty if rows are independent.
        group: Column of the rows that are ranked together; empty for none.
        format: parquet, csv or jsonl; empty to look at the tables.
        store: Address of the artifact store; empty for that of the artifacts, or for none.

    Returns:
        decision: retrain, keep or not judged.
        verdict: fail if a check alarms, also one of quality, which asks for no new model and leaves decision at keep;
            inconclusive if neither drift nor performance could be judged; warn if a change did not cause an alarm; or
            pass.
        reasons: Why it is no pass.
        warnings: Changes that gave no alarm, and checks that could not run.
        drift: The judgement with each check, for retrain.
        report: The report.
        summary: What moved, how much it matters, and why there is an alarm or not.
        metrics: The number of each check.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.errors import ConfigurationError
    from gatehouse.monitoring.report import present
    from gatehouse.monitoring.rows import collect_log
    from gatehouse.monitoring.stage import monitor as watch
    from gatehouse.store.parameters import configuration_of

    settings = configuration_of("spec", spec, spec_file, default={})
    run = ComponentTask(store, champion, baseline, current)
    optional = (champion, baseline, predictions_table)
    champion, baseline, predictions_table = (None if run.is_nothing(artifact) else artifact for artifact in optional)
    if bool(champion) == bool(baseline):
        raise ConfigurationError(f"Expected a champion or a baseline, found {'both' if champion else 'neither'}.")
    compared = {"current": run.published(current, format), "spec": settings}
    if champion:
        model = run.take("champion", champion, "models")
        log = run.find(predictions_table) or (predictions_table.path if predictions_table else predictions)
        compared |= {
            "model": model,
            "evaluation": run.take("evaluation", evaluation, "evaluations"),
            "predictions": collect_log(run.store, log, model, since, until),
            "unlabelled": run.take("unlabelled", unlabelled, "decisions"),
        }
        compared |= {"since": since, "until": until, "stale": stale}
    else:
        columns = {"label": label, "score": score, "task": task, "positive": positive, "features": features}
        columns |= {"event_time": event_time, "group": group}
        compared |= {"baseline": run.published(baseline, format), "columns": columns}
    result = run.run(watch, **compared)
    verdict, judged = result.verdict, result.decision != "not judged"
    reasons, warnings = list(result.alarms or result.warnings), list(result.warnings)
    if baseline:
        verdict = "fail" if result.alarms else "pass" if judged else "inconclusive"
        reasons = list(result.alarms or (() if judged else result.reasons))
        warnings = [text for text in result.warnings if text.removeprefix("not judged: ") not in reasons]
    present(run.store, result.drift, report, summary, metrics)
    run.label(result.drift, report, summary, metrics)
    run.give(drift, result.drift, verdict_facts(verdict, reasons) | {"decision": result.decision})
    return (result.decision, verdict, reasons, warnings)
