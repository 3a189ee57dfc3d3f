"""The page that explains the verdict on leakage."""

from collections.abc import Mapping
from typing import Any

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.leakage.stage import REPORT
from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict


def page(store: ArtifactStore, reference: str) -> str:
    """The HTML page of a leakage report."""
    return leakage_page(store.manifest(reference).name, store.read_json(reference, REPORT))


def leakage_page(service: str, body: Mapping[str, Any]) -> str:
    """The HTML page: the replayed cuts, what differed, and what every feature tells alone.

    Args:
        service: Name of the feature service.
        body: What `leakage.json` says.
    """
    cuts, differences, alarm = body["cuts"], body["differences"], body["alarm"]
    sentence = (
        f"Nothing was used before it was known in what was compared: {sum(cut['rows'] for cut in cuts):,} rows at "
        f"{len(cuts)} cuts, of the {body['rows']:,} rows of the training set."
    )
    reasons = body["reasons"]
    verdict = Verdict("fail", "\n".join(reasons)) if reasons else Verdict("pass", sentence)
    report = Report(f"Leakage check of {service}", verdict=verdict)
    report.section(
        "Time-travel replay",
        "At each cut the raw tables were taken back to what was known then, the features computed again and compared "
        "with the training set, for the rows decided in the hours up to the cut.",
    )
    found = [sum(one["cut"] == cut["cut"] for one in differences) for cut in cuts]
    report.table(
        ["cut", "rows compared", "features that differ"],
        [[cut["cut"], cut["rows"], count] for cut, count in zip(cuts, found, strict=True)],
        {index: "bad" for index, count in enumerate(found) if count},
    )
    if differences:
        report.table(
            ["where", "view", "feature", "cut", "rows", "first row", "stored", "replayed"], map(_line, differences)
        )
    ordered = sorted(body["single_feature_auc"].items(), key=lambda item: (-item[1], item[0]))
    report.section(
        "What one feature tells alone", f"ROC AUC against the label; above {alarm:.2f} it is taken for a leak."
    )
    report.figures(
        (bar_chart(ordered[:20], marker=alarm), "The 20 features that tell most; the dashed line is the alarm.")
    )
    report.table(
        ["feature", "ROC AUC"],
        [[name, area] for name, area in ordered],
        {index: "bad" for index, (_, area) in enumerate(ordered) if area > alarm},
    )
    return report.html()


def _line(one: Mapping[str, Any]) -> list[str | int]:
    keys = ", ".join(f"{name}={value}" for name, value in one["first"].items())
    return [*(one[name] for name in ("where", "view", "feature", "cut", "rows")), keys, one["stored"], one["replayed"]]
