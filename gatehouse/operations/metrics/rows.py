"""The rows that a run adds to the operations table: one per task, and one for the whole run.

Values that were not measured are null, never 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gatehouse.operations.ending.outcome import ENDED, is_of_task, seconds_of
from gatehouse.store.run import Event
from gatehouse.tracking.cost import Prices
from gatehouse.tracking.machine import GPU_PERCENT

_HOUR = 3600.0


@dataclass(frozen=True)
class Row:
    """One task of a run; with an empty `stage`, the whole run.

    Attributes:
        run: Id of the run.
        project: The project.
        pipeline: The pipeline.
        stage: The stage; empty for the run.
        state: `finished`, `hit` (from the memo), `failed`, `stopped`, `tolerated`, or `killed` if a start has no end;
            for a run `succeeded`, `failed` or `stopped`.
        began: When its last attempt began, in seconds since 1970.
        seconds: Duration of that attempt; for a run, the time from its first event to its last.
        attempts: Number of attempts.
        queue_seconds: How long it waited before it began; null if not known.
        rows_in: Number of input rows.
        rows_rejected: Number of rows set aside.
        data_age_hours: Age of its newest data when it began.
        cost: Cost at the price of its machine.
        end: Number of the run's end that it belongs to: 1, or more if the run was tried again.
        verdict: Its verdict.
        decision: Its decision.
        evaluation: The evaluation on which it decided.
        data_to_model_seconds: For a run: time from the start of the snapshot to a registered and approved model.
        error: Class of its error.
        gpu_percent: Mean utilisation of all GPUs of the machines that trained; null without GPUs.
    """

    run: str
    project: str
    pipeline: str
    stage: str
    state: str
    began: float
    seconds: float
    attempts: int
    queue_seconds: float | None = None
    rows_in: int | None = None
    rows_rejected: int | None = None
    data_age_hours: float | None = None
    cost: float | None = None
    end: int = 1
    verdict: str | None = None
    decision: str | None = None
    evaluation: str | None = None
    data_to_model_seconds: float | None = None
    error: str | None = None
    gpu_percent: float | None = None


@dataclass(frozen=True)
class Waited:
    """How long a run and its tasks waited, as far as it is known.

    Attributes:
        run: Seconds from the creation of the run until it was running.
        tasks: By stage, the time since which it waited only for its pod, in seconds since 1970.
    """

    run: float | None = None
    tasks: Mapping[str, float] = field(default_factory=dict)


def rows_of(
    run: str, end: Mapping[str, Any], found: Sequence[Event], prices: Prices, waited: Waited | None = None
) -> list[Row]:
    """The rows of a run that ended.

    Args:
        run: Its id.
        end: The record of its end.
        found: Its events.
        prices: Prices of machines.
        waited: How long it waited, if known.
    """
    waited = waited or Waited()
    about = (run, str(end.get("project", "")), str(end.get("pipeline", "")))
    number = int(end.get("number", 1))
    results = [event.body.get("result", {}) for event in found if event.stage == "evaluate"]
    judged = next((str(result["evaluation"]) for result in results if "evaluation" in result), None)
    tasks = [
        replace(row, end=number, evaluation=judged if row.decision else None)
        for row in (_task_row(about, attempts, prices, waited.tasks) for attempts in _tasks(found))
    ]
    costs = [row.cost for row in tasks]
    whole = Row(
        *about,
        stage="",
        state=str(end["state"]),
        began=float(end.get("began") or end.get("recorded") or 0.0),
        seconds=float(end["seconds"]),
        attempts=1,
        queue_seconds=waited.run,
        end=number,
        cost=sum(cost for cost in costs if cost is not None) if costs and None not in costs else None,
        data_to_model_seconds=_data_to_model(tasks),
        error=str(end.get("error", "")) or None,
    )
    return [whole, *tasks]


def _tasks(found: Sequence[Event]) -> Iterator[list[Event]]:
    """The events of each task of a run, in order of attempts; a stage that runs twice is two tasks.

    Tasks that report or judge the end are left out, as they have not ended when the report is made.
    """
    tasks: dict[tuple[str, str], list[Event]] = {}
    for event in sorted(found, key=lambda one: (one.attempt, one.event in ENDED)):
        if is_of_task(event):
            tasks.setdefault((event.stage, str(event.body.get("asked", ""))), []).append(event)
    return iter(tasks.values())


def _task_row(
    about: tuple[str, str, str], attempts: Sequence[Event], prices: Prices, waiting: Mapping[str, float]
) -> Row:
    last = attempts[-1]
    result: dict[str, Any] = last.body.get("result", {})
    seconds, ended = seconds_of(last), last.event in ENDED
    began = float(last.body["at"]) - seconds
    as_of = str(result.get("as_of", "")) if last.stage == "snapshot" else ""
    return Row(
        *about,
        stage=last.stage,
        state=last.event if ended else "killed",
        began=began,
        seconds=seconds,
        attempts=len({event.attempt for event in attempts}),
        queue_seconds=_waited(attempts[0], waiting.get(last.stage)),
        rows_in=_count(result.get("rows")),
        rows_rejected=_count(result["rejected_rows"]) or 0 if "rejected_rows" in result else None,
        data_age_hours=(began - datetime.fromisoformat(as_of).timestamp()) / _HOUR if as_of else None,
        cost=prices.cost(seconds, str(last.body.get("machine", ""))) if ended else None,
        verdict=result.get("verdict") or None,
        decision=result.get("decision") or None,
        error=last.body.get("error") or None,
        gpu_percent=last.body.get(GPU_PERCENT),
    )


def _waited(first: Event, since: float | None) -> float | None:
    """Seconds until the first attempt began; None if KFP began the task later, as in a run that was tried again."""
    if since is None:
        return None
    seconds = float(first.body["at"]) - seconds_of(first) - since
    return seconds if seconds >= 0 else None


def _count(rows: Any) -> int | None:
    if isinstance(rows, Mapping):
        return sum(rows.values()) if rows else None
    return rows if isinstance(rows, int) else None


def _data_to_model(tasks: Sequence[Row]) -> float | None:
    taken = [row.began for row in tasks if row.stage == "snapshot" and row.state == "finished"]
    ready = [row.began + row.seconds for row in tasks if row.stage == "register" and row.decision == "approved"]
    return max(ready) - min(taken) if taken and ready else None
