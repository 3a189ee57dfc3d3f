"""The KFP interface of the monitor stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def monitor(
    store: str,
    reference: str,
    split: str,
    current: str,
    since: str,
    spec: str,
    code: str,
    report: dsl.Output[dsl.HTML],
    model: str = "",
) -> NamedTuple("Outputs", [("drift", str), ("decision", str), ("reasons", list)]):
    """Compare the newest rows with what the champion was trained on.

    Args:
        store: Address of the artifact store.
        reference: Training set of the champion.
        split: Its split.
        current: Training set with the newest rows.
        since: Only rows decided after this time, ISO 8601; empty for all after the last train row.
        spec: Thresholds, as canonical JSON of a MonitoringSpec.
        code: Digest of the stage's code.
        model: Reference of the champion, whose scores are watched too; empty for none.

    Returns:
        drift: Reference of the drift report.
        decision: retrain or keep.
        reasons: Why.
        report: The report for the UI.
    """
    import shutil

    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.monitoring.spec import MonitoringSpec
    from gatehouse.components.monitoring.stage import MonitorRequest
    from gatehouse.components.monitoring.stage import monitor as compare
    from gatehouse.components.reports.rendering import rendered

    opened, thresholds = ArtifactStore.open(store), MonitoringSpec.model_validate_json(spec)
    request = MonitorRequest(
        reference=reference, split=split, current=current, since=since, model=model, spec=thresholds
    )
    result = compare(request, opened, code=code)
    shutil.copyfile(rendered(opened, result.drift), report.path)
    report.metadata["reference"] = opened.address_of(result.drift)
    return (result.drift, result.decision, list(result.reasons))
