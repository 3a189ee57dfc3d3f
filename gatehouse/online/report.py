"""Renders the page about the skew of an online store."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.online.materialization import Materialized
from gatehouse.online.skew import CORRECTED, EXPIRED, FRESH, LATE, RECENT, Compared, Skew
from gatehouse.online.stage import REPORT
from gatehouse.reports.format import duration
from gatehouse.reports.page import Report, Verdict
from gatehouse.reports.row_charts import bar_chart
from gatehouse.store.store import ArtifactStore

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 20
_KINDS = (FRESH, RECENT, CORRECTED, LATE, EXPIRED)


def page(store: ArtifactStore, reference: str) -> str:
    """The HTML page of a materialization."""
    return skew_page(store.manifest(reference).name, store.read_json(reference, REPORT))


def skew_page(service: str, body: Mapping[str, Any]) -> str:
    """The HTML page: verdict, rows written, and the comparison by view and by feature.

    Args:
        service: Name of the feature service.
        body: The content of `skew.json`.
    """
    reasons, max_skew = body["reasons"], body["max_skew"]
    skew = Skew(tuple(Compared(**one) for one in body["compared"]))
    written = [Materialized(**one) for one in body["written"]]
    unchecked = tuple(f"{view}: no value of it was compared" for view in skew.unseen)
    text = "\n".join(reasons) or "What is served is what is trained on."
    verdict = Verdict("fail" if reasons else "pass", text, unchecked=unchecked)
    report = Report(f"Online store of {service}", f"as of {_said(datetime.fromisoformat(body['as_of']))}", verdict)
    report.tiles(
        {"skew": f"{skew.share:.4%}", "allowed": f"{max_skew:.4%}", "values compared": skew.values}
        | {"values differing": sum(skew.differing.values()), "rows to write": sum(one.rows for one in written)}
    )
    report.section(
        "Compared",
        "Values read back online and joined offline at the same time: of keys with a fresh row, of the entity rows "
        "decided last, and of keys whose newest row was corrected, that had a row that came late, and whose newest row "
        "is expired. Where neither side has a value, nothing is counted.",
    )
    report.table(["view", *_KINDS, "values", "values that differ"], *_by_view(skew, written))
    if skew.unseen:
        report.note(f"No value of {', '.join(skew.unseen)} was compared; the verdict says why.")
    _differences(report, skew)
    report.section("Written", "Keys with rows that became known, or that were provisional. A rewrite replaces all.")
    report.table(
        ["view", "known before", "rows to write", "rows that changed", "rewritten"],
        [[one.view, _time(one.since), one.rows, one.changed, "yes" if one.rewritten else "no"] for one in written],
    )
    report.section(
        "Freshness", "Age of the newest event of every view at that time; a view without a limit has any age."
    )
    report.table(
        ["view", "age", "newest row known for", "allowed", "rows known later"],
        [
            [one["view"], *(_age(one[name]) for name in ("age", "known", "allowed")), one["ahead"]]
            for one in body["freshness"]
        ],
        {number: "bad" for number, one in enumerate(body["freshness"]) if one["stale"]},
    )
    return report.html()


def _by_view(skew: Skew, written: Sequence[Materialized]) -> tuple[list[list[str | int]], dict[int, str]]:
    rows: list[list[str | int]] = []
    for view in (one.view for one in written):
        own = [one for one in skew.compared if one.view == view]
        values = [sum(one.values for one in own if one.kind == kind) for kind in _KINDS]
        rows.append([view, *values, sum(values), sum(one.differing for one in own)])
    marks = {number: "warn" for number, row in enumerate(rows) if not row[-2]}
    return rows, marks | {number: "bad" for number, row in enumerate(rows) if row[-1]}


def _differences(report: Report, skew: Skew) -> None:
    found = sorted((one for one in skew.compared if one.differing), key=lambda one: (-one.differing, one.feature))
    if not found:
        return
    report.section("Differences", "The first keys of every feature whose online value is not the offline one.")
    cells: dict[str, int] = {}
    for one in skew.compared:
        cells[one.feature] = cells.get(one.feature, 0) + one.values
    bars = sorted(
        ((name, count / cells[name]) for name, count in skew.differing.items()), key=lambda bar: (-bar[1], bar)
    )
    report.figures((bar_chart(bars[:_SHOWN]), "Share of the compared values that differ, by feature: 1 is all."))
    report.table(
        ["view", "feature", "keys", "differ", "of", "key", "online", "offline"],
        [
            [one.view, one.feature, one.kind, one.differing, one.values, *example]
            for one in found
            for example in one.examples
        ],
    )


def _age(seconds: float | None) -> str:
    return "none" if seconds is None else duration(seconds)


def _time(moment: int | None) -> str:
    return "nothing" if moment is None else _said(_BEGINNING + timedelta(microseconds=moment))


def _said(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
