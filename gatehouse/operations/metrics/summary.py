"""Totals of the operations table by pipeline and stage: number, success, duration and cost."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gatehouse.operations.metrics.rows import Row

GOOD = ("finished", "hit", "succeeded")


@dataclass(frozen=True)
class Totals:
    """Totals of several runs of a pipeline, or several tasks of a stage. None means not measured.

    Attributes:
        project: The project.
        pipeline: The pipeline.
        stage: The stage; empty for whole runs.
        runs: Number of runs or tasks.
        good: How many of them succeeded.
        unknown: Of how many nobody knows the end: KFP used a word that this release does not know.
        memo: How many of these came from the memo.
        retries: Attempts beyond the first of each.
        last_state: State of the last one.
        last_ended: When the last one ended, in seconds since 1970.
        last_error: Class of its error.
        median_seconds: Median duration of those that did work.
        longest_seconds: Longest duration of those that did work.
        queue_seconds: Median waiting time.
        rows_in: Input rows of the last one that had any.
        rows_rejected: Rejected rows of the last one that could reject any.
        data_age_hours: Data age of the last one that read data.
        cost: Total cost.
        data_to_model_seconds: Median time from data to model.
        gpu_percent: Median of the mean utilisation of GPUs.
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
        """Share of those that succeeded, of those whose end is known."""
        return self.good / max(1, self.runs - self.unknown)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON."""
        return asdict(self) | {"success": self.success}


def totals(rows: Iterable[Row]) -> list[Totals]:
    """The totals of each pipeline, then of its stages in the order in which they first ran."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda one: one.began):
        groups.setdefault((row.project, row.pipeline, row.stage), []).append(row)
    return sorted(map(_total, groups.values()), key=lambda one: (one.name, bool(one.stage)))


def gate_outcomes(rows: Iterable[Row]) -> dict[str, int]:
    """How often each decision about a candidate was made, counted once per evaluation."""
    decided = {
        (row.project, row.evaluation or row.run, row.decision)
        for row in rows
        if row.stage == "register" and row.decision
    }
    return dict(Counter(decision for *_, decision in sorted(decided)).most_common())


def _total(group: Sequence[Row]) -> Totals:
    last = group[-1]
    worked = [row.seconds for row in group if row.state in GOOD and row.state != "hit"]
    costs = [row.cost for row in group]
    return Totals(
        project=last.project,
        pipeline=last.pipeline,
        stage=last.stage,
        runs=len(group),
        good=sum(row.state in GOOD for row in group),
        unknown=sum(row.state == "unknown" for row in group),
        memo=sum(row.state == "hit" for row in group),
        retries=sum(row.attempts - 1 for row in group),
        last_state=last.state,
        last_ended=last.began + last.seconds,
        last_error=last.error,
        median_seconds=_median(worked),
        longest_seconds=max(worked, default=None),
        queue_seconds=_median([row.queue_seconds for row in group]),
        rows_in=_last([row.rows_in for row in group]),
        rows_rejected=_last([row.rows_rejected for row in group]),
        data_age_hours=_last([row.data_age_hours for row in group]),
        cost=sum(cost for cost in costs if cost is not None) if None not in costs else None,
        data_to_model_seconds=_median([row.data_to_model_seconds for row in group]),
        gpu_percent=_median([row.gpu_percent for row in group]),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)
