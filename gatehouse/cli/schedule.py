"""`gatehouse schedule`: the schedules of project.yaml as recurring runs of Kubeflow Pipelines."""

import os
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gatehouse.cli.kfp import DryRunOption, Place, PlatformOption, exit_code, show
from gatehouse.cli.output import JsonOption, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.scheduling import Applying, Held, Wanted, held, plan, schedule_of
from gatehouse.kfp.submission import Change, Submission, planned
from gatehouse.kfp_api.answers import Run
from gatehouse.operations.ending.outcome import outcome_in_kfp
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
    wanted = _wanted(place)
    left_out = [_PLUGINS_LEFT_OUT] if wanted and place.platform.plugins_input else []
    if dry_run:
        show([*plan(place.api, wanted, held(place.api, place.project.name)), *left_out])
        return
    place.publish()
    with _alone(place) as turn:
        show([*Applying(place.api, allowed=turn.require).apply(wanted, place.project.name), *left_out])


@app.command("list")
def list_schedules(project: ProjectOption = None, platform: PlatformOption = None, as_json: JsonOption = False) -> None:
    """Show what KFP has of this project's schedules, with the next time and the last run of each."""
    place = Place.of(project, platform)
    rows = [_row(place, one) for one in held(place.api, place.project.name)]
    if as_json:
        print_json(rows)
        return
    table = Table("schedule", "recurring run", "when", "state", "next", "last run", "ended")
    for row in rows:
        table.add_row(*row.values())
    print_table(table)


def _row(place: Place, one: Held) -> dict[str, str]:
    run, given, now = one.run, place.project.file.schedules.get(one.schedule), datetime.now(UTC)
    rhythm = schedule_of(run, given.time_zone if given else "UTC")
    due = rhythm.following(now, run.created_at) if run.enabled else None
    last = next(place.api.runs(recurring_run=run.id), None)
    return {
        "schedule": one.schedule,
        "recurring_run": run.name,
        "when": run.cron or f"every {run.interval} s",
        "state": "enabled" if run.enabled else "paused" if one.paused else "disabled",
        "next": due.astimezone(UTC).isoformat() if due else "",
        "last_run": last.created_at.isoformat() if last else "",
        "ended": _ended(place, last) if last else "",
    }


def _ended(place: Place, run: Run) -> str:
    """How a run ended, by KFP and by its own record; KFP's word where it goes on."""
    if not run.ended:
        return run.state or "not started"
    return outcome_in_kfp(ArtifactStore.open(place.platform.store), run.id, run.state).state


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
        found = _named(place, name)
        show([Change("-", f"schedule {name} ({one.run.name})") for one in found])
        if turn is None:
            return
        for one in found:
            turn.require()
            place.api.delete_recurring_run(one.run.id)


@app.command()
def backfill(
    name: NameArgument,
    windows: Annotated[
        str, typer.Option(help="START/END, START/END/STEP such as 2013-01-01/2013-07-01/P1M, or several with commas.")
    ],
    project: ProjectOption = None,
    platform: PlatformOption = None,
    dry_run: DryRunOption = False,
    parallel: Annotated[
        int, typer.Option(min=0, help="Runs at a time; default: the schedule's max_concurrency, else all at once.")
    ] = 0,
) -> None:
    """Submit what a schedule runs once for each window of time; a window that was submitted before is left out.

    With a limit on runs at a time the command waits for a run to end before it submits one more. Where one of these did
    not succeed, the others go on, and the exit code is that of the first one.
    """
    place = Place.of(project, platform)
    if name not in place.project.file.schedules:
        raise ConfigurationError(f"There is no schedule {name!r} in project.yaml. It has {_known(place)}.")
    (wanted,) = _wanted(place, name)
    known = wanted.upload.spec["root"].get("inputDefinitions", {}).get("parameters", {})
    if not parallel and "max_concurrency" in wanted.schedule.model_fields_set:
        parallel = wanted.schedule.max_concurrency
    changes = []
    going: list[str] = []
    codes = [0]
    if not dry_run:
        place.publish()
    for window in windows_of(windows):
        given = wanted.schedule.parameters | window.parameters(known)
        plugins = place.platform.plugins_input
        one = Submission(wanted.upload, given, wanted.experiment, wanted.service_account, plugins, word=window.name)
        (change,) = [change for change in planned(place.api, one) if change.what.startswith("run ")]
        changes.append(change)
        if not dry_run:
            if parallel and change.sign == "+" and len(going) >= parallel:
                typer.echo(f"{len(going)} runs go on: waiting for one of them to end.", err=True)
                codes.append(exit_code(place.api.wait(going.pop(0)), place.platform.store))
            with place.alone(f"run {one.key}") as turn:
                run = one.send(place.api, turn.require)
            going += [] if run.ended else [run.id]
    if not parallel and len(changes) > 1:
        changes.append(
            Change("!", "all windows run at once: --parallel, or max_concurrency of the schedule, limits that")
        )
    show(changes)
    sys.exit(next(filter(None, codes), 0))


def _wanted(place: Place, only: str = "") -> list[Wanted]:
    schedules = {name: each for name, each in place.project.file.schedules.items() if only in ("", name)}
    for name, each in schedules.items():
        place.require_runs(each.parameters, f"schedules.{name}.parameters.")
    pipelines = {name: each.pipeline or name for name, each in schedules.items()}
    uploads = {
        cache: place.compiled(
            sorted({pipelines[name] for name, each in schedules.items() if each.cache == cache}), cache
        )
        for cache in {each.cache for each in schedules.values()}
    }
    _check_time_zones(place)
    return [
        Wanted(
            place.project.name,
            name,
            each,
            uploads[each.cache][pipelines[name]],
            place.experiment,
            place.platform.service_account,
        )
        for name, each in schedules.items()
    ]


def _check_time_zones(place: Place) -> None:
    """Refuse a time zone that differs from the server's, because KFP's API has no field for it.

    Raises:
        ConfigurationError: naming the schedules, and what to do.
    """
    server = os.environ.get(TIME_ZONE, "") or "UTC"
    wrong = [
        f"schedules.{name}.time_zone: expected {server}, found {each.time_zone}"
        for name, each in place.project.file.schedules.items()
        if each.cron and each.time_zone != server
    ]
    if wrong:
        raise ConfigurationError(
            f"{'; '.join(wrong)}. KFP reads every cron expression in the zone of its controller "
            f"(CRON_SCHEDULE_TIMEZONE of ml-pipeline-scheduledworkflow). Set {TIME_ZONE} here to what it is there."
        )


def _named(place: Place, name: str) -> list[Held]:
    found = [one for one in held(place.api, place.project.name) if one.schedule == name]
    if not found:
        raise ConfigurationError(
            f"KFP has no schedule {name!r} of {place.project.name}; `gatehouse schedule apply` makes those of "
            f"project.yaml, which has {_known(place)}."
        )
    return found


def _known(place: Place) -> str:
    return ", ".join(sorted(place.project.file.schedules)) or "none"
