"""What KFP's UI shows of freshness: the number of stale views, and the age of every view."""

from typing import Any

from gatehouse.features.freshness.stage import FreshnessResult


def show(result: FreshnessResult, metrics: Any) -> None:
    """Fill KFP's typed output (Metrics): the number of stale views, and the age of every view in hours."""
    metrics.log_metric("stale views", len(result.stale))
    for view, hours in result.hours.items():
        if hours is not None:
            metrics.log_metric(f"{view}: hours old", hours)
