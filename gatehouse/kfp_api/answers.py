"""The objects of the API that Gatehouse reads, from those of the generated client.

The server leaves out empty fields, and gives a run that has not finished the time 1970-01-01.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

ENDED = frozenset({"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"})
"""The final states of a run, unless somebody retries the run."""
_NEVER = 1970
"""The year of a time that has not come; nodes that have not begun have the year 1."""
_ATTEMPT = re.compile(r"\(\d+\)$")
"""Argo's suffix of a node that may be tried again."""


@dataclass(frozen=True)
class Server:
    """The server: its release, as `2.17.0` or empty, and whether every request needs a namespace and a user."""

    version: str
    multi_user: bool


@dataclass(frozen=True)
class Experiment:
    """An experiment, in which runs are listed together."""

    id: str
    name: str


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, which has versions."""

    id: str
    name: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Version:
    """A version of a pipeline; its `spec` is the uploaded one, or `{pipeline_spec, platform_spec}`."""

    id: str
    pipeline: str
    name: str
    display_name: str
    tags: Mapping[str, str]
    created_at: datetime
    spec: Mapping[str, Any]

    @classmethod
    def read(cls, answer: Any) -> "Version":
        """From the generated object."""
        return cls(
            answer.pipeline_version_id,
            answer.pipeline_id,
            answer.name or answer.display_name,
            answer.display_name,
            answer.tags or {},
            answer.created_at,
            answer.pipeline_spec or {},
        )


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        state: `PENDING`, `RUNNING`, `SUCCEEDED`, `SKIPPED`, `FAILED`, `CANCELING`, `CANCELED` or `PAUSED`; empty before
            the first. A run that a user terminated is CANCELED; KFP 2.17 calls it FAILED after CANCELING.
        history: Its states with their times, the oldest first.
        finished_at: None while it runs.
        pipeline, version: Ids; empty if the run brought its own spec.
        error: The server's error message; empty for none.
        tasks: Start of each task that has begun, by its name in the pipeline: when its dependencies had ended, before
            its pod was scheduled. Other nodes of KFP are included, as `root` and `executor`.
    """

    id: str
    name: str
    experiment: str
    state: str
    history: tuple[tuple[str, datetime], ...]
    created_at: datetime
    finished_at: datetime | None
    pipeline: str
    version: str
    parameters: Mapping[str, Any]
    error: str
    archived: bool
    tasks: Mapping[str, datetime]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED

    @classmethod
    def read(cls, answer: Any) -> "Run":
        """From the generated object; of a run that the server cannot read, there is only the id and an error."""
        source, state = answer.pipeline_version_reference, answer.state or ""
        # The server records a run that has not begun without a state.
        history = tuple((entry.state, entry.update_time) for entry in answer.state_history or () if entry.state)
        steps = [step for step, _ in history if step in ("RUNNING", "CANCELING")]
        if state == "FAILED" and steps[-1:] == ["CANCELING"]:
            state = "CANCELED"
        tasks: dict[str, datetime] = {}
        for node in (answer.run_details and answer.run_details.task_details) or ():
            # A node without a state began nothing: it was omitted, or is the report of a launcher, without a name.
            if node.state and node.start_time.year > _NEVER:
                name = _ATTEMPT.sub("", node.display_name).removesuffix("-driver")
                tasks[name] = min(node.start_time, tasks.get(name, node.start_time))
        return cls(
            id=answer.run_id,
            name=answer.display_name or "",
            experiment=answer.experiment_id or "",
            state="" if state == "RUNTIME_STATE_UNSPECIFIED" else state,
            history=history,
            created_at=answer.created_at or datetime.fromtimestamp(0, UTC),
            finished_at=answer.finished_at if state in ENDED else None,
            pipeline=(source and source.pipeline_id) or "",
            version=(source and source.pipeline_version_id) or "",
            parameters=(answer.runtime_config and answer.runtime_config.parameters) or {},
            error=(answer.error and answer.error.message) or "",
            archived=answer.storage_state == "ARCHIVED",
            tasks=tasks,
        )


@dataclass(frozen=True)
class RecurringRun:
    """A schedule as KFP keeps it, by cron or by an interval in seconds. KFP cannot change one."""

    id: str
    name: str
    description: str
    experiment: str
    pipeline: str
    version: str
    cron: str
    interval: int
    start: datetime | None
    end: datetime | None
    catch_up: bool
    max_concurrency: int
    service_account: str
    parameters: Mapping[str, Any]
    plugins_input: Mapping[str, Any]
    enabled: bool
    created_at: datetime

    @classmethod
    def read(cls, answer: Any) -> "RecurringRun":
        """From the generated object."""
        source, trigger = answer.pipeline_version_reference, answer.trigger
        cron, periodic = (trigger and trigger.cron_schedule), (trigger and trigger.periodic_schedule)
        times = cron or periodic
        return cls(
            id=answer.recurring_run_id,
            name=answer.display_name,
            description=answer.description or "",
            experiment=answer.experiment_id or "",
            pipeline=(source and source.pipeline_id) or "",
            version=(source and source.pipeline_version_id) or "",
            cron=(cron and cron.cron) or "",
            interval=int((periodic and periodic.interval_second) or 0),
            start=times.start_time if times else None,
            end=times.end_time if times else None,
            catch_up=not answer.no_catchup,
            max_concurrency=int(answer.max_concurrency or 0),
            service_account=answer.service_account or "",
            parameters=(answer.runtime_config and answer.runtime_config.parameters) or {},
            plugins_input=answer.plugins_input or {},
            enabled=answer.status == "ENABLED",
            created_at=answer.created_at,
        )
