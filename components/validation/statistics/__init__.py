"""Statistics of a table: counts, moments, quantiles and histograms of every column.

Two passes: the first (`aggregates`) runs together with the contract's rules, the second (`histograms`) counts rows
between the quantiles that the first found, and between those of a baseline where there is one. Counts and extremes are
exact; `distinct` and the quantiles are approximate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from gatehouse.components.validation.tables import Table, literal, name, plain, scan

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
TOP_VALUES = 50
NUMERIC = frozenset({"int64", "double"})
Statistics = dict[str, Any]


def aggregates(table: Table, sensitive: frozenset[str]) -> dict[str, str]:
    """SQL aggregates of the first pass, by `<column>|<statistic>`; of a sensitive column counts only."""
    wanted: dict[str, str] = {}
    for column, kind in table.types().items():
        quoted = name(column)
        found = {"count": f"count({quoted})"}
        if kind in NUMERIC | {"string", "timestamp"}:
            found["distinct"] = f"approx_count_distinct({quoted})"
            if column not in sensitive:
                found |= {"min": f"min({quoted})", "max": f"max({quoted})"}
        if kind in NUMERIC and column not in sensitive:
            found |= _moments(quoted, kind)
        wanted |= {f"{column}|{statistic}": sql for statistic, sql in found.items()}
    return wanted


def _moments(quoted: str, kind: str) -> dict[str, str]:
    finite = f" FILTER (WHERE isfinite({quoted}))" if kind == "double" else ""
    levels = ", ".join(map(str, QUANTILES))
    found = {
        "mean": f"avg({quoted}){finite}",
        "std": f"stddev_samp({quoted}){finite}",
        "median": f"approx_quantile({quoted}::DOUBLE, 0.5){finite}",
        "zeros": f"count(*) FILTER (WHERE {quoted} = 0)",
        "quantiles": f"approx_quantile(nullif({quoted}, 0)::DOUBLE, [{levels}]){finite}",
    }
    if kind == "double":
        found["min"], found["max"] = f"min({quoted}){finite}", f"max({quoted}){finite}"
        found["not_finite"] = f"count(*) FILTER (WHERE NOT isfinite({quoted}))"
    return found


def first_pass(table: Table, scanned: Mapping[str, Any]) -> dict[str, Statistics]:
    """Statistics by column from the results of `aggregates`."""
    found: dict[str, Statistics] = {column: {"type": kind} for column, kind in table.types().items()}
    for column, statistics in found.items():
        own = {key.rpartition("|")[2]: value for key, value in scanned.items() if key.rpartition("|")[0] == column}
        statistics["nulls"] = table.rows - own.pop("count")
        quantiles = own.pop("quantiles", None)
        statistics |= {statistic: plain(value) for statistic, value in own.items() if value is not None}
        if "zeros" in own:
            statistics["edges"] = sorted(set(quantiles or ()))
    return found


def histograms(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    statistics: Mapping[str, Statistics],
    baseline: Mapping[str, Statistics],
    sensitive: frozenset[str],
) -> dict[str, Statistics]:
    """Add the second pass to `statistics`; returns, by column, the same rows counted in the baseline's bins.

    A numeric column gets `counts`, one more than `edges`: rows in (-inf, e1], (e1, e2], …, (en, inf), without zeros,
    which have their own count, as a column that is mostly zero would else have one bin. A text or truth value gets
    `values`, its most frequent values, and `other`.
    """
    wanted: dict[str, str] = {}
    for column, own in statistics.items():
        for role, edges in (("own", own.get("edges")), ("baseline", baseline.get(column, {}).get("edges"))):
            if own["type"] in NUMERIC and column not in sensitive and edges:
                wanted[f"{column}|{role}"] = _histogram(column, own["type"], edges)
    scanned = scan(connection, table.name, wanted)
    rebinned: dict[str, Statistics] = {}
    for column, own in statistics.items():
        if "edges" in own:
            held = table.rows - own["nulls"] - own["zeros"] - own.get("not_finite", 0)
            own["counts"] = _counts(scanned.get(f"{column}|own"), own["edges"], held)
            other = baseline.get(column, {}).get("edges")
            if other is not None:
                counts = _counts(scanned.get(f"{column}|baseline"), other, held)
                rebinned[column] = own | {"edges": other, "counts": counts}
        elif own["type"] in ("string", "bool") and column not in sensitive:
            own |= _values(connection, table, column, own["nulls"], None)
            if "values" in baseline.get(column, {}):
                known = [value for value, _ in baseline[column]["values"]]
                rebinned[column] = own | _values(connection, table, column, own["nulls"], known)
    return rebinned


def _histogram(column: str, kind: str, edges: Sequence[float]) -> str:
    quoted = name(column)
    bins = ", ".join(f"{edge!r}::DOUBLE" for edge in edges)
    finite = f" AND isfinite({quoted})" if kind == "double" else ""
    return f"histogram({quoted}::DOUBLE, [{bins}]) FILTER (WHERE {quoted} <> 0{finite})"


def _counts(histogram: Mapping[float, int] | None, edges: Sequence[float], held: int) -> list[int]:
    """Rows up to each edge and beyond the last; `held` is how many rows there are in all bins together."""
    counts = [(histogram or {}).get(edge, 0) for edge in edges]
    return [*counts, held - sum(counts)]


def _values(
    connection: duckdb.DuckDBPyConnection, table: Table, column: str, nulls: int, known: Sequence[Any] | None
) -> Statistics:
    """The most frequent values, or those `known`, with their counts; and how many rows have another value."""
    quoted = name(column)
    chosen = f"{quoted} IS NOT NULL"
    if known is not None:
        chosen = f"{quoted} IN ({', '.join(map(literal, known))})" if known else "false"
    query = f"SELECT {quoted}, count(*) FROM {name(table.name)} WHERE {chosen} GROUP BY ALL ORDER BY 2 DESC, 1"
    found = [[value, count] for value, count in connection.execute(f"{query} LIMIT {TOP_VALUES}").fetchall()]
    return {"values": found, "other": table.rows - nulls - sum(count for _, count in found)}
