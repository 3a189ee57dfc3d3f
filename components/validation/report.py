"""The HTML report of a validation: verdict, anomalies, what was not judged, statistics of every column."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.components.reports.page import Report, Verdict
from gatehouse.components.validation.anomalies import Anomaly, Findings
from gatehouse.components.validation.statistics import Statistics

_MARK = {"fail": "bad", "warn": "warn"}


def validation_page(
    snapshot: str,
    as_of: str,
    findings: Findings,
    statistics: Mapping[str, Mapping[str, Statistics]],
    rows: Mapping[str, int],
    baseline: str,
) -> str:
    """The page.

    Args:
        snapshot: Short reference of the snapshot.
        as_of: The snapshot's time.
        findings: What judging found.
        statistics: By table and column.
        rows: Row count by table.
        baseline: Short reference of the baseline; empty for none.
    """
    anomalies = findings.sorted()
    failed = sum(one.severity == "fail" for one in anomalies)
    warned = len(anomalies) - failed
    subtitle = f"snapshot {snapshot}; as of {as_of}; baseline: {baseline or 'none'}"
    page = Report("Validation against the contract", subtitle, _verdict(findings, failed, warned))
    page.facts(
        {"rules judged": findings.judged, "failed": failed, "warned": warned, "not judged": len(findings.not_judged)}
    )
    _add_anomalies(page, anomalies)
    if findings.not_judged:
        page.section("Not judged", "A rule that could not be judged is not a rule that was kept.")
        page.table(["what"], [[line] for line in findings.not_judged])
    for table, columns in statistics.items():
        page.section(f"Table {table}", f"{rows[table]:,} rows; distinct counts and quantiles are approximate.")
        page.table(
            ["column", "type", "nulls", "distinct", "min", "median", "max", "mean", "deviation"],
            [_line(column, found) for column, found in columns.items()],
        )
    return page.html()


def _verdict(findings: Findings, failed: int, warned: int) -> Verdict:
    if failed:
        return Verdict("fail", "\n".join(findings.reasons()))
    if warned:
        return Verdict("pass", f"The snapshot keeps its contract, with {warned} warnings.")
    return Verdict("pass", "The snapshot keeps its contract.")


def _add_anomalies(page: Report, anomalies: Sequence[Anomaly]) -> None:
    if not anomalies:
        return
    page.section("Anomalies", "Those that fail the contract first.")
    page.table(
        ["severity", "table", "column", "rule", "expected", "found", "rows", "owner"],
        [
            [one.severity, one.table, one.column, one.rule, one.expected, one.observed, one.rows, one.owner]
            for one in anomalies
        ],
        {index: _MARK[one.severity] for index, one in enumerate(anomalies)},
    )
    for one in anomalies:
        if one.examples:
            page.note(f"{one.table}, {one.rule} of {one.column}: the first of {one.rows:,} rows, numbered from 0")
            headers = list(one.examples[0])
            page.table(headers, [[_cell(example[header]) for header in headers] for example in one.examples])


def _line(column: str, found: Statistics) -> list[Any]:
    wanted = ("distinct", "min", "median", "max", "mean", "std")
    return [column, found["type"], found["nulls"], *(found.get(statistic) for statistic in wanted)]


def _cell(value: Any) -> str:
    """A raw value as it stands in the data, without the rounding and separators of the other tables."""
    return "–" if value is None else str(value)
