"""The page that compares training and serving: verdict, anomalies, and every feature, the most moved first."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.validation.skew_stage import SKEW_FILE, SkewResult
from gatehouse.reports.contents import write_page
from gatehouse.reports.page import Verdict, render
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a comparison, as HTML."""
    skew, anomalies = store.read_json(reference, SKEW_FILE), store.read_json(reference, "anomalies.json")
    inputs = store.manifest(reference).derived_from
    trained, served = (Reference.parse(inputs[role]).short for role in ("training_set", "serving"))
    named = {anomaly["column"] for anomaly in anomalies}
    return render(
        "skew.html",
        "Training-serving skew",
        f"trained on {trained}; served {served}",
        _verdict(skew, anomalies),
        skew=skew,
        anomalies=anomalies,
        moved={index: "bad" for index, feature in enumerate(skew["features"]) if feature["feature"] in named},
    )


def _verdict(skew: Json, anomalies: Sequence[Json]) -> Verdict:
    warnings = [
        f"{anomaly['column']}: {anomaly['rule']}: expected {anomaly['expected']}, found {anomaly['observed']}"
        for anomaly in anomalies
        if anomaly["severity"] == "warn"
    ]
    text, unchecked = "\n".join(skew["reasons"]), skew["not_judged"]
    if skew["verdict"] == "unjudged":
        todo = "log more of the rows that are served, with their features, and judge again."
        return Verdict("warn", text, (), warnings, unchecked, todo, "Not judged")
    if skew["verdict"] == "fail":
        todo = "look at how the named features are computed where they are served."
        return Verdict("fail", text, (), warnings, unchecked, todo)
    return Verdict("pass", "The served features are those of training.", (), warnings, unchecked)


def described(result: SkewResult, store: ArtifactStore) -> str:
    """The verdict and the features that moved most, as text for a terminal."""
    body = store.read_json(result.skew, SKEW_FILE)
    lines = [f"{result.verdict}: {body['rows']['serving']:,} logged rows against {body['rows']['training']:,} trained"]
    lines += [f"  - {reason}" for reason in result.reasons]
    moved = [feature for feature in body["features"] if feature["psi"] is not None][:10]
    lines += [f"  {feature['feature']:<32} psi {feature['psi']:.3f}  js {feature['js']:.3f}" for feature in moved]
    return "\n".join(lines)


def show(result: SkewResult, store: ArtifactStore, metrics: Any, report: Any) -> None:
    """Fill KFP's typed outputs (Metrics, HTML) from a comparison."""
    features = store.read_json(result.skew, SKEW_FILE)["features"]
    metrics.log_metric("features", len(features))
    metrics.log_metric("greatest psi", max((feature["psi"] or 0.0 for feature in features), default=0.0))
    metrics.log_metric("anomalies", len(store.read_json(result.skew, "anomalies.json")))
    write_page(store, result.skew, report.path)
    report.metadata["reference"] = store.address_of(result.skew)
