"""The KFP interface of the monitor stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Compare with the champion's data", cpu="2", memory="4G")
def monitor(
    store: str,
    model: str,
    current: str,
    since: str,
    until: str,
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    spec: dict = {},
    stale: list = [],
    evaluation: str = "",
    predictions: str = "",
    unlabelled: str = "",
    rerun: str = "",
) -> NamedTuple("Outputs", [("drift", str), ("decision", str), ("verdict", str), ("reasons", list)]):
    """Compare the newest rows with what the champion was trained on.

    Args:
        store: Address of the artifact store.
        model: Reference of the champion, whose rows and predictions are those of before.
        current: Training set with the newest rows.
        since: Only rows decided from this time on, ISO 8601; empty for all after the last train row.
        until: Only rows decided before this time; empty for all.
        spec: What is checked, as a MonitoringSpec.
        stale: For each stale feature view why it is stale.
        evaluation: Reference of its evaluation at the gate; empty for none.
        predictions: A log of predictions: a reference, `latest` for the newest of batch scoring, or Parquet files;
            empty to score the newest rows with the champion.
        unlabelled: Reference of decisions whose label is not known yet, which are checked too; empty for none.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        drift: Reference of the drift report.
        decision: retrain, keep or not judged.
        verdict: fail if any check alarms, warn if a change did not cause an alarm, or pass.
        reasons: Why the verdict is not pass: the alarms, else the warnings.
        report: The report for the UI.
        summary: What moved, how much it matters, and why there is an alarm or not, for the UI.
        metrics: The number of each check, for the UI.
    """
    from gatehouse.monitoring.report import present
    from gatehouse.monitoring.rows import collect_log
    from gatehouse.monitoring.stage import monitor as watch
    from gatehouse.store.parameters import filled_in, open_store, request_of, runner

    opened = open_store(store)
    compared = {"model": model, "current": current, "since": since, "until": until, "evaluation": evaluation}
    compared["predictions"] = collect_log(opened, filled_in(predictions), model)
    request = request_of(watch, **compared, unlabelled=unlabelled, stale=stale, spec=spec)
    result = runner(opened, rerun)(watch, request)
    present(opened, result.drift, report, summary, metrics)
    return (result.drift, result.decision, result.verdict, list(result.alarms or result.warnings))
