"""The card of a column in the page of a validation: statistics beside the baseline's, shape, values, anomalies."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gatehouse.data.snapshot.deliveries import written_times
from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.reports.charts import Bin, distributions, meter, sparkline
from gatehouse.reports.format import cut, share

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
    """What the card of one column shows.

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
