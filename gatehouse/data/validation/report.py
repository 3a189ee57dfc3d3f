"""The page of a validation: verdict, anomalies, what was not judged, and a card of every column.

An anomaly expands to its example rows and links to the card of its column, which links back.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.statistics.measurement import Measurement, measurement, statistics_of, without_values
from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.data.validation.column_card import column_card
from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.movement import MOVEMENTS
from gatehouse.data.validation.stage import ValidateResult
from gatehouse.reports.format import cut
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.reports.rendering import rendered
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

# These keep the page below a megabyte; `anomalies.json` holds everything.
_ANOMALIES = 200
_EXAMPLES = 60_000  # Characters of all example rows.
_REASONS = 3


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a validation, as HTML."""
    inputs = store.manifest(reference).derived_from
    snapshot, baseline = store.manifest(inputs["snapshot"]), inputs.get("baseline", "")
    delivered = delivered_tables(store, snapshot.reference)
    measured, before = measurement(store, inputs["statistics"]), measurement(store, statistics_of(store, baseline))
    statistics = {  # Columns in the order of the source.
        name: {column: columns[column] for column in delivered[name].columns if column in columns}
        for name in delivered
        if (columns := measured.statistics.get(name)) is not None
    }
    # A column may be sensitive now that was not when the baseline was measured.
    sensitive = {
        name: [column for column, own in columns.items() if own.get("sensitive")]
        for name, columns in statistics.items()
    }
    return drawn(
        {"snapshot": snapshot.reference.short, "as_of": snapshot.details["as_of"]},
        [Anomaly.from_json(anomaly) for anomaly in store.read_json(reference, "anomalies.json")],
        store.read_json(reference, "verdict.json"),
        Measurement(statistics, measured.rebinned, measured.rows),
        Reference.parse(baseline).short if baseline else "",
        Measurement(without_values(before.statistics, sensitive), before.rebinned, before.rows),
        json.loads(store.read_text(inputs["contract"], CONTRACT_FILE)),
        {name: table.times for name, table in delivered.items()},
    )


def show(result: ValidateResult, store: ArtifactStore, metrics: Any, report: Any) -> None:
    """Fill KFP's typed outputs (Metrics, HTML) from a validation."""
    severities = [anomaly["severity"] for anomaly in store.read_json(result.validation, "anomalies.json")]
    metrics.log_metric("failed", severities.count("fail"))
    metrics.log_metric("warned", severities.count("warn"))
    metrics.log_metric("rules judged", store.read_json(result.validation, "verdict.json")["judged"])
    shutil.copyfile(rendered(store, result.validation), report.path)
    report.metadata["reference"] = store.address_of(result.validation)


def drawn(
    snapshot: Json,
    anomalies: Sequence[Anomaly],
    verdict: Json,
    measured: Measurement,
    baseline: str = "",
    before: Measurement | None = None,
    contract: Json | None = None,
    times: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """The page of what was judged; `times` say how the source writes times, if not in ISO 8601."""
    contract, before, times = contract or {"tables": {}}, before or Measurement(), times or {}
    statistics, rows = measured.statistics, measured.rows
    failed = [anomaly for anomaly in anomalies if anomaly.severity == "fail"]
    # A name may hold any character, so cards and anomalies are linked by number.
    places = [(name, column) for name, columns in statistics.items() for column in columns]
    anchors = {place: f"c{index}" for index, place in enumerate(places)}
    entries, room = [], _EXAMPLES
    of_column: dict[tuple[str, str], list[tuple[str, Anomaly]]] = {}
    for index, anomaly in enumerate(anomalies[:_ANOMALIES]):
        entries.append(_entry(anomaly, anchors, room > 0))
        room -= sum(len(cell) + 20 for row in entries[-1]["examples"] for cell in row)
        for column in _columns(anomaly, anchors):
            of_column.setdefault((anomaly.table, column), []).append((f"a{index}", anomaly))
    compares = any(key in MOVEMENTS or key.endswith("_rows_ratio") for key in _keys(contract))
    beside = "" if compares or not baseline else ", shown beside: no rule of the contract looks at it"
    return render(
        "validation.html",
        "Validation against the contract",
        "",
        _verdict(anomalies, failed, verdict),
        snapshot=snapshot,
        baseline=f"{baseline}{beside}" if baseline else "none",
        tiles={
            "failed": Cell(len(failed), "bad" if failed else ""),
            "warned": Cell(len(anomalies) - len(failed), "warn" if len(failed) < len(anomalies) else ""),
            "rules judged": verdict["judged"],
            "not judged": len(verdict["not_judged"]),
            "rows": sum(rows.values()),
            "columns": len(places),
            "tables": len(statistics),
        },
        anomalies=entries,
        count=len(anomalies),
        not_judged=verdict["not_judged"],
        tables=[
            {
                "name": name,
                "rows": rows[name],
                "failed": sum(anomaly.table == name for anomaly in failed),
                "cards": [
                    column_card(
                        anchors[name, column],
                        column,
                        (own, rows[name]),
                        (before.statistics.get(name, {}).get(column), before.rows.get(name, 0)),
                        measured.rebinned.get(name, {}).get(column),
                        of_column.get((name, column), ()),
                        times.get(name, {}).get(column, ""),
                    )
                    for column, own in columns.items()
                ],
            }
            for name, columns in statistics.items()
        ],
    )


def _verdict(anomalies: Sequence[Anomaly], failed: Sequence[Anomaly], verdict: Json) -> Verdict:
    unchecked = [cut(text) for text in verdict["not_judged"]]
    warned = [str(anomaly) for anomaly in anomalies if anomaly.severity == "warn"]
    warnings = [cut(text, 160) for text in (*verdict.get("delivery", ()), *warned)]
    if not failed:
        with_warnings = f", with {counted(len(warnings), 'warning')}" if warnings else ""
        return Verdict("pass", f"The snapshot keeps its contract{with_warnings}.", (), warnings, unchecked)
    reasons = [cut(str(anomaly), 160) for anomaly in failed[:_REASONS]]
    reasons += [f"and {len(failed) - _REASONS:,} more, below"] if len(failed) > _REASONS else []
    owners = ", ".join(sorted({anomaly.owner for anomaly in failed if anomaly.owner}))
    text = f"The snapshot breaks its contract: {counted(len(failed), 'rule')} failed, {len(warned):,} warned."
    todo = f"ask {cut(owners) or 'the supplier of the data'} to correct it; if the data is right, change the contract."
    return Verdict("fail", text, reasons, warnings, unchecked, todo)


def _keys(body: Any) -> Iterator[str]:
    """Every key of a contract, at any depth."""
    for key, value in body.items() if isinstance(body, dict) else ():
        yield key
        yield from _keys(value)


def _columns(anomaly: Anomaly, anchors: Mapping[tuple[str, str], str]) -> list[str]:
    """The columns with cards that an anomaly names: one, or several joined by a comma."""
    if (anomaly.table, anomaly.column) in anchors:
        return [anomaly.column]
    return [name for name in anomaly.column.split(", ") if (anomaly.table, name) in anchors]


def _entry(anomaly: Anomaly, anchors: Mapping[tuple[str, str], str], with_examples: bool) -> dict[str, Any]:
    """One anomaly: its cells, and its example rows as they stand in the data."""
    shown, headers = len(anomaly.examples), list(anomaly.examples[0]) if anomaly.examples else []
    cells = [[example.get(header) for header in headers] for example in anomaly.examples if with_examples]
    more = anomaly.rows and anomaly.rows > shown
    return {
        "anomaly": anomaly,
        "links": [(anchors[anomaly.table, name], name) for name in _columns(anomaly, anchors)],
        "left_out": bool(anomaly.examples) and not with_examples,
        "summary": f"{shown:,} of {anomaly.rows:,} rows" if more else counted(shown, "example row"),
        "headers": headers,
        "examples": [["–" if cell is None else cut(cell, 200) for cell in row] for row in cells],
    }
