"""A project on Kubeflow Pipelines: submits its pipelines, keeps its schedules, and looks at what its cluster lacks."""

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import MONITORING, TRAINING, compile_pipeline
from gatehouse.kfp.compilation.specification import read_spec, tags_of
from gatehouse.kfp.scheduling import Applying, DeclaredSchedule, KfpSchedule, kfp_schedules, plan, schedule_of
from gatehouse.kfp.submission import Change, Submission, Upload, planned
from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import KfpError
from gatehouse.kfp_api.specs import parsed_parameters
from gatehouse.operations.diagnosing_stage import Finding, failed, passed
from gatehouse.operations.ending_stage import Outcome, outcome_in_kfp, unsuccessful
from gatehouse.project.place import project_folder
from gatehouse.project.platforms import Platform, profile_in
from gatehouse.project.project import Project
from gatehouse.project.signatures import NAMES
from gatehouse.project.windows import windows_of
from gatehouse.runtime.variables import UI
from gatehouse.store.parameters import require_known
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore
from gatehouse.store.turns import Turn
from gatehouse.tracking.provenance import revision

TIME_ZONE = "GATEHOUSE_KFP_TIME_ZONE"
"""Time zone in which KFP's controller reads cron expressions; UTC if not set, as in KFP."""
_PLUGINS_LEFT_OUT = Change(
    "!",
    "the profile's `mlflow` is left out of schedules",
    ("KFP 2.17 stores a schedule with input for plug-ins without its workflow, and starts runs without parameters",),
)


@dataclass(frozen=True)
class Cluster:
    """A project with its platform profile, and KFP's server there."""

    project: Project
    platform: Platform
    api: KfpApi

    @classmethod
    def of(cls, folder: Path | None, profile: Path | None) -> "Cluster":
        """The project in a folder with a platform profile; by default the only profile of the project."""
        from gatehouse.project.checking import check_project

        project = check_project(project_folder(folder))
        platform = profile_in(project.folder, profile)
        api = KfpApi.connect(platform.endpoint, platform.namespace)
        server = api.server().version
        if server and server.split(".")[0] != version("kfp").split(".")[0]:
            raise ConfigurationError(
                f"{api.endpoint} is Kubeflow Pipelines {server}: expected the major release of kfp {version('kfp')}."
            )
        return cls(project, platform, api)

    @property
    def store(self) -> ArtifactStore:
        """The platform's store."""
        return ArtifactStore.open(self.platform.store)

    def require_runs(self, parameters: Mapping[str, Any], key: str = "--param ") -> None:
        """Refuse parameters with which a run would fail on the platform; `key` is put before their names in errors."""
        from gatehouse.store.stage import forcible_stages

        require_known(str(parameters.get("rerun", "")), forcible_stages())
        if problems := [f"\n  - {key}{problem}" for problem in self.platform.run_problems(parameters)]:
            raise ConfigurationError(f"This cannot run on the platform {self.platform.name}:{''.join(problems)}")

    def page_of(self, run: Run) -> str:
        """Address of a run's page in KFP's UI."""
        return f"{(os.environ.get(UI) or self.api.endpoint).rstrip('/')}/#/runs/details/{run.id}"

    def alone(self, what: str = "") -> Turn:
        """A lock for store and namespace, by default of the schedules; a server's addresses do not count."""
        what = what or f"schedules of {self.project.name}"
        return Turn(self.store.objects, f"{what} {self.api.namespace}".strip())

    def publish(self) -> None:
        """Publish the artifacts that the specs name by reference: contract, feature definitions, tests."""
        for config in self.project.configs():
            config.publish(self.store)

    def compiled(self, pipelines: Collection[str], cache: bool = True) -> dict[str, Upload]:
        """Pipelines of the project by name, compiled for the platform."""
        uploads, made_of = dict[str, Upload](), revision(self.project.folder)
        with tempfile.TemporaryDirectory() as folder:
            for name in sorted({*pipelines, *([TRAINING] if MONITORING in pipelines else [])}, key=MONITORING.__eq__):
                spec = read_spec(compile_pipeline(name, self.project, Path(folder), self.platform))
                ordered = uploads[TRAINING] if name == MONITORING else None
                uploads[name] = Upload(self.project.name, name, spec.text, tags_of(spec), made_of, ordered)
        return uploads if cache else {name: upload.without_cache() for name, upload in uploads.items()}

    def submission(self, upload: Upload, parameters: Mapping[str, Any], word: str = "") -> Submission:
        """A run of a compiled pipeline, in the platform's experiment and under its service account."""
        experiment, platform = self.platform.experiment or self.project.name, self.platform
        return Submission(upload, parameters, experiment, platform.service_account, platform.plugins_input, word=word)

    def outcome(self, run: Run) -> Outcome:
        """How a run ended, by KFP's word and its own record."""
        return outcome_in_kfp(self.store, run.id, run.state)

    def exit_code(self, run: Run) -> int:
        """The exit code of `gatehouse run` for a run that ended."""
        if self.outcome(run).state == "succeeded":
            return 0
        failures = unsuccessful(event for _, event in events(self.store, run.id))
        return int(failures[0].body.get("exit_code", 1)) if failures else 1


def submit(
    cluster: Cluster,
    pipeline: str,
    parameters: Mapping[str, str],
    again: bool = False,
    cache: bool = True,
    dry_run: bool = False,
    notify: Callable[[list[Change]], None] = lambda changes: None,
) -> Run | None:
    """Compile a pipeline, upload it where its content is new, and run it; None with `dry_run`.

    A run of the same that is there is taken, unless `again`. `notify` gets the plan before anything is changed.
    """
    upload = cluster.compiled([pipeline], cache)[pipeline]
    submission = cluster.submission(upload, parsed_parameters(upload.spec, parameters))
    cluster.require_runs(submission.parameters)
    # KFP does not make run names unique: with this lock, the second of two commands finds the first one's run.
    with nullcontext() if dry_run else cluster.alone(f"run {submission.key}") as turn:
        if again:
            submission = submission.again(cluster.api)
        notify(list(planned(cluster.api, submission)))
        if turn is None:
            return None
        cluster.publish()
        return submission.send(cluster.api, turn.require)


def apply(cluster: Cluster, dry_run: bool = False) -> list[Change]:
    """Make KFP have the schedules that stand in project.yaml, and no others of this project; what was changed."""
    declared, name = _declared(cluster), cluster.project.name
    notices = [_PLUGINS_LEFT_OUT] if declared and cluster.platform.plugins_input else []
    for title, schedule in cluster.project.file.schedules.items():
        if unclear := tuple(schedule.changing_clocks(datetime.now(UTC))):
            notices.append(Change("!", f"schedule {title}", unclear))
    if dry_run:
        return [*plan(cluster.api, declared, kfp_schedules(cluster.api, name)), *notices]
    cluster.publish()
    with cluster.alone() as turn:
        return [*Applying(cluster.api, allowed=turn.require).apply(declared, name), *notices]


@dataclass(frozen=True)
class ScheduleState:
    """A schedule in KFP, `enabled`, `paused` by a person or `disabled`; its next time, and how its last run ended.

    One of a pipeline of the project that Gatehouse did not create, as in KFP's UI, has no name in `schedule`.
    """

    schedule: str
    recurring_run: str
    when: str
    state: str
    next: datetime | None
    last_run: datetime | None
    ended: str


def schedules(cluster: Cluster) -> list[ScheduleState]:
    """What KFP has of a project's schedules."""
    states, own = [], kfp_schedules(cluster.api, cluster.project.name)
    pipelines = [cluster.api.find_pipeline(f"{cluster.project.name}-{name}") for name in NAMES]
    ids, known = {pipeline.id for pipeline in pipelines if pipeline}, {schedule.run.id for schedule in own}
    others = [run for run in cluster.api.recurring_runs() if run.pipeline in ids and run.id not in known]
    for schedule in [*own, *(KfpSchedule(run, "", "disabled") for run in others)]:
        run, declared = schedule.run, cluster.project.file.schedules.get(schedule.schedule)
        rhythm = schedule_of(run, declared.time_zone if declared else "UTC")
        due = rhythm.following(datetime.now(UTC), run.created_at) if run.enabled else None
        state = "enabled" if run.enabled else "paused" if schedule.paused else "disabled"
        last, when = next(cluster.api.runs(recurring_run=run.id), None), run.cron or f"every {run.interval} s"
        # KFP's word while the run goes on, then its own record too.
        ended = (cluster.outcome(last).state if last.ended else last.state or "not started") if last else ""
        times = (due.astimezone(UTC) if due else None, last.created_at if last else None)
        states.append(ScheduleState(schedule.schedule, run.name, when, state, *times, ended))
    return states


def turn(cluster: Cluster, name: str, enabled: bool) -> Change:
    """Let a schedule start runs, or none; `apply` leaves it so."""
    with cluster.alone() as turn:
        newest, *_ = _named(cluster, name)
        if newest.run.enabled == enabled:
            return Change("=", f"schedule {name}", ("it is enabled" if enabled else "it is paused",))
        turn.require()
        cluster.api.enable(newest.run.id, enabled)
    return Change("~", f"schedule {name}", (f"enabled: {newest.run.enabled} -> {enabled}",))


def delete(cluster: Cluster, name: str, dry_run: bool = False) -> list[Change]:
    """Delete a schedule from KFP; its runs stay."""
    with nullcontext() if dry_run else cluster.alone() as turn:
        named = _named(cluster, name)
        for schedule in named if turn else ():
            assert turn
            turn.require()
            cluster.api.delete_recurring_run(schedule.run.id)
    return [Change("-", f"schedule {name} ({schedule.run.name})") for schedule in named]


def backfill(
    cluster: Cluster,
    name: str,
    windows: str,
    parallel: int = 0,
    dry_run: bool = False,
    ended: Callable[[Run], object] = id,
) -> list[Change]:
    """Submit what a schedule runs once for each window of time; a window that was submitted before is left out.

    At most `parallel` runs go on at a time, by default as many as the schedule's max_concurrency: one is waited for
    before one more is submitted, and given to `ended`.
    """
    if name not in cluster.project.file.schedules:
        raise ConfigurationError(f"There is no schedule {name!r} in project.yaml. It has {_names(cluster)}.")
    (declared,) = _declared(cluster, name)
    inputs = declared.upload.spec["root"].get("inputDefinitions", {}).get("parameters", {})
    if not parallel and "max_concurrency" in declared.schedule.model_fields_set:
        parallel = declared.schedule.max_concurrency
    changes, running = list[Change](), list[str]()
    if not dry_run:
        cluster.publish()
    for window in windows_of(windows):
        parameters = declared.schedule.parameters | window.parameters(inputs)
        submission = cluster.submission(declared.upload, parameters, word=window.name)
        (change,) = [change for change in planned(cluster.api, submission) if change.what.startswith("run ")]
        changes.append(change)
        if dry_run:
            continue
        if parallel and change.sign == "+" and len(running) >= parallel:
            ended(cluster.api.wait(running.pop(0)))
        with cluster.alone(f"run {submission.key}") as turn:
            run = submission.send(cluster.api, turn.require)
        running += [] if run.ended else [run.id]
    if not parallel and len(changes) > 1:
        all_at_once = "all windows run at once: --parallel, or max_concurrency of the schedule, limits that"
        changes.append(Change("!", all_at_once))
    return changes


def examine(project: Path | None, profile: Path | None, run: bool = False, minutes: float = 60) -> list[Finding]:
    """Check a cluster; with `run`, a pipeline whose job kills its own worker looks at the same from pods."""
    from gatehouse.kfp.doctor.cluster import examine as look
    from gatehouse.project.checking import check_project

    checked = check_project(project_folder(project))
    findings = list(look(checked, profile_in(checked.folder, profile)))
    if not run:
        return findings
    cluster = Cluster.of(project, profile)
    upload = cluster.compiled(["diagnosis"], cache=False)["diagnosis"]
    submitted = cluster.submission(upload, {}).again(cluster.api).send(cluster.api)
    page = cluster.page_of(submitted)
    try:
        outcome = cluster.outcome(cluster.api.wait(submitted.id, minutes * 60))
    except KfpError as error:
        return [*findings, failed("pods", " ".join(str(error).split())[:400], f"See {page}.")]
    if outcome.state != "succeeded":
        why = f"the run {submitted.name} {outcome.state}: {outcome.message}"
        return [*findings, failed("pods", why, f"Its tasks say more: {page}.")]
    # The first task checks from its pod what cannot be seen from here, such as the store.
    findings = [item for item in findings if item.check != "store" or item.outcome != "not checked"]
    return [*findings, passed("pods", "they reach what they need, and a job came back after a killed worker")]


def _declared(cluster: Cluster, only: str = "") -> list[DeclaredSchedule]:
    """The schedules of project.yaml with their compiled pipelines.

    Raises ConfigurationError if a run would fail on the platform, or a time zone differs from the server's, because
    KFP's API has no field for it.
    """
    file, platform, name = cluster.project.file, cluster.platform, cluster.project.name
    chosen = {name: schedule for name, schedule in file.schedules.items() if only in ("", name)}
    for title, schedule in chosen.items():
        cluster.require_runs(schedule.parameters, f"schedules.{title}.parameters.")
    uploads: dict[str, Upload] = {}
    for cache in (True, False):
        cached = {title: schedule.pipeline or title for title, schedule in chosen.items() if schedule.cache == cache}
        compiled = cluster.compiled(cached.values(), cache)
        uploads |= {title: compiled[pipeline] for title, pipeline in cached.items()}
    zone = os.environ.get(TIME_ZONE, "") or "UTC"
    wrong = [
        f"schedules.{title}.time_zone: expected {zone}, found {schedule.time_zone}"
        for title, schedule in file.schedules.items()
        if schedule.cron and schedule.time_zone != zone
    ]
    if wrong:
        raise ConfigurationError(
            f"{'; '.join(wrong)}. KFP reads every cron expression in the zone of its controller "
            f"(CRON_SCHEDULE_TIMEZONE of ml-pipeline-scheduledworkflow). Set {TIME_ZONE} here to what it is there."
        )
    place = (platform.experiment or name, platform.service_account)
    return [DeclaredSchedule(name, title, schedule, uploads[title], *place) for title, schedule in chosen.items()]


def _named(cluster: Cluster, name: str) -> list[KfpSchedule]:
    named = [item for item in kfp_schedules(cluster.api, cluster.project.name) if item.schedule == name]
    if not named:
        raise ConfigurationError(
            f"KFP has no schedule {name!r} of {cluster.project.name}; `gatehouse schedule apply` makes those of "
            f"project.yaml, which has {_names(cluster)}."
        )
    return named


def _names(cluster: Cluster) -> str:
    return ", ".join(sorted(cluster.project.file.schedules)) or "none"
