"""A column's card in the report of a validation: its statistics beside the baseline's, its shape, values, anomalies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.data.snapshot.deliveries import written_times
from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.data.validation.reports.shape import Shape, Statistics, shape_of
from gatehouse.reports.charts import Bin, distributions, sparkline
from gatehouse.reports.elements import Card, cell, isolated, link, meter, shortened, sign, table
from gatehouse.reports.format import Html, escape, number, percent

_LISTED = 10  # Values of each side.
_DRAWN = 20  # Values in the small chart of a column.
_VALUE = 80  # Characters of a value.


@dataclass(frozen=True)
class Column:
    """What a card shows.

    Attributes:
        table, name: Which column.
        own: Its statistics.
        rows: Rows of the table.
        baseline: The baseline's statistics of it, None for none.
        baseline_rows: Rows of the baseline's table.
        rebinned: The column's own rows counted in the baseline's bins, None for no baseline.
        anomalies: Anchor and anomaly of those that name it.
        form: How the source writes its times: a unit since 1970 or a format; empty for ISO 8601 and for no times.
    """

    table: str
    name: str
    own: Statistics
    rows: int
    baseline: Statistics | None
    baseline_rows: int
    rebinned: Statistics | None
    anomalies: Sequence[tuple[str, Anomaly]]
    form: str = ""


def _held(found: Statistics) -> int:
    """Rows with a value, as far as statistics tell it."""
    if "values" in found:
        return int(sum(count for _, count in found["values"]) + found.get("other", 0))
    if "edges" not in found and "histogram" in found:
        bars = found["histogram"]
        return int(sum(bars["counts"]) + bars["below"] + bars["above"])
    return int(sum(found.get("counts", ())) + found.get("zeros", 0) + found.get("not_finite", 0))


def column_card(column: Column, anchor: str) -> Card:
    """The card of one column."""
    own = column.own
    shape = shape_of(own, column.rebinned, column.baseline)
    nulls = own["nulls"] / column.rows if column.rows else 0.0
    other = column.baseline["nulls"] / column.baseline_rows if column.baseline and column.baseline_rows else None
    severities = [each for each in ("fail", "warn") if any(one.severity == each for _, one in column.anomalies)]
    distinct = f"{_distinct(own)} distinct" if "distinct" in own else ""
    odd = own.get("not_finite", 0)
    loose = f'<span class="odd">{escape(_share(odd / column.rows))} NaN or ∞</span>' if odd else ""
    summary = Html(
        f'<span class="kind">{escape(own["type"])}</span>'
        f"{_spark(own, shape)}"
        f'<span class="distinct">{distinct}</span>'
        f'<span class="nulls">{meter(nulls, other)}{escape(_share(nulls))} null{loose}</span>'
        f'<span class="marks">{"".join(map(sign, severities))}</span>'
    )
    notes = ["Sensitive: rows are counted, and no value is kept."] * bool(own.get("sensitive"))
    notes += [f"Written in the source as {written_times(column.form)}."] * bool(column.form)
    body = [
        _found(column),
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        '<div class="sides">',
        _statistics(column),
        _figure(column, shape),
        _values(column),
        "</div>",
    ]
    facets = {"severity": severities, "table": [column.table]}
    return Card(shortened(column.name, 200), anchor, summary, Html("".join(body)), facets)


def _spark(own: Statistics, shape: Shape | None) -> str:
    """The shape of numbers and times; of texts and truth values the shares of the most frequent ones."""
    if shape:
        return sparkline(shape.own, shape.limits)
    counts = [count for _, count in own.get("values", ())[:_DRAWN]]
    if not counts or counts[0] == 1:
        return '<span class="spark"></span>'
    return sparkline([Bin(at, at + 1, count) for at, count in enumerate(counts)], (0, max(len(counts), 5)))


def _found(column: Column) -> str:
    lines = "".join(
        f"<li>{sign(one.severity)}{link(anchor, one.rule)}"
        f"<span>found {isolated(shortened(one.observed, 120))}</span></li>"
        for anchor, one in column.anomalies
    )
    return f'<ul class="found">{lines}</ul>' if lines else ""


def _statistics(column: Column) -> str:
    """Name and value of each statistic, the baseline's beside it."""
    sides = [(column.own, column.rows)]
    if column.baseline:
        sides.append((column.baseline, column.baseline_rows))
    cells = [_lines(found, rows) for found, rows in sides]
    names = dict.fromkeys(name for side in cells for name in side)
    headers = ["statistic", "this snapshot", *(["baseline"] if column.baseline else [])]
    rows = [[name, *(side.get(name, "–") for side in cells)] for name in names]
    return table(headers, rows, label=f"Statistics of {column.name}", named=True)


def _lines(found: Statistics, rows: int) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    for key, name in (("nulls", "nulls"), ("zeros", "zeros"), ("not_finite", "not finite")):
        if found.get(key) is not None and (found[key] or key == "nulls"):
            lines[name] = f"{number(found[key])}{f' ({_share(found[key] / rows)})' if rows else ''}"
    if "distinct" in found:
        lines["distinct"] = _distinct(found)
    lines |= {name: _value(found[name]) for name in ("min", "median", "max") if name in found}
    levels = found.get("quantiles", {})
    if "0.05" in levels and "0.95" in levels:
        lines["middle 90 %"] = f"{_plain(levels['0.05'])} to {_plain(levels['0.95'])}"
    lines |= {name: number(found[key]) for key, name in (("mean", "mean"), ("std", "± deviation")) if key in found}
    if "mean_length" in found:
        lengths = f"{number(found['min_length'])} to {number(found['max_length'])}"
        lines["length"] = f"{lengths}, mean {found['mean_length']:.1f}"
    return lines


def _distinct(found: Statistics) -> str:
    """Exact where every value was counted, else an estimate."""
    return f"{'' if found.get('exact') else '≈ '}{number(found['distinct'])}"


def _plain(value: Any) -> str:
    """A number, or a time as short as a cell wants it."""
    return value[:10] if isinstance(value, str) else number(value)


def _value(value: Any) -> Any:
    return cell(value, _VALUE) if isinstance(value, str) else number(value)


def _figure(column: Column, shape: Shape | None) -> str:
    if shape is None:
        return ""
    groups = [("this snapshot", shape.own), *([("baseline", shape.baseline)] if shape.baseline else [])]
    against = " against the baseline" if shape.baseline else ""
    note = ""
    if shape.outside:
        note = f"<figcaption>{escape(_share(shape.outside))} of the rows are beyond the axis.</figcaption>"
    label = shortened(f"Distribution of {column.name}{against}")
    drawn = distributions(groups, label, shape.limits, shape.ends)
    return f"<figure>{drawn}{note}</figure>"


def _values(column: Column) -> str:
    """The most frequent values with the baseline's share of each, and those that the baseline had more of."""
    own = column.own
    if not own.get("values"):
        return ""
    if own["values"][0][1] == 1 and len(own["values"]) > _LISTED:
        return '<p class="note">No two rows have the same value.</p>'
    rows = _held(own)
    counts = {_key(value): count for value, count in own["values"]}
    listed = [value for value, _ in own["values"][:_LISTED]]
    before = _Before(column.baseline) if column.baseline and "values" in column.baseline else None
    if before:
        counts = {_key(value): count for value, count in (column.rebinned or {}).get("values", ())} | counts
        shown = {_key(value) for value in listed}
        listed += [value for value in before.first if _key(value) not in shown]
    lines = [_line(value, counts.get(_key(value), 0) / rows, before) for value in listed]
    rest = rows - sum(counts.get(_key(value), 0) for value in listed)
    headers = ["value", "rows", "share", *(["baseline"] if before else [])]
    drawn = [
        [cell(str(value), _VALUE), counts.get(_key(value), 0), *cells]
        for value, cells in zip(listed, lines, strict=True)
    ]
    if rest > 0:
        drawn.append(["other values", rest, _bar(rest / rows), *([""] if before else [])])
    inner = table(headers, drawn, label=f"Values of {column.name}", named=True)
    return f'<div class="values">{inner}</div>'


class _Before:
    """What a baseline says of values: those that it lists, and that others are rarer than these, or absent."""

    def __init__(self, found: Statistics) -> None:
        rows = _held(found) or 1
        self.first = [value for value, _ in found["values"][:_LISTED]]
        self._shares = {_key(value): count / rows for value, count in found["values"]}
        # Of a value that is not listed: absent where everything is listed, else at most as frequent as the last one.
        self._most = min(self._shares.values(), default=0.0) if found.get("other") else 0.0

    def share(self, value: Any) -> tuple[float | None, str]:
        found = self._shares.get(_key(value))
        if found is None:
            return (None, f"≤ {_share(self._most)}") if self._most else (0.0, "none")
        return found, _share(found)


def _line(value: Any, share: float, before: _Before | None) -> list[Any]:
    if before is None:
        return [_bar(share)]
    other, text = before.share(value)
    return [_bar(share, other), text]


def _bar(share: float, other: float | None = None) -> Html:
    return Html(f'<span class="share">{meter(share, other)}{escape(_share(share))}</span>')


def _share(share: float) -> str:
    """A percentage in which a little is never nothing, and almost all never all."""
    if share == 0:
        return "0 %"
    if share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return percent(share)


def _key(value: Any) -> tuple[str, Any]:
    """Truth values and numbers that are equal are still two values."""
    return type(value).__name__, value
