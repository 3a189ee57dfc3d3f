"""The operations table for Prometheus: in its text format, and pushed to a gateway if one is set.

A value that was not measured has no sample. A push replaces earlier values of the same project.
"""

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gatehouse.errors import ConfigurationError
from gatehouse.operations.metrics.rows import Row
from gatehouse.operations.metrics.summary import GOOD, gate_outcomes, totals
from gatehouse.runtime.redaction import require_encoded

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

ENDPOINT = "GATEHOUSE_METRICS_ENDPOINT"
"""Environment variable with the address of a Prometheus Pushgateway."""
_TIMEOUT = 10.0
_COUNTERS = {
    "runs": ("runs", "Runs of a pipeline, or tasks of a stage, that ended."),
    "runs_good": ("good", "Of these, the ones that succeeded."),
    "runs_from_memo": ("memo", "Of these, the ones whose result came from the memo."),
    "retries": ("retries", "Attempts beyond the first."),
    "cost": ("cost", "Total cost."),
}
_GAUGES = {
    "seconds_median": ("median_seconds", "Median duration of those that did work."),
    "queue_seconds_median": ("queue_seconds", "Median time that they waited before they began."),
    "last_ended_timestamp_seconds": ("last_ended", "When the last one ended."),
    "rows_in": ("rows_in", "Input rows of the last one."),
    "rows_rejected": ("rows_rejected", "Rows that the last one set aside."),
    "data_age_hours": ("data_age_hours", "Age of the newest data when the last one began."),
    "data_to_model_seconds_median": ("data_to_model_seconds", "From the start of the snapshot to an approved model."),
    "gpu_percent_median": ("gpu_percent", "Mean utilisation of the GPUs that trained."),
}
"""By the name of a metric, the field of `Totals` that it shows, and its description."""


def exposition(rows: Iterable[Row]) -> str:
    """Rows of the table in Prometheus' text format."""
    from prometheus_client import generate_latest

    return generate_latest(_registry(rows)).decode()


def _registry(rows: Iterable[Row]) -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    labels = ("project", "pipeline", "stage")
    listed = list(rows)
    groups = totals(listed)
    families: list[Metric] = []
    for metrics, kind in ((_COUNTERS, CounterMetricFamily), (_GAUGES, GaugeMetricFamily)):
        for name, (field, description) in metrics.items():
            family = kind(f"gatehouse_{name}", description, labels=labels)
            for group in groups:
                if (value := getattr(group, field)) is not None:
                    family.add_metric([getattr(group, label) for label in labels], value)
            families.append(family)
    last = GaugeMetricFamily("gatehouse_last_good", "Whether the last one succeeded.", labels=labels)
    for group in groups:
        last.add_metric([getattr(group, label) for label in labels], float(group.last_state in GOOD))
    decisions = CounterMetricFamily(
        "gatehouse_gate_decisions", "Decisions of the gate on candidates.", labels=("project", "decision")
    )
    for project in sorted({row.project for row in listed}):
        for decision, count in gate_outcomes(row for row in listed if row.project == project).items():
            decisions.add_metric([project, decision], count)
    families += [last, decisions]

    class Collector:
        def collect(self) -> Iterable[Metric]:
            return [family for family in families if family.samples]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return registry


def push(project: str, rows: Iterable[Row]) -> str:
    """Push a project's rows to the gateway in the environment; an error is logged and returned.

    Args:
        project: The project.
        rows: Rows of the table, of any project.

    Returns:
        Why the push failed; empty if it succeeded, or if no gateway is set.
    """
    endpoint = os.environ.get(ENDPOINT, "").strip().rstrip("/")
    if not endpoint:
        return ""
    try:
        require_encoded(endpoint, ENDPOINT, bare=True)
    except ConfigurationError as error:
        return str(error)
    if not endpoint.startswith(("http://", "https://")):
        return f"{ENDPOINT} has no http or https address"
    from prometheus_client import push_to_gateway

    registry = _registry(row for row in rows if row.project == project)
    try:
        push_to_gateway(endpoint, "gatehouse", registry, grouping_key={"project": project}, timeout=_TIMEOUT)
    except (OSError, ValueError) as error:
        why = f"answered {error.code}" if hasattr(error, "code") else type(error).__name__
        logger.warning("The metrics gateway took nothing: %s.", why)
        return f"the metrics gateway took nothing: {why}"
    return ""
