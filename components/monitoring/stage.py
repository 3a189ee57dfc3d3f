"""The monitor stage: has the world moved away from what the champion was trained on?"""

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.monitoring.spec import MonitoringSpec


class MonitorRequest(StageModel):
    """What a model was trained on (a training set and its split), and the newest rows (another training set)."""

    reference: str
    split: str
    current: str
    since: str = ""
    spec: MonitoringSpec


class MonitorResult(StageModel):
    """The drift report, and `retrain` or `keep` with the reasons."""

    drift: str
    decision: str
    reasons: tuple[str, ...]


@stage("monitor", distributions=("numpy", "pyarrow"))
def monitor(request: MonitorRequest, store: ArtifactStore) -> MonitorResult:
    """Compare feature by feature; the artifact holds `drift.json` and `report.html`.

    Current rows are those of `current` decided after `since`; without it, those after the last train row.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from gatehouse.components.monitoring.drift import categorical_histograms, numeric_histograms, population_stability
    from gatehouse.components.monitoring.report import drift_report

    spec = request.spec
    manifest = store.manifest(request.reference)
    trained = pq.ParquetDataset(store.paths(request.reference)).read()
    trained = trained.take(pq.read_table(store.path(request.split, "train.parquet"))["row"])
    current = pq.ParquetDataset(store.paths(request.current)).read()
    since = pc.strptime(request.since, "%Y-%m-%dT%H:%M:%S%z", "us") if request.since else pc.max(trained["decision_time"])
    current = current.filter(pc.greater(current["decision_time"], since))
    features: dict[str, float] = {}
    if current.num_rows >= spec.min_rows:
        for name in manifest.details["numeric"]:
            features[name] = population_stability(*numeric_histograms(trained[name], current[name], spec.bins))
        for name in manifest.details["categorical"]:
            features[name] = population_stability(*categorical_histograms(trained[name], current[name]))
    label = manifest.details["label"]
    rates = (float(pc.mean(trained[label]).as_py()), float(pc.mean(current[label]).as_py() or 0.0))
    reasons = _reasons(spec, features, rates, current.num_rows)
    decision = "retrain" if reasons else "keep"
    drift = store.publish(
        "drift-reports",
        manifest.name,
        {
            "drift.json": canonical_json({"psi": features, "label_rate": list(rates), "rows": current.num_rows}),
            "report.html": drift_report(request, features, rates, current.num_rows, decision, reasons),
        },
        derived_from={"reference": request.reference, "split": request.split, "current": request.current},
        configuration=spec.model_dump(mode="json"),
        details={"decision": decision},
    )
    return MonitorResult(drift=str(drift), decision=decision, reasons=reasons)


def _reasons(
    spec: MonitoringSpec, features: dict[str, float], rates: tuple[float, float], rows: int
) -> tuple[str, ...]:
    if rows < spec.min_rows:
        return ()
    watched = {name: value for name, value in features.items() if name not in spec.ignore}
    drifted = [name for name, value in watched.items() if value > spec.psi_alarm]
    reasons = []
    if len(drifted) > spec.max_drifted * len(watched):
        named = ", ".join(sorted(drifted, key=lambda name: -watched[name])[:5])
        reasons.append(f"{len(drifted)} of {len(watched)} features have a PSI above {spec.psi_alarm:g}: {named}")
    if abs(rates[1] - rates[0]) > spec.label_alarm:
        reasons.append(f"the label rate went from {rates[0]:.3f} to {rates[1]:.3f}")
    return tuple(reasons)
