"""The page about a comparison of training and serving: verdict, anomalies, and every feature, the most moved first."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.validation.skew.stage import SKEW_FILE, SkewResult
from gatehouse.reports.format import percent
from gatehouse.reports.page import Report, Verdict
from gatehouse.reports.rendering import rendered
from gatehouse.reports.row_charts import bar_chart
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

_SHOWN = 30


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a comparison, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the comparison.
    """
    found, anomalies = store.read_json(reference, SKEW_FILE), store.read_json(reference, "anomalies.json")
    inputs = store.manifest(reference).derived_from
    trained, served = (Reference.parse(inputs[role]).short for role in ("training_set", "serving"))
    drawn = Report("Training-serving skew", f"trained on {trained}; served {served}", _verdict(found, anomalies))
    rows = found["rows"]
    drawn.section("Rows").facts(
        {"trained": rows["training"], "served": rows["serving"], "rules judged": found["judged"]}
    )
    if anomalies:
        drawn.section("Anomalies").table(
            ["severity", "feature", "rule", "expected", "found"],
            [[one[key] for key in ("severity", "column", "rule", "expected", "observed")] for one in anomalies],
            {index: "bad" if one["severity"] == "fail" else "warn" for index, one in enumerate(anomalies)},
        )
    if found["not_judged"]:
        drawn.section("Not judged", "What could not be judged has not passed.")
        drawn.table(["what"], [[line] for line in found["not_judged"]])
    _add_features(drawn, found["features"], {one["column"] for one in anomalies})
    return drawn.html()


def _verdict(found: Json, anomalies: Sequence[Json]) -> Verdict:
    warnings = tuple(
        f"{one['column']}: {one['rule']}: expected {one['expected']}, found {one['observed']}"
        for one in anomalies
        if one["severity"] == "warn"
    )
    text, unchecked = "\n".join(found["reasons"]), tuple(found["not_judged"])
    if found["verdict"] == "unjudged":
        todo = "log more of the rows that are served, with their features, and judge again."
        return Verdict("warn", text, (), warnings, unchecked, todo, title="Not judged")
    if found["verdict"] == "fail":
        todo = "look at how the features that are named are computed where they are served."
        return Verdict("fail", text, (), warnings, unchecked, todo)
    return Verdict("pass", "The features that are served are those that were trained on.", (), warnings, unchecked)


def _add_features(drawn: Report, compared: Sequence[Json], moved: set[str]) -> None:
    told = "Distances of the served rows, counted in bins of the training set; most moved first."
    drawn.section("Features", told, f"{len(compared):,}")
    bars = [(one["feature"], one["psi"]) for one in compared[:_SHOWN] if one["psi"] is not None]
    if bars:
        drawn.figures((bar_chart(bars), "Population stability index."))
    shares = ("no value, trained", "no value, served")
    keys = ("feature", "psi", "js", "linf", "nulls_trained", "nulls_served", "mean_trained", "mean_served")
    drawn.table(
        ["feature", "PSI", "JS", "L-infinity", *shares, "mean, trained", "mean, served"],
        [[one[key] for key in keys] for one in compared],
        {index: "bad" for index, one in enumerate(compared) if one["feature"] in moved},
        dict.fromkeys(shares, percent),
    )


def described(result: SkewResult, store: ArtifactStore) -> str:
    """The verdict and the features that moved most, as text for a terminal."""
    body = store.read_json(result.skew, SKEW_FILE)
    lines = [f"{result.verdict}: {body['rows']['serving']:,} logged rows against {body['rows']['training']:,} trained"]
    lines += [f"  - {reason}" for reason in result.reasons]
    moved = [one for one in body["features"] if one["psi"] is not None][:10]
    lines += [f"  {one['feature']:<32} psi {one['psi']:.3f}  js {one['js']:.3f}" for one in moved]
    return "\n".join(lines)


def show(result: SkewResult, store: ArtifactStore, metrics: Any, report: Any) -> None:
    """Fill KFP's typed outputs (Metrics, HTML) from a comparison."""
    features = store.read_json(result.skew, SKEW_FILE)["features"]
    metrics.log_metric("features", len(features))
    metrics.log_metric("greatest psi", max((one["psi"] or 0.0 for one in features), default=0.0))
    metrics.log_metric("anomalies", len(store.read_json(result.skew, "anomalies.json")))
    shutil.copyfile(rendered(store, result.skew), report.path)
    report.metadata["reference"] = store.address_of(result.skew)
