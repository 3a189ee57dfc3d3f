"""Schedules of a project as recurring runs of KFP: plans the changes, and makes them step by step.

KFP cannot change a recurring run, so it is replaced. The new one is created disabled and compared with the request;
then the old one is disabled, the new one enabled, and the old one deleted. Each step follows from KFP's present state,
so an interrupted command can simply be repeated. The name of a recurring run contains the digest of its content. Its
description holds its owner, and what KFP does not store elsewhere: whether it was to be enabled when it was created,
and its start.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from gatehouse.configuration.schedule import Schedule
from gatehouse.kfp.compilation.difference import differences
from gatehouse.kfp.compilation.specification import Compiled
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
_SHORT = "%Y%m%dT%H%M%SZ"
_NOT_IN_KFP = {"sla_hours", "pipeline", "description", "time_zone"}
"""Keys of a schedule that its recurring run does not contain. The monitoring pipeline checks lateness."""
Mode = Literal["enabled", "disabled", "paused"]


@dataclass(frozen=True)
class Held:
    """A recurring run that Gatehouse created.

    Attributes:
        run: The recurring run in KFP.
        schedule: Name of the schedule.
        wanted: Its requested state at creation: `paused` if a person had paused the one before it.
        start: Its start; KFP gets it only if it matters.
    """

    run: RecurringRun
    schedule: str
    wanted: Mode
    start: datetime | None = None

    @property
    def paused(self) -> bool:
        """Whether a person paused it: it is disabled, and no command of ours requested that."""
        return not self.run.enabled and self.wanted != "disabled"


@dataclass(frozen=True)
class Wanted:
    """A recurring run as it should be.

    Attributes:
        project: Name of the project.
        name: Name of the schedule.
        schedule: Its content in project.yaml.
        upload: The pipeline.
        experiment: Name of KFP's experiment.
        service_account: Service account of the pods; empty for KFP's default.
    """

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
        """The request body for KFP.

        Args:
            mode: The requested state of the schedule.
            enabled: Whether it starts runs from the beginning.
            first: Whether it replaces no other. Only then it may catch up with times before its creation.
            ids: Ids of the experiment, the pipeline and its version.
        """
        given = self.schedule
        times: dict[str, Any] = {"cron": given.cron} if given.cron else {"interval_second": str(seconds_of(given))}
        past = given.start is not None and given.start <= datetime.now(UTC)
        if given.start and (not past or (first and given.catch_up)):
            times["start_time"] = _written(given.start)
        if given.end:
            times["end_time"] = _written(given.end)
        start = f" start={given.start:{_SHORT}}" if given.start else ""
        mark = f"[gatehouse project={self.project} schedule={self.name} wanted={mode}{start}]"
        return {
            "display_name": self.display_name,
            "description": f"{given.description} {mark}".strip(),
            "experiment_id": ids[0],
            "pipeline_version_reference": {"pipeline_id": ids[1], "pipeline_version_id": ids[2]},
            "trigger": {"cron_schedule" if given.cron else "periodic_schedule": times},
            "max_concurrency": str(given.max_concurrency),
            "no_catchup": not given.catch_up,
            "runtime_config": {"parameters": given.parameters},
            "service_account": self.service_account,
            "mode": "ENABLE" if enabled else "DISABLE",
        }

    def facts(self) -> dict[str, Any]:
        """The fields that a person sees, and that are compared with KFP's answer."""
        given = self.schedule
        return {
            "cron": given.cron,
            "interval": seconds_of(given),
            "end": given.end,
            "catch_up": given.catch_up,
            "max_concurrency": given.max_concurrency,
            "parameters": given.parameters,
            "plugins_input": {},
        } | ({"service_account": self.service_account} if self.service_account else {})


def seconds_of(schedule: Schedule) -> int:
    """Its interval in seconds; 0 if it uses cron."""
    return int(schedule.interval.total_seconds()) if schedule.interval else 0


def held(api: KfpApi, project: str) -> list[Held]:
    """The recurring runs of a project that Gatehouse created, newest first."""
    found = []
    for run in api.recurring_runs(f"{project}-"):
        mark = _MARK.search(run.description)
        if mark and mark[1] == project and re.fullmatch(rf"{project}-{mark[2]}-[0-9a-f]{{{DIGITS}}}", run.name):
            start = datetime.strptime(mark[4], _SHORT).replace(tzinfo=UTC) if mark[4] else None
            found.append(Held(run, mark[2], mark[3], start))  # type: ignore[arg-type]  # The expression knows the words.
    return found


def plan(api: KfpApi, wanted: Iterable[Wanted], found: list[Held]) -> Iterator[Change]:
    """The changes that `apply` would make, schedule by schedule, including schedules to remove."""
    names = set()
    for each in wanted:
        names.add(each.name)
        yield _change(api, each, [one for one in found if one.schedule == each.name])
    for one in found:
        if one.schedule not in names:
            yield Change("-", f"schedule {one.schedule} ({one.run.name})", ("it is not in project.yaml",))


def _change(api: KfpApi, wanted: Wanted, found: list[Held]) -> Change:
    same = [one for one in found if one.run.name == wanted.display_name]
    older = [one for one in found if one.run.name != wanted.display_name]
    what = f"schedule {wanted.name}"
    if not found:
        shown = {**_shown(wanted), "version": _version(api, wanted), "sla_hours": wanted.schedule.sla_hours}
        return Change("+", f"{what} ({wanted.display_name})", tuple(f"{k}: {v}" for k, v in shown.items() if v))
    if not same:
        changed = list(_differences(api, wanted, older[0])) or [_otherwise(older[0].run)]
        if _mode(wanted, older) == "paused":
            changed.append("a person paused it: it stays paused")
        return Change("~", f"{what} ({older[0].run.name} -> {wanted.display_name})", tuple(changed))
    if older or len(same) > 1:
        return Change("~", f"{what} ({wanted.display_name})", ("goes on where it was cut off",))
    if same[0].run.enabled != wanted.schedule.enabled and not (wanted.schedule.enabled and same[0].paused):
        turned = f"enabled: {same[0].run.enabled} -> {wanted.schedule.enabled}"
        return Change("~", f"{what} ({wanted.display_name})", (turned,))
    if wanted.schedule.enabled and same[0].paused:
        return Change("!", f"{what} is paused", (f"`gatehouse schedule resume {wanted.name}` lets it go on",))
    last = next(api.runs(recurring_run=same[0].run.id), None)
    if last and wanted.schedule.parameters and not last.parameters:
        why = "KFP stored it without its workflow, as some releases do where an administrator has plug-ins;"
        advice = f"{why} `gatehouse schedule delete {wanted.name}` stops it"
        return Change("!", f"{what} starts runs without its parameters, as {last.name}", (advice,))
    return Change("=", what)


def _otherwise(run: RecurringRun) -> str:
    """Why the name differs although all fields that KFP returns are equal: KFP fills in its default account."""
    account = f"service_account: {run.service_account} -> KFP's own; where that is the same, " * bool(
        run.service_account
    )
    return f"{account}this version makes the name in another way"


def _shown(wanted: Wanted) -> dict[str, Any]:
    """The fields of a schedule for people."""
    facts = wanted.facts()
    given = {f"parameters.{name}": value for name, value in facts.pop("parameters").items()}
    return facts | {"start": wanted.schedule.start} | given | {"enabled": wanted.schedule.enabled}


def _differences(api: KfpApi, wanted: Wanted, before: Held) -> Iterator[str]:
    """The changes of a schedule as `field: old value -> new value`, then the changes of its compiled pipeline."""
    run, new = before.run, _shown(wanted)
    old = {key: getattr(run, key) for key in new if hasattr(run, key)} | {"start": before.start}
    old |= {f"parameters.{name}": value for name, value in run.parameters.items()}
    old |= {"enabled": run.enabled or before.paused}
    for key in dict.fromkeys((*new, *old)):
        if old.get(key) != new.get(key):
            yield f"{key}: {_word(old.get(key))} -> {_word(new.get(key))}"
    experiment = api.find_experiment(wanted.experiment)
    if experiment is None or experiment.id != run.experiment:
        yield f"experiment: {run.experiment} -> {wanted.experiment}"
    try:
        held = api.version(run.pipeline, run.version)
    except KfpRefusedError:
        yield f"version: one that is gone ({run.version}) -> {_version(api, wanted)}"
        return
    compiled = [_compiled(held.spec), _compiled(wanted.upload.parts)]
    pipelines = [each.spec["pipelineInfo"]["name"] for each in compiled]
    if held.name != wanted.upload.version:
        yield f"version: {held.display_name} -> {_version(api, wanted)}"
    if pipelines[0] != pipelines[1]:
        yield f"pipeline: {pipelines[0]} -> {pipelines[1]}"
    else:
        yield from (f"  {line}" for line in differences(*compiled))


def _version(api: KfpApi, wanted: Wanted) -> str:
    """The version for people."""
    return (wanted.upload.find(api)[1] or wanted.upload).display_name


def _word(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if value or value is False else "none"


def _compiled(answer: Mapping[str, Any]) -> Compiled:
    """A spec from the server, with integers restored: JSON does not distinguish 1 from 1.0."""

    def number(text: str) -> float:
        return int(float(text)) if float(text).is_integer() else float(text)

    whole = json.loads(json.dumps(dict(answer)), parse_float=number)
    kubernetes = (whole.get("platform_spec") or {}).get("platforms", {}).get("kubernetes", {})
    return Compiled("", "", whole.get("pipeline_spec", whole), kubernetes)


@dataclass(frozen=True)
class Applying:
    """Brings KFP to the requested state.

    Attributes:
        api: The server.
        now: Gives the present time.
        sleep: Waits for a number of seconds.
        allowed: Called just before a recurring run is created; raises if that is no longer allowed.
    """

    api: KfpApi
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    allowed: Callable[[], None] = lambda: None

    def apply(self, wanted: list[Wanted], project: str) -> list[Change]:
        """Make the changes of `plan`, and return them."""
        found = held(self.api, project)
        changes = list(plan(self.api, wanted, found))
        for each, change in zip(wanted, changes, strict=False):
            if change.sign in "+~":
                begun = True
                while self._step(each, [one for one in held(self.api, project) if one.schedule == each.name], begun):
                    begun = False
        names = {each.name for each in wanted}
        for one in found:
            if one.schedule not in names:
                self.api.delete_recurring_run(one.run.id)
        return changes

    def _step(self, wanted: Wanted, found: list[Held], first: bool) -> bool:
        """Make the next step towards the requested state; False if none is left.

        Args:
            wanted: The schedule.
            found: Its recurring runs in KFP, newest first.
            first: Whether it is the first step, so that everything in KFP is from earlier commands.

        Raises:
            KfpError: if KFP does not list what an earlier step created.
        """
        same = [one for one in found if one.run.name == wanted.display_name]
        older = [one for one in found if one.run.name != wanted.display_name]
        if not same:
            if not first:
                raise KfpError(
                    f"KFP created the recurring run {wanted.display_name}, but does not list it. Find it in KFP, "
                    "delete it there, and apply again."
                )
            self._create(wanted, older)
            return True
        current, *doubles = same
        self._verify(wanted, current.run)
        if doubles:
            self.api.delete_recurring_run(doubles[-1].run.id)
            return True
        running = [one for one in older if one.run.enabled]
        if running and first and self._was_due(wanted.schedule, current.run):
            # The old one ran all times due so far, so the new one must not start before now.
            self.api.delete_recurring_run(current.run.id)
            self._create(wanted, older)
            return True
        if running:
            self.api.enable(running[0].run.id, enabled=False)
            return True
        if wanted.schedule.enabled:
            turn = bool(older) and not current.run.enabled and current.wanted == "enabled"
        else:
            turn = current.run.enabled
        if turn:
            self.api.enable(current.run.id, wanted.schedule.enabled)
            return True
        if older:
            self.api.delete_recurring_run(older[-1].run.id)
        return bool(older)

    def _create(self, wanted: Wanted, older: list[Held]) -> None:
        mode = _mode(wanted, older)
        pipeline, uploaded = wanted.upload.send(self.api)
        experiment = self.api.experiment(wanted.experiment)
        if any(one.run.enabled for one in older):
            self._stand_clear([wanted.schedule, *(schedule_of(one.run, wanted.schedule.time_zone) for one in older)])
        ids = experiment.id, pipeline.id, uploaded.id
        self.allowed()
        self.api.create_recurring_run(wanted.body(mode, mode == "enabled" and not older, not older, ids))

    def _stand_clear(self, schedules: list[Schedule]) -> None:
        """Wait until none of them is due soon."""
        for schedule in schedules:
            now = self.now()
            if schedule.cron and (due := schedule.following(now, now)):
                left = (due - now).total_seconds()
                if left <= NEAR_SECONDS:
                    logger.warning("A schedule is due at %s; it is replaced after that.", due.isoformat())
                    self.sleep(left + NEAR_SECONDS / 10)

    def _was_due(self, schedule: Schedule, run: RecurringRun) -> bool:
        due = schedule.following(run.created_at, run.created_at)
        return due is not None and due <= self.now()

    def _verify(self, wanted: Wanted, run: RecurringRun) -> None:
        """Compare what KFP stored with the request, and delete what would start other runs.

        Raises:
            KfpError: naming what differs.
        """
        differing = [
            f"{key}: expected {value}, found {getattr(run, key)}"
            for key, value in wanted.facts().items()
            if getattr(run, key) != value
        ]
        # KFP answers the parameters that it was given; the account is that of the workflow which would get them.
        if wanted.schedule.parameters and not (run.version and run.service_account):
            differing.append("it is stored without its workflow, so its runs would start without parameters")
        if differing:
            self.api.delete_recurring_run(run.id)
            raise KfpError(
                f"The recurring run {run.name} is not what was asked for: {'; '.join(differing)}. It is deleted "
                "again, and nothing else was changed."
            )


def _mode(wanted: Wanted, older: list[Held]) -> Mode:
    """The requested state of a recurring run that replaces others: one that a person paused stays paused."""
    if not wanted.schedule.enabled:
        return "disabled"
    if not older:
        return "enabled"
    # If there are two already, replacing was interrupted, and Gatehouse disabled the first.
    paused = older[0].wanted == "paused" if len(older) > 1 else older[0].paused
    return "paused" if paused else "enabled"


def schedule_of(run: RecurringRun, time_zone: str) -> Schedule:
    """The schedule of a recurring run."""
    rhythm = {"cron": run.cron} if run.cron else {"interval": timedelta(seconds=run.interval)}
    return Schedule.model_validate(rhythm | {"end": run.end, "time_zone": time_zone})


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
