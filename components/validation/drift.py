"""The population stability index: how far a column's distribution moved from its baseline."""

import math
from collections.abc import Mapping
from typing import Any

_LEAST_SHARE = 1e-4


def psi(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> float:
    """Sum over bins of (q - p) * ln(q / p), with p and q the shares of the rows in the bin, each at least 1e-4.

    The index as it is used in credit scoring (Siddiqi, Credit Risk Scorecards, 2006). Nulls, zeros and values that are
    not finite have bins of their own.

    Args:
        baseline: Statistics of the column in the baseline.
        current: Statistics of the same column now, counted in the baseline's bins.
    """
    before, now = _bins(baseline), _bins(current)
    keys = sorted(before.keys() | now.keys())
    rows_before, rows_now = sum(before.values()) or 1, sum(now.values()) or 1
    total = 0.0
    for key in keys:
        p = max(before.get(key, 0) / rows_before, _LEAST_SHARE)
        q = max(now.get(key, 0) / rows_now, _LEAST_SHARE)
        total += (q - p) * math.log(q / p)
    return total


def _bins(statistics: Mapping[str, Any]) -> dict[str, int]:
    bins = {"null": statistics["nulls"]}
    bins |= {key: statistics.get(key, 0) for key in ("zeros", "not_finite")}
    bins |= {f"bin {index:03d}": count for index, count in enumerate(statistics.get("counts", ()))}
    bins |= {f"value {value}": count for value, count in statistics.get("values", ())}
    return bins | {"other": statistics.get("other", 0)}
