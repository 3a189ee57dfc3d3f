"""`gatehouse run` and `gatehouse backfill`: pipelines of a project on this machine, shown step by step."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gatehouse.cli.terminal import Screen
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.local_run import LocalRun, run_pipeline
from gatehouse.project.place import in_folder, project_folder, store_address
from gatehouse.runtime.plural import counted
from gatehouse.store.run import REASON, require_span
from gatehouse.store.store import ArtifactStore

ProjectArgument = Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")]
StoreOption = Annotated[str, typer.Option("--store", help="Where everything is written; default: the project's.")]
SourceOption = Annotated[str, typer.Option("--source", help="Read the raw tables here, not at the project's source.")]
ParameterOption = Annotated[list[str] | None, typer.Option("--param", help="Another parameter, as NAME=VALUE.")]


def run(
    project: ProjectArgument = None,
    pipeline: Annotated[str, typer.Option(help="training, promotion, monitoring, scoring, …")] = "training",
    store: StoreOption = "",
    source: SourceOption = "",
    window: Annotated[str, typer.Option(help="Only events of START/END, e.g. 2013-01-01/2013-03-01.")] = "",
    seed: Annotated[int | None, typer.Option(help="Seed of splits, trials and weights.")] = None,
    rerun: Annotated[str, typer.Option(help="Stages to run whatever the memo holds, e.g. train,evaluate.")] = "",
    backfill: Annotated[str, typer.Option(help="Why rows of the earlier snapshot may change; recorded with it.")] = "",
    until: Annotated[str, typer.Option(help="The last stage that runs, e.g. validate or split; default: all.")] = "",
    reason: Annotated[str, typer.Option(help="Why you run it; kept with what it makes.")] = "",
    param: ParameterOption = None,
    strict: Annotated[bool, typer.Option(help="Exit with 3 if the candidate is refused or inconclusive.")] = False,
) -> None:
    """Run a pipeline on this machine; the second run of an unchanged project takes everything from the memo."""
    folder = project_folder(project).resolve()
    options = {"source": source, "window": window, "rerun": rerun, "backfill": backfill, "seed": seed}
    arguments = {name: value for name, value in options.items() if value not in ("", None)}
    arguments |= dict(map(parameter, param or ()))
    opened = ArtifactStore.open(store_address(store, folder))
    outcome = run_project(folder, pipeline, opened, arguments, until, reason)
    refused = outcome.result("register").get("decision") in ("refused", "inconclusive")
    sys.exit(3 if strict and refused and outcome.exit_code == 0 else outcome.exit_code)


def run_project(
    folder: Path, pipeline: str, store: ArtifactStore, arguments: dict[str, Any], until: str = "", reason: str = ""
) -> LocalRun:
    """Run a pipeline with paths from here; a monitoring run that orders a training is followed by that training."""
    arguments = from_here(arguments)
    require_span(arguments)
    if reason:
        os.environ[REASON] = reason
    outcome = run_on_screen(folder, pipeline, store, arguments, until)
    if pipeline != "monitoring" or outcome.exit_code or outcome.result("retrain").get("action") != "ordered":
        return outcome
    from gatehouse.kfp.retraining import train_ordered

    train = partial(run_on_screen, folder, "training", store)
    trained = train_ordered(store, folder, outcome.result("retrain")["cause"], train)
    if trained is None:
        typer.echo(f"Another process already trained for the order {outcome.result('retrain')['run']}.")
    return trained or outcome


def run_on_screen(
    folder: Path, pipeline: str, store: ArtifactStore, arguments: dict[str, Any], until: str = "", run_id: str = ""
) -> LocalRun:
    """Run a pipeline, show it in the terminal step by step, then its results, and then in MLflow."""

    def import_for_the_end() -> None:
        from gatehouse.store.stage import declared_stages

        declared_stages()
        importlib.import_module("gatehouse.tracking.projection")

    importing = threading.Thread(target=import_for_the_end, daemon=True)
    with Screen(store) as screen:

        def watch(run: LocalRun) -> None:
            if run.plan and importing.ident is None:  # Before that, the processes of the run are importing.
                importing.start()
            screen.update(run)

        outcome = run_pipeline(folder, pipeline, store, arguments, watch, until, run_id)
    screen.summarise(outcome)
    from gatehouse.tracking.place import warning_on_failure
    from gatehouse.tracking.projection import PATIENCE, backlog_reason, runs_left, show_apart

    # A failure of tracking is a warning: the exit code is that of the run.
    with warning_on_failure(store, "run:tracking", noted=lambda: outcome.run in runs_left(store)):
        if earlier := [run for run in runs_left(store) if run != outcome.run]:
            typer.echo(f"MLflow does not show {counted(len(earlier), 'earlier run')} yet; trying again: {outcome.log}")
            reason = backlog_reason(store, earlier[0]) or "its process is at work, or was ended"
            typer.echo(f"warning of {earlier[0]}: {reason}")
        showing = show_apart(store, outcome.run, outcome.log)
        # In a container all processes may end with this one. If the run is not shown by then, the next run does it.
        if showing is not None and outcome.exit_code == 0 and not sys.stdout.isatty():
            with contextlib.suppress(subprocess.TimeoutExpired):
                showing.wait(PATIENCE)
            if outcome.run in runs_left(store):
                typer.echo(f"MLflow does not show this run yet: {backlog_reason(store, outcome.run) or outcome.log}")
    return outcome


def from_here(arguments: dict[str, Any]) -> dict[str, Any]:
    """Make paths in parameters absolute, because tasks run in other folders than the current one."""
    paths = {name: str(arguments[name]) for name in ("source", "keys", "predictions") if arguments.get(name)}
    files = {name: path for name, path in paths.items() if name == "source" or "/sha256-" not in path}
    if "predictions" in files:
        from gatehouse.monitoring.rows import LATEST  # Late, because it imports pydantic.

        if files["predictions"] == LATEST:
            del files["predictions"]
    return arguments | {name: in_folder(Path.cwd(), path) for name, path in files.items()}


def parameter(text: str) -> tuple[str, Any]:
    """Name and value of `NAME=VALUE`; the value is JSON, or a text. Raises ConfigurationError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"--param: expected NAME=VALUE, found {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def backfill(
    project: ProjectArgument = None,
    windows: Annotated[str, typer.Option(help="START/END, START/END/STEP, or several with commas.")] = "",
    pipeline: Annotated[str, typer.Option(help="scoring, monitoring or training.")] = "scoring",
    store: StoreOption = "",
    source: SourceOption = "",
    param: ParameterOption = None,
) -> None:
    """Run a pipeline once for each window; one that fails does not stop the others, and a repeat takes the memo."""
    from gatehouse.pipelines.catalog import build
    from gatehouse.project.project import load_project
    from gatehouse.project.windows import windows_of

    requested, folder = windows_of(windows), project_folder(project).resolve()
    declared = build(pipeline, load_project(folder)).function.pipeline_spec.root.input_definitions.parameters
    arguments = from_here(dict(map(parameter, param or ())) | ({"source": source} if source else {}))
    of_windows = [(window, window.parameters(declared)) for window in requested]
    opened = ArtifactStore.open(store_address(store, folder))
    table, exit_codes = Table("window", "run", "ended"), [0]
    for window, bounds in of_windows:
        outcome = run_on_screen(folder, pipeline, opened, arguments | bounds)
        exit_codes.append(outcome.exit_code or 0)
        error = (outcome.failure or {}).get("error", "")
        table.add_row(str(window), outcome.run, "well" if outcome.exit_code == 0 else f"{outcome.exit_code} {error}")
        if exit_codes[-1] > 128:  # A signal to this command ends all windows.
            break
    Console(markup=False).print(table)
    sys.exit(max(exit_codes))
