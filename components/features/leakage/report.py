"""The page that explains the verdict on leakage."""

from collections.abc import Mapping, Sequence

from gatehouse.components.features.leakage.replay import Difference
from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict


def leakage_page(
    service: str,
    cuts: Sequence[tuple[str, int]],
    differences: Sequence[Difference],
    areas: Mapping[str, float],
    alarm: float,
    reasons: Sequence[str],
    rows: int,
) -> str:
    """The HTML report: the replayed cuts, what differed, and what every feature tells alone.

    Args:
        service: Name of the feature service.
        cuts: Cut time and number of rows compared there.
        differences: Features that differed, per cut.
        areas: ROC AUC of every feature alone.
        alarm: The ROC AUC above which a feature is taken for a leak.
        reasons: Why the verdict is not `pass`; empty where it is.
        rows: Number of rows of the training set.
    """
    compared = sum(count for _, count in cuts)
    sentence = (
        f"Nothing was used before it was known in what was compared: {compared:,} rows at {len(cuts)} cuts, of the "
        f"{rows:,} rows of the training set."
    )
    verdict = Verdict("fail", "\n".join(reasons)) if reasons else Verdict("pass", sentence)
    page = Report(f"Leakage check of {service}", verdict=verdict)
    page.section(
        "Time-travel replay",
        "At each cut the raw tables were taken back to what was known then, the features computed again and compared "
        "with the training set, for the rows decided in the hours up to the cut.",
    )
    found = {cut: sum(one.cut == cut for one in differences) for cut, _ in cuts}
    marks = {index: "bad" for index, (cut, _) in enumerate(cuts) if found[cut]}
    page.table(["cut", "rows compared", "features that differ"], [[cut, rows, found[cut]] for cut, rows in cuts], marks)
    if differences:
        page.table(
            ["where", "view", "feature", "cut", "rows", "first row", "stored", "replayed"],
            [_line(one) for one in differences],
        )
    ordered = sorted(areas.items(), key=lambda item: (-item[1], item[0]))
    page.section(
        "What one feature tells alone", f"ROC AUC against the label; above {alarm:.2f} it is taken for a leak."
    )
    page.figures(
        (bar_chart(ordered[:20], marker=alarm), "The 20 features that tell most; the dashed line is the alarm.")
    )
    page.table(
        ["feature", "ROC AUC"],
        [[name, area] for name, area in ordered],
        {index: "bad" for index, (_, area) in enumerate(ordered) if area > alarm},
    )
    return page.html()


def _line(one: Difference) -> list[str | int]:
    keys = ", ".join(f"{name}={value}" for name, value in one.example.items() if name not in ("stored", "replayed"))
    return [
        one.where,
        one.view,
        one.feature,
        one.cut,
        one.rows,
        keys,
        str(one.example["stored"]),
        str(one.example["replayed"]),
    ]
