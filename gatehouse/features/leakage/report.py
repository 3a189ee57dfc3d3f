"""Renders the page that explains the leakage verdict."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gatehouse.features.leakage.stage import REPORT
from gatehouse.reports.elements import table
from gatehouse.reports.page import Report, Verdict
from gatehouse.reports.row_charts import bar_chart
from gatehouse.runtime.counting import counted
from gatehouse.store.store import ArtifactStore


def page(store: ArtifactStore, reference: str) -> str:
    """The HTML page of a leakage report."""
    return leakage_page(store.manifest(reference).name, store.read_json(reference, REPORT))


def leakage_page(service: str, body: Mapping[str, Any]) -> str:
    """The HTML page: the replayed cuts, the differences, and how well each feature alone predicts the label.

    Args:
        service: Name of the feature service.
        body: The content of `leakage.json`.
    """
    cuts, differences, alarm = body["cuts"], body["differences"], body["alarm"]
    report = Report(f"Leakage check of {service}", verdict=_verdict(body))
    report.section(
        "Time-travel replay",
        "At each cut the raw tables were taken back to what was known then, the features computed again and compared "
        "with the stored ones: rows of a view that count from the hours up to the cut, and rows of the training set "
        "decided in them. Each view is replayed at moments from which its own rows count, and all at the middle "
        "decision. A leak that shows at half of a view's moments is overlooked at all of its own "
        f"{body['planned']} moments with a probability of {0.5 ** body['planned']:.1%} at most.",
    )
    differing = {name: {one["feature"] for one in differences if one["view"] == name} for name in body["views"]}
    report.table(
        ["view", "", "cuts", "rows compared", "features that differ"],
        [
            [name, status, *_compared(cuts, name), ", ".join(sorted(differing[name]))]
            for name, status in body["views"].items()
        ],
        {index: mark for index, name in enumerate(body["views"]) if (mark := _mark(name, body, differing[name]))},
    )
    if differences:
        report.table(
            ["where", "view", "feature", "cut", "rows", "first row", "stored", "replayed"], map(_line, differences)
        )
    ordered = sorted(body["single_feature_auc"].items(), key=lambda item: (-item[1], item[0]))
    report.section(
        "What one feature tells alone",
        f"ROC AUC of telling {body.get('told', 'the label')}; above {alarm:g} it is taken for a leak.",
    )
    if together := body.get("together"):
        report.facts(
            {
                "all together, by a linear model": f"{together['area']:.3f} ({together['low']:.3f} to "
                f"{together['high']:.3f}), alarm of the gate {body['model_alarm']:g}"
            }
        )
    report.figures((bar_chart(ordered[:20], marker=alarm, marker_name="alarm"), "The features that tell most."))
    marks = {index: "bad" for index, (_, area) in enumerate(ordered) if area > alarm}
    rows = [[name, area] for name, area in ordered]
    report.folded(f"All {len(rows):,} features", table(["feature", "ROC AUC"], rows, marks, label="All features"))
    return report.html()


def _verdict(body: Mapping[str, Any]) -> Verdict:
    cuts, reasons, warnings = body["cuts"], body["reasons"], tuple(body["warnings"])
    unchecked = tuple(f"{name}: {status}" for name, status in body["views"].items() if status != "replayed")
    if reasons:
        stamp = "correct what is named, so that each row is stamped with the moment when its values were known."
        todo = stamp if body["differences"] else "do what the last sentence of each reason says."
        return Verdict("fail", "\n".join(reasons), warnings=warnings, unchecked=unchecked, todo=todo)
    of_views, of_set = (sum(sum(cut["views"].values()) for cut in cuts), sum(cut["rows"] for cut in cuts))
    sentence = (
        f"Nothing was used before it was known in what was compared: {counted(of_views, 'row')} of views and "
        f"{of_set:,} of the training set's {counted(body['rows'], 'row')}, at {counted(len(cuts), 'cut')}."
    )
    return Verdict("warn" if warnings else "pass", sentence, warnings=warnings, unchecked=unchecked)


def _compared(cuts: Sequence[Mapping[str, Any]], view: str) -> tuple[int, int]:
    """At how many cuts a view was replayed, and how many of its rows were compared."""
    rows = [cut["views"][view] for cut in cuts if view in cut["views"]]
    return len(rows), sum(rows)


def _mark(view: str, body: Mapping[str, Any], differing: Collection[str]) -> str:
    if differing:
        return "bad"
    return "warn" if body["views"][view] == "not checked" else ""


def _line(one: Mapping[str, Any]) -> list[str | int]:
    keys = ", ".join(f"{name}={value}" for name, value in one["first"].items())
    return [*(one[name] for name in ("where", "view", "feature", "cut", "rows")), keys, one["stored"], one["replayed"]]
