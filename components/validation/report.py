"""The HTML report of a validation: verdict, anomalies, what was not judged, and a card of every column.

An anomaly expands to its example rows and links to the card of its column, which links back. All of it is one file
that needs no server; the filter needs the page's own script, everything else does not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.components.reports.elements import (
    Entry,
    Marked,
    Piece,
    cell,
    isolated,
    link,
    shortened,
    sign,
    table,
)
from gatehouse.components.reports.page import Report, Verdict
from gatehouse.components.validation.anomalies import Anomaly, Findings
from gatehouse.components.validation.column_card import Column, column_card
from gatehouse.components.validation.shape import Statistics

ByColumn = Mapping[str, Mapping[str, Statistics]]
Anchors = Mapping[tuple[str, str], str]

# What keeps the page below a megabyte however much is wrong; `anomalies.json` beside it holds everything.
_ANOMALIES = 200
_EXAMPLES_BYTES = 60_000
_REASONS = 3
_SEVERITIES = ("fail", "warn")


def validation_page(
    snapshot: str,
    as_of: str,
    findings: Findings,
    statistics: ByColumn,
    rows: Mapping[str, int],
    baseline: str,
    *,
    baseline_statistics: ByColumn | None = None,
    baseline_rows: Mapping[str, int] | None = None,
    rebinned: ByColumn | None = None,
) -> str:
    """The page.

    Args:
        snapshot: Short reference of the snapshot.
        as_of: The snapshot's time.
        findings: What judging found.
        statistics: By table and column.
        rows: Row count by table.
        baseline: Short reference of the baseline; empty for none.
        baseline_statistics: Statistics by table and column of the baseline.
        baseline_rows: Rows by table of the baseline.
        rebinned: The snapshot's rows by table and column, counted in the baseline's bins.
    """
    anomalies = findings.sorted()
    anchors = _anchors(statistics)
    page = Report("Validation against the contract", "", _verdict(anomalies))
    page.facts({"snapshot": snapshot, "as of": as_of, "baseline": baseline or "none"})
    page.tiles(_numbers(findings, anomalies, statistics, rows))
    page.filters({"severity": _SEVERITIES, "table": sorted({*statistics, *(one.table for one in anomalies)})})
    _add_anomalies(page, anomalies, anchors)
    if findings.not_judged:
        text = "A rule that could not be judged is not a rule that was kept."
        page.section("Not judged", text, f"{len(findings.not_judged):,}")
        page.table(["what"], [[shortened(line)] for line in findings.not_judged])
    found = _by_column(anomalies, anchors)
    for name, columns in statistics.items():
        failed = sum(one.table == name and one.severity == "fail" for one in anomalies)
        text = f"{rows[name]:,} rows, {len(columns):,} columns. Open a column for its statistics."
        page.section(f"Table {shortened(name, 120)}", text, f"{failed:,} failed" if failed else "")
        before, again = ((side or {}).get(name, {}) for side in (baseline_statistics, rebinned))
        shown = [
            Column(
                table=name,
                name=column,
                own=own,
                rows=rows[name],
                baseline=before.get(column),
                baseline_rows=(baseline_rows or {}).get(name, 0),
                rebinned=again.get(column),
                anomalies=found.get((name, column), ()),
            )
            for column, own in columns.items()
        ]
        page.cards([column_card(column, anchors[name, column.name]) for column in shown])
    return page.html()


def _anchors(statistics: ByColumn) -> Anchors:
    """What links to the card of each column name: its number, as a name may hold any character."""
    places = [(name, column) for name, columns in statistics.items() for column in columns]
    return {place: f"c{index}" for index, place in enumerate(places)}


def _columns(anomaly: Anomaly, anchors: Anchors) -> list[str]:
    """The columns with cards that an anomaly names: one, or several joined by a comma."""
    if (anomaly.table, anomaly.column) in anchors:
        return [anomaly.column]
    return [name for name in anomaly.column.split(", ") if (anomaly.table, name) in anchors]


def _by_column(anomalies: Sequence[Anomaly], anchors: Anchors) -> dict[tuple[str, str], list[tuple[str, Anomaly]]]:
    """Anchor and anomaly of those that are on the page, by table and column."""
    found: dict[tuple[str, str], list[tuple[str, Anomaly]]] = {}
    for index, one in enumerate(anomalies[:_ANOMALIES]):
        for column in _columns(one, anchors):
            found.setdefault((one.table, column), []).append((f"a{index}", one))
    return found


def _verdict(anomalies: Sequence[Anomaly]) -> Verdict:
    failed = [one for one in anomalies if one.severity == "fail"]
    warned = len(anomalies) - len(failed)
    if failed:
        reasons = [shortened(str(one), 160) for one in failed[:_REASONS]]
        if len(failed) > _REASONS:
            reasons.append(f"and {len(failed) - _REASONS:,} more, below")
        text = f"The snapshot breaks its contract: {_rules(len(failed))} failed, {warned:,} warned."
        return Verdict("fail", text, tuple(reasons))
    if warned:
        return Verdict("pass", f"The snapshot keeps its contract, with {warned:,} warning{'s' * (warned > 1)}.")
    return Verdict("pass", "The snapshot keeps its contract.")


def _rules(count: int) -> str:
    return f"{count:,} rule{'s' * (count != 1)}"


def _numbers(
    findings: Findings, anomalies: Sequence[Anomaly], statistics: ByColumn, rows: Mapping[str, int]
) -> dict[str, Any]:
    failed = sum(one.severity == "fail" for one in anomalies)
    return {
        "failed": Marked(failed, "bad" if failed else ""),
        "warned": Marked(len(anomalies) - failed, "warn" if len(anomalies) > failed else ""),
        "rules judged": findings.judged,
        "not judged": len(findings.not_judged),
        "rows": sum(rows.values()),
        "columns": sum(len(columns) for columns in statistics.values()),
        "tables": len(statistics),
    }


def _add_anomalies(page: Report, anomalies: Sequence[Anomaly], anchors: Anchors) -> None:
    if not anomalies:
        page.section("Anomalies", "None: every rule that was judged is kept.", "0")
        return
    hidden = len(anomalies) - _ANOMALIES
    text = "Those that fail the contract first." + (
        f" {hidden:,} more are in anomalies.json beside this report." if hidden > 0 else ""
    )
    page.section("Anomalies", text, f"{len(anomalies):,}")
    room, entries = _EXAMPLES_BYTES, []
    for index, one in enumerate(anomalies[:_ANOMALIES]):
        more = _examples(one) if room > 0 else _left_out(one)
        room -= len(more[1]) if more else 0
        entries.append(_entry(one, index, more, anchors))
    page.entries(["severity", "where", "rule", "expected", "found", "rows", "owner"], entries)


def _entry(one: Anomaly, index: int, more: tuple[str, str] | None, anchors: Anchors) -> Entry:
    linked = _columns(one, anchors)
    if linked:
        where = f"{isolated(one.table)}.{', '.join(link(anchors[one.table, name], shortened(name)) for name in linked)}"
    else:
        where = isolated(shortened(f"{one.table}.{one.column}" if one.column else one.table))
    texts = [Piece(isolated(shortened(text))) for text in (one.rule, one.expected, one.observed)]
    cells = [Piece(sign(one.severity)), Piece(f"<div>{where}</div>"), *texts, one.rows, one.owner]
    return Entry(cells, f"a{index}", {"severity": [one.severity], "table": [one.table]}, more)


def _examples(one: Anomaly) -> tuple[str, str] | None:
    if not one.examples:
        return None
    shown = len(one.examples)
    title = (
        f"{shown:,} of {one.rows:,} rows"
        if one.rows and one.rows > shown
        else f"{shown:,} example row{'s' * (shown != 1)}"
    )
    headers = list(one.examples[0])
    rows = [[_raw(example.get(header)) for header in headers] for example in one.examples]
    label = f"Example rows of {one.rule} in {one.table}"
    return title, f'<p class="note">Rows are numbered from 0.</p>{table(headers, rows, label=label)}'


def _left_out(one: Anomaly) -> tuple[str, str] | None:
    if not one.examples:
        return None
    return "Example rows", "<p>They are in anomalies.json beside this report, which has no room for more.</p>"


def _raw(value: Any) -> Piece:
    """A value as it stands in the data, without the rounding and separators of the other tables."""
    return cell("–" if value is None else str(value), 200)
