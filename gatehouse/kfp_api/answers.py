"""What the API answers, as far as we rely on it: each class reads one kind of answer, and nothing else reads them.

The server leaves out fields that are empty, writes whole numbers of 64 bits as strings, and gives a run that has not
finished the time 1970-01-01. `tests/stand_ins/kfp_answers.yaml` lists every field that is read here, by route.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

ENDED = frozenset({"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"})
"""The states of a run that are the last ones, unless somebody retries the run."""

Answer = Mapping[str, Any]
_NEVER = 1970
"""The year of a time that has not come; nodes that have not begun have the year 1."""
_ATTEMPT = re.compile(r"\(\d+\)$")
"""What Argo adds to the name of a node that may be tried again."""


@dataclass(frozen=True)
class Server:
    """The server itself.

    Attributes:
        version: Its release, as `2.17.0`; empty where it does not say.
        multi_user: Whether every request needs a namespace and a user.
    """

    version: str
    multi_user: bool

    @classmethod
    def read(cls, answer: Answer) -> "Server":
        """Of the health route."""
        version = str(answer.get("tag_name", ""))
        return cls(version if version[:1].isdigit() else "", bool(answer.get("multi_user", False)))


@dataclass(frozen=True)
class Experiment:
    """An experiment, in which runs are listed together."""

    id: str
    name: str

    @classmethod
    def read(cls, answer: Answer) -> "Experiment":
        """Read an experiment from an answer."""
        return cls(answer["experiment_id"], answer["display_name"])


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, which has versions."""

    id: str
    name: str
    tags: Mapping[str, str]

    @classmethod
    def read(cls, answer: Answer) -> "Pipeline":
        """Of a pipeline. A server before 2.15 knows no `name` beside the displayed one, and no tags."""
        return cls(answer["pipeline_id"], answer.get("name") or answer["display_name"], answer.get("tags", {}))


@dataclass(frozen=True)
class Version:
    """A version of a pipeline.

    Attributes:
        pipeline: Id of its pipeline.
        name: Of this pipeline's versions only one has it.
        display_name: What people see instead.
        spec: What was uploaded: the pipeline spec, or `{pipeline_spec, platform_spec}`.
    """

    id: str
    pipeline: str
    name: str
    display_name: str
    tags: Mapping[str, str]
    created_at: datetime
    spec: Answer

    @classmethod
    def read(cls, answer: Answer) -> "Version":
        """Of a version."""
        return cls(
            answer["pipeline_version_id"],
            answer["pipeline_id"],
            answer.get("name") or answer["display_name"],
            answer["display_name"],
            answer.get("tags", {}),
            _time(answer["created_at"]),
            answer.get("pipeline_spec", {}),
        )


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        state: `PENDING`, `RUNNING`, `SUCCEEDED`, `SKIPPED`, `FAILED`, `CANCELING`, `CANCELED` or `PAUSED`; empty before
            the first. A run that a user terminated is CANCELED; KFP 2.17 calls it FAILED after CANCELING.
        history: States and since when, the oldest first.
        finished_at: None where it goes on.
        pipeline: Id of its pipeline; empty where the run brought its own spec. So is `version`.
        error: What the server says against it; empty for nothing.
        archived: Whether somebody put it away.
        tasks: Since when KFP works on each task that has begun, by its name in the pipeline: since what it waits for
            had ended, so before its pod was scheduled. Other nodes of KFP are there too, as `root` and `executor`.
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
        """Whether it has ended, in whatever way."""
        return self.state in ENDED

    @classmethod
    def read(cls, answer: Answer) -> "Run":
        """Of a run. Where the server cannot read a run of its own, it answers with the id and an error alone."""
        source = answer.get("pipeline_version_reference", {})
        # The server notes a look at a run that has not begun without a state.
        history = tuple(
            (each["state"], _time(each["update_time"])) for each in answer.get("state_history", []) if "state" in each
        )
        state = answer.get("state", "")
        if state == "FAILED" and [each for each, _ in history if each in ("RUNNING", "CANCELING")][-1:] == [
            "CANCELING"
        ]:
            state = "CANCELED"
        return cls(
            id=answer["run_id"],
            name=answer.get("display_name", ""),
            experiment=answer.get("experiment_id", ""),
            state="" if state == "RUNTIME_STATE_UNSPECIFIED" else state,
            history=history,
            created_at=_time(answer.get("created_at", "")),
            finished_at=_time(answer.get("finished_at", "")) if state in ENDED else None,
            pipeline=source.get("pipeline_id", ""),
            version=source.get("pipeline_version_id", ""),
            parameters=answer.get("runtime_config", {}).get("parameters", {}),
            error=answer.get("error", {}).get("message", ""),
            archived=answer.get("storage_state", "") == "ARCHIVED",
            tasks=_began(answer.get("run_details", {}).get("task_details", [])),
        )


@dataclass(frozen=True)
class RecurringRun:
    """A recurring run: a schedule, as KFP keeps it. KFP can enable, disable and delete one, but not change it.

    Attributes:
        cron: Its cron expression; empty where it goes by `interval`, in seconds.
        enabled: Whether it starts runs.
    """

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
    def read(cls, answer: Answer) -> "RecurringRun":
        """Of a recurring run."""
        source, trigger = answer.get("pipeline_version_reference", {}), answer.get("trigger", {})
        cron, periodic = trigger.get("cron_schedule", {}), trigger.get("periodic_schedule", {})
        times = cron or periodic
        return cls(
            id=answer["recurring_run_id"],
            name=answer["display_name"],
            description=answer.get("description", ""),
            experiment=answer.get("experiment_id", ""),
            pipeline=source.get("pipeline_id", ""),
            version=source.get("pipeline_version_id", ""),
            cron=cron.get("cron", ""),
            interval=int(periodic.get("interval_second", 0)),
            start=_time(times["start_time"]) if "start_time" in times else None,
            end=_time(times["end_time"]) if "end_time" in times else None,
            catch_up=not answer.get("no_catchup", False),
            max_concurrency=int(answer.get("max_concurrency", 0)),
            service_account=answer.get("service_account", ""),
            parameters=answer.get("runtime_config", {}).get("parameters", {}),
            plugins_input=answer.get("plugins_input", {}),
            enabled=answer.get("status", "") == "ENABLED",
            created_at=_time(answer["created_at"]),
        )


def _began(nodes: Iterable[Answer]) -> dict[str, datetime]:
    """The first start of each task. `create_time` is that of the run; a driver goes before each pod, and is no task.

    A node without a state began nothing: it was omitted, or is a launcher's own report, which has no name either.
    """
    began: dict[str, datetime] = {}
    for node in nodes:
        if node.get("state") and (at := _time(node["start_time"])).year > _NEVER:
            name = _ATTEMPT.sub("", node["display_name"]).removesuffix("-driver")
            began[name] = min(at, began.get(name, at))
    return began


def _time(written: str) -> datetime:
    return datetime.fromisoformat(written) if written else datetime.fromtimestamp(0, UTC)
