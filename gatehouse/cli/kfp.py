"""`gatehouse submit`, `schedule` and `doctor`: a project on Kubeflow Pipelines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.api import schedules
from gatehouse.api.schedules import Cluster
from gatehouse.cli.output import JsonOption, ProjectArgument, ProjectOption, show
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.submission import Change, summary
from gatehouse.kfp_api.answers import Run

app = typer.Typer(no_args_is_help=True)
doctor = typer.Typer(no_args_is_help=True)
PlatformOption = Annotated[Path | None, typer.Option(help="Platform profile; default: the only one in platforms/.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the schedule in project.yaml.")]


def submit(
    project: ProjectArgument = None,
    pipeline: Annotated[str, typer.Option(help="Which of the project's pipelines.")] = "training",
    platform: PlatformOption = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the pipeline, as NAME=VALUE.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Another run of the same, as on new data.")] = False,
    cache: Annotated[bool, typer.Option(help="Whether KFP may take results of its earlier runs.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the run has ended, with its exit code.")] = False,
    timeout: Annotated[float, typer.Option(help="With --wait: at most so many hours.")] = 24 * 7,
    dry_run: DryRunOption = False,
) -> None:
    """Compile a pipeline, upload it where its content is new, and run it; what is there already is taken."""
    texts: dict[str, str] = {}
    for text in param or ():
        key, equals, value = text.partition("=")
        if not equals or key in texts:
            raise ConfigurationError(f"--param: expected NAME=VALUE, each name once, found {text!r}.")
        texts[key] = value
    cluster, plan = Cluster.of(project, platform), list[Change]()

    def notify(changes: list[Change]) -> None:
        plan.extend(changes)
        _print_plan(changes)

    run = schedules.submit(cluster, pipeline, texts, again, cache, dry_run, notify)
    if run is None:
        return
    if plan[-1].sign == "=" and not wait:
        typer.echo(f"{run.name} was submitted before; --again runs the same once more.")
    typer.echo(cluster.page_of(run))
    if wait:
        raise typer.Exit(_ended(cluster, cluster.api.wait(run.id, timeout * 3600)))


def _print_plan(changes: Sequence[Change]) -> None:
    typer.echo("\n".join([*map(str, changes), summary(list(changes))]))


def _ended(cluster: Cluster, run: Run) -> int:
    """Print how a run ended; its exit code."""
    outcome = cluster.outcome(run)
    where = f" in {outcome.stage}" if outcome.stage else ""
    failed = f"{run.name} {outcome.state}{where}: {outcome.message} {run.error}".strip()
    well = outcome.state == "succeeded"
    typer.echo(f"{run.name} succeeded." if well else failed, err=not well)
    return cluster.exit_code(run)


@app.command()
def apply(project: ProjectOption = None, platform: PlatformOption = None, dry_run: DryRunOption = False) -> None:
    """Make KFP have the schedules that stand in project.yaml, and no others of this project."""
    _print_plan(schedules.apply(Cluster.of(project, platform), dry_run))


@app.command("list")
def list_schedules(project: ProjectOption = None, platform: PlatformOption = None, as_json: JsonOption = False) -> None:
    """Show what KFP has of this project's schedules, with the next time and the last run of each."""
    show(schedules.schedules(Cluster.of(project, platform)), as_json, empty="KFP has no schedule of this project.")


@app.command()
def pause(name: NameArgument, project: ProjectOption = None, platform: PlatformOption = None) -> None:
    """Let a schedule start no more runs; `apply` leaves it so, and `resume` lets it go on."""
    typer.echo(str(schedules.turn(Cluster.of(project, platform), name, enabled=False)))


@app.command()
def resume(name: NameArgument, project: ProjectOption = None, platform: PlatformOption = None) -> None:
    """Let a schedule that was paused start runs again."""
    typer.echo(str(schedules.turn(Cluster.of(project, platform), name, enabled=True)))


@app.command()
def delete(
    name: NameArgument, project: ProjectOption = None, platform: PlatformOption = None, dry_run: DryRunOption = False
) -> None:
    """Delete a schedule from KFP; its runs stay. `apply` makes it again while it stands in project.yaml."""
    _print_plan(schedules.delete(Cluster.of(project, platform), name, dry_run))


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
    cluster, codes = Cluster.of(project, platform), [0]
    changes = schedules.backfill(
        cluster, name, windows, parallel, dry_run, lambda run: codes.append(_ended(cluster, run))
    )
    _print_plan(changes)
    raise typer.Exit(next(filter(None, codes), 0))


@doctor.callback()
def _doctor() -> None:
    """Look at a place before pipelines run there."""


@doctor.command("cluster")
def examine(
    project: ProjectArgument = None,
    platform: PlatformOption = None,
    run: Annotated[bool, typer.Option("--run", help="Then run a pipeline whose job kills its own worker.")] = False,
    timeout: Annotated[float, typer.Option(help="With --run: minutes for the pipeline at most.")] = 60,
    as_json: JsonOption = False,
) -> None:
    """Look at what a cluster must have: KFP, Kubernetes, images, rights, secrets, store, MLflow, Model Registry.

    Nothing is changed there but one small object in the store, which is removed again. With --run a pipeline of two
    tasks looks at the same from pods. Ends with 0 only where nothing failed and nothing that is needed was left
    unchecked.
    """
    findings = schedules.examine(project, platform, run, timeout)
    show(findings, as_json)
    raise typer.Exit(0 if all(finding.well for finding in findings) else 1)
