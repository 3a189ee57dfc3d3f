"""Schedules of a project as recurring runs of KFP: plans the changes, and makes them step by step.

KFP cannot change a recurring run, so it is replaced. The new one is created disabled and compared with the request;
then the old one is disabled, the new one enabled, and the old one deleted. Each step follows from KFP's present state,
so an interrupted command can simply be repeated. The name of a recurring run contains the digest of its content. Its
description holds its owner, and what KFP does not store elsewhere: whether it was to be enabled when it was created,
and its start.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from gatehouse.configuration.schedule import Schedule
from gatehouse.kfp.submission import DIGITS, Change, Upload
from gatehouse.kfp_api.answers import RecurringRun
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import KfpError, KfpRefusedError
from gatehouse.kfp_api.specs import check_parameters
from gatehouse.store.canonical import canonical_json, sha256_bytes

logger = logging.getLogger(__name__)

NEAR_SECONDS = 30.0
"""No recurring run is replaced within this many seconds of a due time: both might run, or neither."""
_MARK = re.compile(r"\[gatehouse project=(\S+) schedule=(\S+) wanted=(enabled|disabled|paused)(?: start=(\S+))?\]")
_SHORT, _TIME = "%Y%m%dT%H%M%SZ", "%Y-%m-%dT%H:%M:%SZ"
_NOT_IN_KFP = {"sla_hours", "pipeline", "description", "time_zone"}
"""Keys of a schedule that its recurring run does not contain. The monitoring pipeline checks lateness."""
Mode = Literal["enabled", "disabled", "paused"]


@dataclass(frozen=True)
class KfpSchedule:
    """A recurring run that Gatehouse created.

    Attributes:
        requested: Its requested state at creation: `paused` if a person had paused its predecessor.
        start: Its start; KFP gets it only if it matters.
    """

    run: RecurringRun
    schedule: str
    requested: Mode
    start: datetime | None = None

    @property
    def paused(self) -> bool:
        """Whether a person paused it: it is disabled, and no command of ours requested that."""
        return not self.run.enabled and self.requested != "disabled"


@dataclass(frozen=True)
class DeclaredSchedule:
    """A schedule as `project.yaml` requests it, with its pipeline, KFP's experiment and the pods' service account."""

    project: str
    name: str
    schedule: Schedule
    upload: Upload
    experiment: str
    service_account: str = ""

    def __post_init__(self) -> None:
        check_parameters(self.upload.spec, self.schedule.parameters)

    @property
    def display_name(self) -> str:
        """Name of the recurring run, with the digest of its content."""
        rhythm = self.schedule.model_dump(mode="json", exclude=_NOT_IN_KFP)
        content = [rhythm, self.upload.name, self.upload.version, self.experiment, self.service_account]
        digest = sha256_bytes(canonical_json(content).encode())
        return f"{self.project}-{self.name}-{digest[:DIGITS]}"

    def body(self, mode: Mode, enabled: bool, first: bool, ids: tuple[str, str, str]) -> dict[str, Any]:
        """The request body for KFP, with the ids of experiment, pipeline and version.

        `mode` is the requested state. The `first` recurring run of a schedule, which replaces no other, may catch up
        with times before its creation.
        """
        schedule = self.schedule
        times: dict[str, Any] = {"cron": schedule.cron}
        if not schedule.cron:
            times = {"interval_second": str(seconds_of(schedule))}
        past = schedule.start is not None and schedule.start <= datetime.now(UTC)
        if schedule.start and (not past or (first and schedule.catch_up)):
            times["start_time"] = schedule.start.strftime(_TIME)
        if schedule.end:
            times["end_time"] = schedule.end.strftime(_TIME)
        start = f" start={schedule.start:{_SHORT}}" if schedule.start else ""
        mark = f"[gatehouse project={self.project} schedule={self.name} wanted={mode}{start}]"
        return {
            "display_name": self.display_name,
            "description": f"{schedule.description} {mark}".strip(),
            "experiment_id": ids[0],
            "pipeline_version_reference": {"pipeline_id": ids[1], "pipeline_version_id": ids[2]},
            "trigger": {"cron_schedule" if schedule.cron else "periodic_schedule": times},
            "max_concurrency": str(schedule.max_concurrency),
            "no_catchup": not schedule.catch_up,
            "runtime_config": {"parameters": schedule.parameters},
            "service_account": self.service_account,
            "mode": "ENABLE" if enabled else "DISABLE",
        }

    def facts(self) -> dict[str, Any]:
        """The fields that a person sees, and that are compared with KFP's answer."""
        schedule = self.schedule
        return {
            "cron": schedule.cron,
            "interval": seconds_of(schedule),
            "end": schedule.end,
            "catch_up": schedule.catch_up,
            "max_concurrency": schedule.max_concurrency,
            "parameters": schedule.parameters,
            "plugins_input": {},
        } | ({"service_account": self.service_account} if self.service_account else {})


def seconds_of(schedule: Schedule) -> int:
    """Its interval in seconds; 0 if it uses cron."""
    return int(schedule.interval.total_seconds()) if schedule.interval else 0


def kfp_schedules(api: KfpApi, project: str) -> list[KfpSchedule]:
    """The recurring runs of a project that Gatehouse created, newest first."""
    schedules = []
    for run in api.recurring_runs(f"{project}-"):
        mark = _MARK.search(run.description)
        if mark and mark[1] == project and re.fullmatch(rf"{project}-{mark[2]}-[0-9a-f]{{{DIGITS}}}", run.name):
            start = datetime.strptime(mark[4], _SHORT).replace(tzinfo=UTC) if mark[4] else None
            schedules.append(KfpSchedule(run, mark[2], mark[3], start))  # type: ignore[arg-type]  # `_MARK` matches a mode.
    return schedules


def plan(api: KfpApi, declared: Iterable[DeclaredSchedule], existing: list[KfpSchedule]) -> Iterator[Change]:
    """The changes that `apply` would make, schedule by schedule, including schedules to remove."""
    names = set()
    for schedule in declared:
        names.add(schedule.name)
        yield _change(api, schedule, [recurring for recurring in existing if recurring.schedule == schedule.name])
    for recurring in existing:
        if recurring.schedule not in names:
            yield Change("-", f"schedule {recurring.schedule} ({recurring.run.name})", ("it is not in project.yaml",))


def _change(api: KfpApi, declared: DeclaredSchedule, existing: list[KfpSchedule]) -> Change:
    same = [recurring for recurring in existing if recurring.run.name == declared.display_name]
    older = [recurring for recurring in existing if recurring.run.name != declared.display_name]
    what, enabled = f"schedule {declared.name}", declared.schedule.enabled
    if not existing:
        fields = {**_fields(declared), "version": _version(api, declared), "sla_hours": declared.schedule.sla_hours}
        details = tuple(f"{key}: {value}" for key, value in fields.items() if value)
        return Change("+", f"{what} ({declared.display_name})", details)
    if not same:
        details = tuple(_differences(api, declared, older[0]))
        if _mode(declared, older) == "paused":
            details += ("a person paused it: it stays paused",)
        return Change("~", f"{what} ({older[0].run.name} -> {declared.display_name})", details)
    current = same[0]
    if older or len(same) > 1:
        return Change("~", f"{what} ({declared.display_name})", ("continues an interrupted replacement",))
    if enabled and current.paused:
        return Change("!", f"{what} is paused", (f"`gatehouse schedule resume {declared.name}` lets it go on",))
    if current.run.enabled != enabled:
        turned = f"enabled: {current.run.enabled} -> {enabled}"
        return Change("~", f"{what} ({declared.display_name})", (turned,))
    return Change("=", what)


def _fields(declared: DeclaredSchedule) -> dict[str, Any]:
    """The fields of a schedule for people."""
    facts = declared.facts()
    parameters = {f"parameters.{name}": value for name, value in facts.pop("parameters").items()}
    return facts | {"start": declared.schedule.start} | parameters | {"enabled": declared.schedule.enabled}


def _differences(api: KfpApi, declared: DeclaredSchedule, before: KfpSchedule) -> Iterator[str]:
    """The changes of a schedule as `field: old value -> new value`."""
    run, new = before.run, _fields(declared)
    old = {key: getattr(run, key) for key in new if hasattr(run, key)} | {"start": before.start}
    old |= {f"parameters.{name}": value for name, value in run.parameters.items()}
    old |= {"enabled": run.enabled or before.paused}
    # KFP fills in its own account if none is requested.
    old |= {"service_account": run.service_account} if declared.service_account else {}
    experiment = api.find_experiment(declared.experiment)
    if experiment is None or experiment.id != run.experiment:
        old["experiment"], new["experiment"] = run.experiment, declared.experiment
    try:
        version = api.version(run.pipeline, run.version)
        if (version.pipeline, version.name) != (run.pipeline, declared.upload.version):
            old["version"], new["version"] = version.display_name, _version(api, declared)
    except KfpRefusedError:
        old["version"], new["version"] = f"one that is gone ({run.version})", _version(api, declared)
    for key in dict.fromkeys((*new, *old)):
        if old.get(key) != new.get(key):
            yield f"{key}: {_word(old.get(key))} -> {_word(new.get(key))}"


def _version(api: KfpApi, declared: DeclaredSchedule) -> str:
    """The version for people."""
    return (declared.upload.find(api)[1] or declared.upload).display_name


def _word(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if value or value is False else "none"


@dataclass(frozen=True)
class Applying:
    """Brings KFP to the requested state; `allowed` raises if a recurring run may not be created any more."""

    api: KfpApi
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    allowed: Callable[[], None] = lambda: None

    def apply(self, declared: list[DeclaredSchedule], project: str) -> list[Change]:
        """Make the changes of `plan`, and return them."""
        existing = kfp_schedules(self.api, project)
        changes = list(plan(self.api, declared, existing))
        for schedule, change in zip(declared, changes, strict=False):
            first = True
            while change.sign in "+~":
                present = [
                    recurring for recurring in kfp_schedules(self.api, project) if recurring.schedule == schedule.name
                ]
                if not self._step(schedule, present, first):
                    break
                first = False
        names = {schedule.name for schedule in declared}
        for recurring in existing:
            if recurring.schedule not in names:
                self.api.delete_recurring_run(recurring.run.id)
        return changes

    def _step(self, declared: DeclaredSchedule, existing: list[KfpSchedule], first: bool) -> bool:
        """Make the next step towards the requested state; False if none is left.

        Before the `first` step everything in KFP is from earlier commands. Raises KfpError if KFP does not list what an
        earlier step created, or stored something else.
        """
        same = [recurring for recurring in existing if recurring.run.name == declared.display_name]
        older = [recurring for recurring in existing if recurring.run.name != declared.display_name]
        if not same:
            if not first:
                raise KfpError(
                    f"KFP created the recurring run {declared.display_name}, but does not list it. Find it in KFP, "
                    "delete it there, and apply again."
                )
            self._create(declared, older)
            return True
        current, *doubles = same
        differing = [  # What KFP stored must be what was requested, or it would start other runs.
            f"{key}: expected {value}, found {getattr(current.run, key)}"
            for key, value in declared.facts().items()
            if getattr(current.run, key) != value
        ]
        # KFP answers the parameters that it was given; the account is that of the workflow which would get them.
        if declared.schedule.parameters and not (current.run.version and current.run.service_account):
            differing.append("it is stored without its workflow, so its runs would start without parameters")
        if differing:
            self.api.delete_recurring_run(current.run.id)
            raise KfpError(
                f"The recurring run {current.run.name} is not what was asked for: {'; '.join(differing)}. It is "
                "deleted again, and nothing else was changed."
            )
        running = [recurring for recurring in older if recurring.run.enabled]
        due = declared.schedule.following(current.run.created_at, current.run.created_at)
        if declared.schedule.enabled:
            turn = bool(older) and not current.run.enabled and current.requested == "enabled"
        else:
            turn = current.run.enabled
        if doubles:
            self.api.delete_recurring_run(doubles[-1].run.id)
        elif running and first and due is not None and due <= self.now():
            # The old one ran all times due so far, so the new one must not start before now.
            self.api.delete_recurring_run(current.run.id)
            self._create(declared, older)
        elif running:
            self.api.enable(running[0].run.id, enabled=False)
        elif turn:
            self.api.enable(current.run.id, declared.schedule.enabled)
        elif older:
            self.api.delete_recurring_run(older[-1].run.id)
        else:
            return False
        return True

    def _create(self, declared: DeclaredSchedule, older: list[KfpSchedule]) -> None:
        mode = _mode(declared, older)
        pipeline, uploaded = declared.upload.send(self.api)
        experiment = self.api.experiment(declared.experiment)
        if any(recurring.run.enabled for recurring in older):
            replaced = [schedule_of(recurring.run, declared.schedule.time_zone) for recurring in older]
            for schedule in [declared.schedule, *replaced]:  # Wait until none of them is due soon.
                now = self.now()
                due = schedule.following(now, now) if schedule.cron else None
                if due and (left := (due - now).total_seconds()) <= NEAR_SECONDS:
                    logger.warning("A schedule is due at %s; it is replaced after that.", due.isoformat())
                    self.sleep(left + NEAR_SECONDS / 10)
        ids = experiment.id, pipeline.id, uploaded.id
        self.allowed()
        self.api.create_recurring_run(declared.body(mode, mode == "enabled" and not older, not older, ids))


def _mode(declared: DeclaredSchedule, older: list[KfpSchedule]) -> Mode:
    """The requested state of a recurring run that replaces others: one that a person paused stays paused."""
    if not declared.schedule.enabled:
        return "disabled"
    if not older:
        return "enabled"
    # If there are two already, replacing was interrupted, and Gatehouse disabled the first.
    paused = older[0].requested == "paused" if len(older) > 1 else older[0].paused
    return "paused" if paused else "enabled"


def schedule_of(run: RecurringRun, time_zone: str) -> Schedule:
    """The schedule of a recurring run."""
    rhythm = {"cron": run.cron} if run.cron else {"interval": timedelta(seconds=run.interval)}
    return Schedule.model_validate(rhythm | {"end": run.end, "time_zone": time_zone})
