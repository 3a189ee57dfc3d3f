"""Totals of the operations table by pipeline and stage, also in the text format of Prometheus."""

import collections
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gatehouse.operations.metrics.table import Row

GOOD = ("finished", "hit", "succeeded")
_COUNTERS = {
    "runs": ("runs", "Runs of a pipeline, or tasks of a stage, that ended."),
    "runs_good": ("good", "Of these, the ones that succeeded."),
    "runs_from_memo": ("memo", "Of these, the ones whose result came from the memo."),
    "retries": ("retries", "Attempts beyond the first."),
    "cost": ("cost", "Total cost."),
}
"""By the name of a metric, the field of `Totals` that it shows, and its description."""
_GAUGES = {
    "seconds_median": ("median_seconds", "Median duration of those that did work."),
    "queue_seconds_median": ("queue_seconds", "Median time that they waited before they began."),
    "last_ended_timestamp_seconds": ("last_ended", "When the last one ended."),
    "last_good": ("last_good", "Whether the last one succeeded."),
    "rows_in": ("rows_in", "Input rows of the last one."),
    "rows_rejected": ("rows_rejected", "Rows that the last one set aside."),
    "data_age_hours": ("data_age_hours", "Age of the newest data when the last one began."),
    "data_to_model_seconds_median": ("data_to_model_seconds", "From the start of the snapshot to an approved model."),
    "gpu_percent_median": ("gpu_percent", "Mean utilisation of the GPUs that trained."),
}


@dataclass(frozen=True)
class Totals:
    """Totals of several runs of a pipeline, or of several tasks of a stage. None means not measured.

    Durations are of the tasks that worked, without results from the memo. `rows_in`, `rows_rejected` and
    `data_age_hours` are of the last task that has a value. `good` counts successes, `unknown` ends in a state of KFP
    that this release does not know, `memo` results from the memo, and `retries` the attempts beyond the first of each.
    Waiting, data to model and GPU are medians.
    """

    project: str
    pipeline: str
    stage: str
    runs: int
    good: int
    unknown: int
    memo: int
    retries: int
    last_state: str
    last_ended: float
    last_error: str | None
    median_seconds: float | None
    longest_seconds: float | None
    queue_seconds: float | None
    rows_in: int | None
    rows_rejected: int | None
    data_age_hours: float | None
    cost: float | None
    data_to_model_seconds: float | None
    gpu_percent: float | None

    @property
    def name(self) -> str:
        """The pipeline's name in KFP, because a store may hold several projects."""
        return f"{self.project}-{self.pipeline}"

    @property
    def success(self) -> float:
        """Share of successes among those whose end is known."""
        return self.good / max(1, self.runs - self.unknown)

    @property
    def last_good(self) -> bool:
        """Whether the last one succeeded."""
        return self.last_state in GOOD

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON."""
        return asdict(self) | {"success": self.success}


def totals(rows: Iterable[Row]) -> list[Totals]:
    """The totals of each pipeline, then of its stages in the order in which they first ran."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.began):
        groups.setdefault((row.project, row.pipeline, row.stage), []).append(row)
    return sorted(map(_total, groups.values()), key=lambda total: (total.name, bool(total.stage)))


def _total(rows: Sequence[Row]) -> Totals:
    def measured(name: str) -> list[Any]:
        return [value for row in rows if (value := getattr(row, name)) is not None]

    def median(values: Sequence[float]) -> float | None:
        return statistics.median(values) if values else None

    last = rows[-1]
    worked = [row.seconds for row in rows if row.state in GOOD and row.state != "hit"]
    costs = measured("cost")
    return Totals(
        project=last.project,
        pipeline=last.pipeline,
        stage=last.stage,
        runs=len(rows),
        good=sum(row.state in GOOD for row in rows),
        unknown=sum(row.state == "unknown" for row in rows),
        memo=sum(row.state == "hit" for row in rows),
        retries=sum(row.attempts - 1 for row in rows),
        last_state=last.state,
        last_ended=last.began + last.seconds,
        last_error=last.error,
        median_seconds=median(worked),
        longest_seconds=max(worked, default=None),
        queue_seconds=median(measured("queue_seconds")),
        rows_in=next(reversed(measured("rows_in")), None),
        rows_rejected=next(reversed(measured("rows_rejected")), None),
        data_age_hours=next(reversed(measured("data_age_hours")), None),
        cost=sum(costs) if len(costs) == len(rows) else None,
        data_to_model_seconds=median(measured("data_to_model_seconds")),
        gpu_percent=median(measured("gpu_percent")),
    )


def gate_outcomes(rows: Iterable[Row]) -> dict[str, int]:
    """How often each decision about a candidate was made, counted once per evaluation."""
    decisions = {
        (row.project, row.evaluation or row.run, row.decision)
        for row in rows
        if row.stage == "register" and row.decision
    }
    return dict(collections.Counter(decision for *_, decision in sorted(decisions)).most_common())


def exposition(rows: Iterable[Row]) -> str:
    """Rows of the table in Prometheus' text format; a value that was not measured has no sample."""
    from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

    disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client does not annotate it
    rows, registry, labels = list(rows), CollectorRegistry(), ("project", "pipeline", "stage")
    sums = totals(rows)
    for metrics, kind in ((_COUNTERS, Counter), (_GAUGES, Gauge)):
        for name, (field, description) in metrics.items():
            if measured := [total for total in sums if getattr(total, field) is not None]:
                metric = kind(f"gatehouse_{name}", description, labels, registry=registry)
                for total in measured:
                    metric.labels(total.project, total.pipeline, total.stage).inc(float(getattr(total, field)))
    decisions = Counter(
        "gatehouse_gate_decisions", "Decisions of the gate on candidates.", ("project", "decision"), registry=registry
    )
    for project in sorted({row.project for row in rows}):
        for decision, count in gate_outcomes(row for row in rows if row.project == project).items():
            decisions.labels(project, decision).inc(count)
    return generate_latest(registry).decode()
