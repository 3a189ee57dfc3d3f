"""The page of a validation: verdict, anomalies, what was not judged, and a card of every column.

An anomaly expands to its example rows and links to the card of its column, which links back. A card shows the column's
statistics beside the baseline's, its shape, values and anomalies.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gatehouse.data.snapshot.deliveries import delivered_tables, written_times
from gatehouse.data.statistics.stage import Measurement, measurement, statistics_of, without_values
from gatehouse.data.validation.anomalies import MOVEMENTS, Anomaly
from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.stage import ValidateResult
from gatehouse.reports.charts import Bin, distributions, meter, sparkline
from gatehouse.reports.contents import write_page
from gatehouse.reports.format import cut, share
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Statistics = Mapping[str, Any]

_LISTED = 10  # Values of each side.
_DRAWN = 20  # Values in the small chart of a column.
_VALUE = 80  # Characters of a value.
_MOST_OUTSIDE = 0.02  # A column with more of its rows outside of the baseline's bars is drawn in bars of its own.
_SMALLEST_SPAN = 1e-290


class Shape(NamedTuple):
    """The shape of a column: bars whose area is the share of the rows, so that bars of another width compare.

    `ends` are labels of the ends of the axis, empty for numbers; `outside` is the share of the rows beyond the axis.
    """

    own: tuple[Bin, ...]
    baseline: tuple[Bin, ...]
    limits: tuple[float, float]
    ends: tuple[str, ...]
    outside: float


def column_card(
    anchor: str,
    name: str,
    own: tuple[Statistics, int],
    baseline: tuple[Statistics | None, int],
    rebinned: Statistics | None,
    anomalies: Sequence[tuple[str, Anomaly]],
    form: str,
) -> dict[str, Any]:
    """The content of the card of one column.

    Statistics come with the rows of their table, anomalies with their id in the page; `rebinned` are the column's own
    rows in the baseline's bins, and `form` says how the source writes its times.
    """
    statistics, _ = own
    before, _ = baseline
    shape, figure = shape_of(statistics, rebinned, before), None
    spark = sparkline(shape.own, shape.limits) if shape else None
    counts = [count for _, count in statistics.get("values", ())[:_DRAWN]]
    if shape:
        groups = [("this snapshot", shape.own), *([("baseline", shape.baseline)] if shape.baseline else [])]
        label = cut(f"Distribution of {name}{' against the baseline' if shape.baseline else ''}")
        figure = distributions(groups, label, shape.limits, shape.ends)
    elif counts and counts[0] > 1:  # The shares of the most frequent values.
        bars = [Bin(index, index + 1, count) for index, count in enumerate(counts)]
        spark = sparkline(bars, (0, max(len(counts), 5)))
    return {
        "anchor": anchor,
        "name": name,
        "own": own,
        "baseline": baseline,
        "anomalies": anomalies,
        "written": written_times(form) if form else "",
        "spark": spark,
        "figure": figure,
        "outside": shape.outside if shape else 0.0,
        "unique": bool(counts) and counts[0] == 1 and len(statistics["values"]) > _LISTED,
        **_values(statistics, rebinned, before),
    }


def _values(own: Statistics, rebinned: Statistics | None, before: Statistics | None) -> dict[str, Any]:
    """The most frequent values with the baseline's share of each, and those that were frequent in the baseline."""
    if not own.get("values"):
        return {"values": [], "compared": False}
    rows = _rows_with_values(own)
    counts = {_key(value): count for value, count in own["values"]}
    listed = [value for value, _ in own["values"][:_LISTED]]
    shares: dict[tuple[str, Any], float] = {}
    rarest = 0.0
    if compared := before is not None and "values" in before:
        assert before is not None
        before_rows = _rows_with_values(before) or 1
        shares = {_key(value): count / before_rows for value, count in before["values"]}
        # A value that the baseline does not list is absent, or at most as frequent as the last one that it lists.
        rarest = min(shares.values(), default=0.0) if before.get("other") else 0.0
        counts = {_key(value): count for value, count in (rebinned or {}).get("values", ())} | counts
        shown = {_key(value) for value in listed}
        listed += [value for value, _ in before["values"][:_LISTED] if _key(value) not in shown]
    lines = []
    for value in listed:
        count, other = counts.get(_key(value), 0), shares.get(_key(value))
        unlisted = f"≤ {share(rarest)}" if rarest else "none"
        drawn = meter(count / rows, other if other is not None else None if rarest else 0.0)
        texts = (share(count / rows), unlisted if other is None else share(other))
        lines.append((cut(value, _VALUE), count, drawn if compared else meter(count / rows), *texts))
    rest = rows - sum(counts.get(_key(value), 0) for value in listed)
    if rest > 0:
        lines.append(("other values", rest, meter(rest / rows), share(rest / rows), ""))
    return {"values": lines, "compared": compared}


def _rows_with_values(statistics: Statistics) -> int:
    """Rows with a value, as far as the statistics count them."""
    if "values" in statistics:
        return int(sum(count for _, count in statistics["values"]) + statistics.get("other", 0))
    if "edges" not in statistics and "histogram" in statistics:
        return _rows_in(statistics["histogram"])
    return int(sum(statistics.get("counts", ())) + statistics.get("zeros", 0) + statistics.get("not_finite", 0))


def _key(value: Any) -> tuple[str, Any]:
    """Tells apart truth values and numbers that are equal."""
    return type(value).__name__, value


def shape_of(own: Statistics, rebinned: Statistics | None, baseline: Statistics | None) -> Shape | None:
    """The shape of a column; None without a histogram, and for one of a single value.

    `rebinned` are the rows of `own` counted in the bars of the baseline.
    """
    histograms = ((statistics or {}).get("histogram") for statistics in (own, rebinned, baseline))
    own_bars, shared, before = (
        bars if bars and len(bars["edges"]) > 2 and _rows_in(bars) > 0 else None for bars in histograms
    )
    if own_bars is None:
        return None
    # In the same bars, a difference comes from the rows and not from the bars.
    drawn = shared if before and shared and _outside(shared) <= _MOST_OUTSIDE else own_bars
    # Two periods of time lie beside each other, so their shapes do not compare.
    is_time = isinstance(drawn["edges"][0], str)
    bins, baseline_bins = _bins(drawn), _bins(before) if before and not is_time else ()
    if not bins:
        return None
    limits = min(part.low for part in (*bins, *baseline_bins)), max(part.high for part in (*bins, *baseline_bins))
    if not _SMALLEST_SPAN < limits[1] - limits[0] < 1 / _SMALLEST_SPAN:
        return None
    ends = tuple(drawn["edges"][index][:10] for index in (0, -1)) if is_time else ()
    return Shape(bins, baseline_bins, limits, ends, _outside(drawn))


def _rows_in(bars: Mapping[str, Any]) -> int:
    return int(sum(bars["counts"]) + bars["below"] + bars["above"])


def _outside(bars: Mapping[str, Any]) -> float:
    return float(bars["below"] + bars["above"]) / _rows_in(bars)


def _bins(bars: Mapping[str, Any]) -> tuple[Bin, ...]:
    """Bars as bins, times in seconds since 1970; none if a time is beyond the years of Python's `datetime`."""
    edges = bars["edges"]
    if isinstance(edges[0], str):
        try:
            times = [datetime.fromisoformat(edge) for edge in edges]
        except ValueError:
            return ()
        edges = [(time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() for time in times]
    pairs, rows = zip(edges, edges[1:], bars["counts"], strict=False), _rows_in(bars)
    return tuple(Bin(low, high, count / rows / (high - low)) for low, high, count in pairs if high > low)


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
    write_page(store, result.validation, report.path)
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
