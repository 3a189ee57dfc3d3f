"""The KFP interface of the monitor stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Compare with the champion's data", caching=True, cpu="2", memory="4G")
def monitor(
    store: str,
    reference: str,
    split: str,
    current: str,
    since: str,
    until: str,
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    spec: dict = {},
    stale: list = [],
    model: str = "",
    evaluation: str = "",
    predictions: str = "",
    unlabelled: str = "",
    rerun: str = "",
) -> NamedTuple("Outputs", [("drift", str), ("decision", str), ("verdict", str), ("reasons", list)]):
    """Compare the newest rows with what the champion was trained on.

    Args:
        store: Address of the artifact store.
        reference: Training set of the champion.
        split: Its split.
        current: Training set with the newest rows.
        since: Only rows decided from this time on, ISO 8601; empty for all after the last train row.
        until: Only rows decided before this time; empty for all.
        spec: What is checked, as a MonitoringSpec.
        stale: For each stale feature view why it is stale.
        model: Reference of the champion, whose predictions are checked too; empty for none.
        evaluation: Reference of its evaluation at the gate; empty for none.
        predictions: Reference of a log of predictions; empty to score the newest rows with the champion.
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
    from gatehouse.monitoring.stage import monitor as watch
    from gatehouse.store.parameters import open_store, request_of, runner

    opened = open_store(store)
    compared = {"reference": reference, "split": split, "current": current, "since": since, "until": until}
    compared |= {"model": model, "evaluation": evaluation, "predictions": predictions}
    request = request_of(watch, **compared, unlabelled=unlabelled, stale=stale, spec=spec)
    result = runner(opened, rerun)(watch, request)
    present(opened, result.drift, report, summary, metrics)
    return (result.drift, result.decision, result.verdict, list(result.alarms or result.warnings))
