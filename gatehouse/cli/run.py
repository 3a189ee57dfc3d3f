"""`gatehouse run`: a pipeline of a project on this machine, shown step by step."""

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

from gatehouse.cli.place import in_folder, project_folder, store_address
from gatehouse.cli.terminal import Screen
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.local_run import LocalRun, run_pipeline
from gatehouse.operations.control.span import require_span
from gatehouse.runtime.counting import counted
from gatehouse.store.run import REASON
from gatehouse.store.store import ArtifactStore


def run(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    pipeline: Annotated[
        str, typer.Option(help="training, promotion, monitoring, materialization or scoring.")
    ] = "training",
    store: Annotated[str, typer.Option(help="Where everything is written; default: the project's store.")] = "",
    source: Annotated[str, typer.Option(help="Read the raw tables here instead of the project's source.")] = "",
    window: Annotated[str, typer.Option(help="Only events of START/END, e.g. 2013-01-01/2013-03-01.")] = "",
    seed: Annotated[int | None, typer.Option(help="Seed of splits, trials and weights.")] = None,
    rerun: Annotated[str, typer.Option(help="Stages to run whatever the memo holds, e.g. train,evaluate.")] = "",
    backfill: Annotated[str, typer.Option(help="Why rows of the earlier snapshot may change; recorded with it.")] = "",
    until: Annotated[str, typer.Option(help="The last stage that runs, e.g. validate or split; default: all.")] = "",
    reason: Annotated[str, typer.Option(help="Why you run it; kept with what it makes.")] = "",
    param: Annotated[list[str] | None, typer.Option(help="Any other parameter of the pipeline, as NAME=VALUE.")] = None,
    strict: Annotated[bool, typer.Option(help="Exit with 3 where the candidate does not pass.")] = False,
) -> None:
    """Run a pipeline on this machine; the second run of an unchanged project takes everything from the memo."""
    folder = project_folder(project).resolve()
    given: dict[str, Any] = {"source": source, "window": window, "rerun": rerun, "backfill": backfill}
    arguments = {name: value for name, value in given.items() if value}
    if seed is not None:
        arguments["seed"] = seed
    arguments = from_here(arguments | dict(parameter(text) for text in param or ()))
    require_span(arguments)
    if until:
        require_stage(until, pipeline)
        _require_section(until, folder)
    if reason:
        os.environ[REASON] = reason
    opened = ArtifactStore.open(store_address(store, folder))
    outcome = run_on_screen(folder, pipeline, opened, arguments, until)
    if pipeline == "monitoring" and outcome.exit_code == 0 and outcome.result("retrain").get("action") == "ordered":
        from gatehouse.kfp.retraining import train_ordered

        train = partial(run_on_screen, folder, "training", opened)
        trained = train_ordered(opened, folder, outcome.result("retrain")["cause"], train)
        if trained is None:
            typer.echo(
                f"Another process trained for the order {outcome.result('retrain')['run']}; nothing is left to do."
            )
        outcome = trained or outcome
    refused = outcome.result("register").get("decision") in ("refused", "inconclusive")
    sys.exit(3 if strict and refused and outcome.exit_code == 0 else outcome.exit_code)


def run_on_screen(
    folder: Path, pipeline: str, store: ArtifactStore, arguments: dict[str, Any], until: str = "", run_id: str = ""
) -> LocalRun:
    """Run a pipeline, and show it in the terminal step by step, what came of it, and then in MLflow."""
    importing = threading.Thread(target=_import_for_the_end, daemon=True)
    with Screen(store) as screen:

        def watch(run: LocalRun) -> None:
            if run.plan and importing.ident is None:  # Before that, the processes of the run are importing.
                importing.start()
            screen.update(run)

        outcome = run_pipeline(folder, pipeline, store, arguments, watch, until, run_id)
    screen.summarise(outcome)
    from gatehouse.tracking.later import runs_left
    from gatehouse.tracking.shown import warning_on_failure

    # The exit code is that of the run.
    with warning_on_failure(store, "run:tracking", noted=lambda: outcome.run in runs_left(store)):
        _show(store, outcome)
    return outcome


def _show(store: ArtifactStore, outcome: LocalRun) -> None:
    """Show a run that has ended, and those that were left before, in MLflow; print why one is left."""
    from gatehouse.tracking.later import PATIENCE, runs_left, show_apart, why_left

    if earlier := [run for run in runs_left(store) if run != outcome.run]:
        typer.echo(
            f"MLflow does not show {counted(len(earlier), 'earlier run')} yet. It is tried again now: {outcome.log}"
        )
        why = why_left(store, earlier[0]) or "the process that shows it is still at work, or was ended"
        typer.echo(f"warning of {earlier[0]}: {why}")
    showing = show_apart(store, outcome.run, outcome.log)
    # Where nobody looks, such as in a container, all processes may end with this one. What failed is told at once all
    # the same: the store holds by now that it is to be shown, so that the next run does it if this process is ended.
    if showing is not None and outcome.exit_code == 0 and not sys.stdout.isatty():
        with contextlib.suppress(subprocess.TimeoutExpired):  # It goes on alone, and the next line says so.
            showing.wait(PATIENCE)
        if outcome.run in runs_left(store):
            typer.echo(f"MLflow does not show this run yet: {why_left(store, outcome.run) or outcome.log}")


def _import_for_the_end() -> None:
    """Import what shows the end of a run, while this process waits for the run."""
    from gatehouse.store.stage import declared_stages

    declared_stages()
    importlib.import_module("gatehouse.tracking.later")


def _require_section(stage: str, folder: Path) -> None:
    """Refuse a stage whose section the project lacks; a file that cannot be read is reported when the run begins."""
    from gatehouse.configuration.yaml_lines import read_yaml
    from gatehouse.kfp.driver import not_asked_for, section_of
    from gatehouse.project.project_file import PROJECT_FILE

    body = None
    with contextlib.suppress(OSError, UnicodeError, ConfigurationError):
        body = read_yaml((folder / PROJECT_FILE).read_text(), PROJECT_FILE)
    section = section_of(stage)
    if isinstance(body, dict) and section and body.get(section) in (None, "never"):
        raise not_asked_for(stage)


def require_stage(name: str, pipeline: str) -> None:
    """Refuse a stage that no run of a pipeline has, before a run starts.

    Raises:
        ConfigurationError: listing the pipeline's stages in their order.
    """
    from gatehouse.configuration.yaml_lines import nearest
    from gatehouse.project.signatures import NAMES, stages

    if pipeline not in NAMES:
        offered = nearest(pipeline, NAMES)
        raise ConfigurationError(f"--pipeline: expected one of {', '.join(NAMES)}, found {pipeline!r}{offered}.")
    known = stages(pipeline)
    if name not in known:
        raise ConfigurationError(
            f"--until: expected a stage of {pipeline}, found {name!r}{nearest(name, known)}. Its stages are, in order: "
            f"{', '.join(known)}."
        )


def from_here(arguments: dict[str, Any]) -> dict[str, Any]:
    """Make paths in parameters absolute, because tasks run in other folders than the current one."""
    named = {name: str(arguments[name]) for name in ("source", "keys", "predictions") if arguments.get(name)}
    files = {name: place for name, place in named.items() if name == "source" or "/sha256-" not in place}
    if "predictions" in files:
        from gatehouse.monitoring.collecting.stage import LATEST  # Late, because it imports pydantic.

        if files["predictions"] == LATEST:
            del files["predictions"]
    return arguments | {name: in_folder(Path.cwd(), place) for name, place in files.items()}


def parameter(text: str) -> tuple[str, Any]:
    """Name and value of `NAME=VALUE`; the value is JSON, or a text. Raises ConfigurationError."""
    name, found, value = text.partition("=")
    if not found:
        raise ConfigurationError(f"--param: expected NAME=VALUE, found {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
