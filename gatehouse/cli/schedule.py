"""`gatehouse schedule`: the schedules of project.yaml as recurring runs of Kubeflow Pipelines."""

import os
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.kfp import DryRunOption, Place, PlatformOption, exit_code, show
from gatehouse.cli.output import JsonOption, print_json, print_rows
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.scheduling import Applying, DeclaredSchedule, KfpSchedule, kfp_schedules, plan, schedule_of
from gatehouse.kfp.submission import Change, Submission, Upload, planned
from gatehouse.operations.ending_stage import outcome_in_kfp
from gatehouse.project.windows import windows_of
from gatehouse.store.store import ArtifactStore
from gatehouse.store.turns import Turn

app = typer.Typer(no_args_is_help=True, help="Runs that recur: apply, list, pause, resume, backfill, delete.")

TIME_ZONE = "GATEHOUSE_KFP_TIME_ZONE"
"""Time zone in which KFP's controller reads cron expressions; UTC if not set, as in KFP."""
_PLUGINS_LEFT_OUT = Change(
    "!",
    "the profile's `mlflow` is left out of schedules",
    ("KFP 2.17 stores a schedule with input for plug-ins without its workflow, and starts runs without parameters",),
)
ProjectOption = Annotated[Path | None, typer.Option(help="Folder of the project; default: this one.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the schedule in project.yaml.")]


@app.command()
def apply(project: ProjectOption = None, platform: PlatformOption = None, dry_run: DryRunOption = False) -> None:
    """Make KFP have the schedules that stand in project.yaml, and no others of this project."""
    place = Place.of(project, platform)
    declared = _declared(place)
    left_out = [_PLUGINS_LEFT_OUT] if declared and place.platform.plugins_input else []
    if dry_run:
        show([*plan(place.api, declared, kfp_schedules(place.api, place.project.name)), *left_out])
        return
    place.publish()
    with _alone(place) as turn:
        show([*Applying(place.api, allowed=turn.require).apply(declared, place.project.name), *left_out])


@app.command("list")
def list_schedules(project: ProjectOption = None, platform: PlatformOption = None, as_json: JsonOption = False) -> None:
    """Show what KFP has of this project's schedules, with the next time and the last run of each."""
    place = Place.of(project, platform)
    store = ArtifactStore.open(place.platform.store)
    rows = []
    for schedule in kfp_schedules(place.api, place.project.name):
        run, declared = schedule.run, place.project.file.schedules.get(schedule.schedule)
        rhythm = schedule_of(run, declared.time_zone if declared else "UTC")
        due = rhythm.following(datetime.now(UTC), run.created_at) if run.enabled else None
        last = next(place.api.runs(recurring_run=run.id), None)
        ended = ""
        if last:  # KFP's word while it goes on, then its own record too.
            ended = outcome_in_kfp(store, last.id, last.state).state if last.ended else last.state or "not started"
        rows.append(
            {
                "schedule": schedule.schedule,
                "recurring_run": run.name,
                "when": run.cron or f"every {run.interval} s",
                "state": "enabled" if run.enabled else "paused" if schedule.paused else "disabled",
                "next": due.astimezone(UTC).isoformat() if due else "",
                "last_run": last.created_at.isoformat() if last else "",
                "ended": ended,
            }
        )
    if as_json:
        print_json(rows)
        return
    head = ("schedule", "recurring run", "when", "state", "next", "last run", "ended")
    print_rows(head, (list(row.values()) for row in rows))


@app.command()
def pause(name: NameArgument, project: ProjectOption = None, platform: PlatformOption = None) -> None:
    """Let a schedule start no more runs; `apply` leaves it so, and `resume` lets it go on."""
    _turn(Place.of(project, platform), name, enabled=False)


@app.command()
def resume(name: NameArgument, project: ProjectOption = None, platform: PlatformOption = None) -> None:
    """Let a schedule that was paused start runs again."""
    _turn(Place.of(project, platform), name, enabled=True)


def _alone(place: Place) -> Turn:
    """A lock: no other command changes schedules of the project in the meantime."""
    return place.alone(f"schedules of {place.project.name}")


def _turn(place: Place, name: str, enabled: bool) -> None:
    with _alone(place) as turn:
        newest, *_ = _named(place, name)
        if newest.run.enabled == enabled:
            typer.echo(str(Change("=", f"schedule {name}", ("it is enabled" if enabled else "it is paused",))))
            return
        turn.require()
        place.api.enable(newest.run.id, enabled)
    typer.echo(str(Change("~", f"schedule {name}", (f"enabled: {newest.run.enabled} -> {enabled}",))))


@app.command()
def delete(
    name: NameArgument, project: ProjectOption = None, platform: PlatformOption = None, dry_run: DryRunOption = False
) -> None:
    """Delete a schedule from KFP; its runs stay. `apply` makes it again while it stands in project.yaml."""
    place = Place.of(project, platform)
    with nullcontext() if dry_run else _alone(place) as turn:
        schedules = _named(place, name)
        show([Change("-", f"schedule {name} ({schedule.run.name})") for schedule in schedules])
        if turn is None:
            return
        for schedule in schedules:
            turn.require()
            place.api.delete_recurring_run(schedule.run.id)


@app.command()
def backfill(
    name: NameArgument,
    windows: Annotated[str, typer.Option(help="START/END, START/END/STEP, or several with commas.")],
    project: ProjectOption = None,
    platform: PlatformOption = None,
    dry_run: DryRunOption = False,
    parallel: Annotated[int, typer.Option(min=0, help="Runs at a time; default: max_concurrency, else all.")] = 0,
) -> None:
    """Submit what a schedule runs once for each window of time; a window that was submitted before is left out.

    With a limit on runs at a time the command waits for a run to end before it submits one more. Where one of these did
    not succeed, the others go on, and the exit code is that of the first one.
    """
    place = Place.of(project, platform)
    if name not in place.project.file.schedules:
        raise ConfigurationError(f"There is no schedule {name!r} in project.yaml. It has {_names(place)}.")
    (declared,) = _declared(place, name)
    inputs = declared.upload.spec["root"].get("inputDefinitions", {}).get("parameters", {})
    if not parallel and "max_concurrency" in declared.schedule.model_fields_set:
        parallel = declared.schedule.max_concurrency
    changes = []
    running: list[str] = []
    codes = [0]
    if not dry_run:
        place.publish()
    for window in windows_of(windows):
        parameters = declared.schedule.parameters | window.parameters(inputs)
        account, plugins = declared.service_account, place.platform.plugins_input
        submission = Submission(declared.upload, parameters, declared.experiment, account, plugins, word=window.name)
        (change,) = [change for change in planned(place.api, submission) if change.what.startswith("run ")]
        changes.append(change)
        if not dry_run:
            if parallel and change.sign == "+" and len(running) >= parallel:
                typer.echo(f"{len(running)} runs go on: waiting for one of them to end.", err=True)
                codes.append(exit_code(place.api.wait(running.pop(0)), place.platform.store))
            with place.alone(f"run {submission.key}") as turn:
                run = submission.send(place.api, turn.require)
            running += [] if run.ended else [run.id]
    if not parallel and len(changes) > 1:
        changes.append(
            Change("!", "all windows run at once: --parallel, or max_concurrency of the schedule, limits that")
        )
    show(changes)
    sys.exit(next(filter(None, codes), 0))


def _declared(place: Place, only: str = "") -> list[DeclaredSchedule]:
    """The schedules of project.yaml with their compiled pipelines.

    Raises ConfigurationError if a run would fail on the platform, or a time zone differs from the server's, because
    KFP's API has no field for it.
    """
    file = place.project.file
    schedules = {name: schedule for name, schedule in file.schedules.items() if only in ("", name)}
    for name, schedule in schedules.items():
        place.require_runs(schedule.parameters, f"schedules.{name}.parameters.")
    uploads: dict[str, Upload] = {}
    for cache in {schedule.cache for schedule in schedules.values()}:
        cached = {name: schedule for name, schedule in schedules.items() if schedule.cache == cache}
        compiled = place.compiled({schedule.pipeline or name for name, schedule in cached.items()}, cache)
        uploads |= {name: compiled[schedule.pipeline or name] for name, schedule in cached.items()}
    zone = os.environ.get(TIME_ZONE, "") or "UTC"
    wrong = [
        f"schedules.{name}.time_zone: expected {zone}, found {schedule.time_zone}"
        for name, schedule in file.schedules.items()
        if schedule.cron and schedule.time_zone != zone
    ]
    if wrong:
        raise ConfigurationError(
            f"{'; '.join(wrong)}. KFP reads every cron expression in the zone of its controller "
            f"(CRON_SCHEDULE_TIMEZONE of ml-pipeline-scheduledworkflow). Set {TIME_ZONE} here to what it is there."
        )
    account = place.platform.service_account
    return [
        DeclaredSchedule(place.project.name, name, schedule, uploads[name], place.experiment, account)
        for name, schedule in schedules.items()
    ]


def _named(place: Place, name: str) -> list[KfpSchedule]:
    schedules = [schedule for schedule in kfp_schedules(place.api, place.project.name) if schedule.schedule == name]
    if not schedules:
        raise ConfigurationError(
            f"KFP has no schedule {name!r} of {place.project.name}; `gatehouse schedule apply` makes those of "
            f"project.yaml, which has {_names(place)}."
        )
    return schedules


def _names(place: Place) -> str:
    return ", ".join(sorted(place.project.file.schedules)) or "none"
