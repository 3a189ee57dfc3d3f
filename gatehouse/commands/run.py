"""`gatehouse run`: a pipeline of a project on this machine, shown step by step."""

import importlib
import json
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.components.artifacts.stage import declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError
from gatehouse.local_run import run_pipeline
from gatehouse.terminal import Screen

EXAMPLE = Path(__file__).parent.parent / "pipelines" / "projects" / "flights"
DEFAULT_STORE = Path(".gatehouse/store")


def run(
    project: Annotated[
        Path | None, typer.Argument(help="Folder of the project; default: here, else the example.")
    ] = None,
    pipeline: Annotated[str, typer.Option(help="training, promotion, monitoring or materialization.")] = "training",
    store: Annotated[str, typer.Option(help="Where everything is written.")] = str(DEFAULT_STORE),
    source: Annotated[str, typer.Option(help="Read the raw tables here instead of the project's source.")] = "",
    window: Annotated[str, typer.Option(help="Only events of START/END, e.g. 2013-01-01/2013-03-01.")] = "",
    seed: Annotated[int | None, typer.Option(help="Seed of splits, trials and weights.")] = None,
    force: Annotated[str, typer.Option(help="Stages to run whatever the memo holds, e.g. train,evaluate.")] = "",
    backfill: Annotated[str, typer.Option(help="Why rows of the earlier snapshot may change; recorded with it.")] = "",
    param: Annotated[list[str] | None, typer.Option(help="Any other parameter of the pipeline, as NAME=VALUE.")] = None,
    strict: Annotated[bool, typer.Option(help="Exit with 3 where the candidate is refused.")] = False,
) -> None:
    """Run a pipeline on this machine; the second run of an unchanged project takes everything from the memo."""
    folder = project_folder(project)
    given: dict[str, Any] = {"source": source, "window": window, "force": force, "backfill": backfill}
    arguments = {name: value for name, value in given.items() if value}
    if seed is not None:
        arguments["seed"] = seed
    arguments |= dict(_parameter(text) for text in param or ())
    opened = ArtifactStore.open(store)
    threading.Thread(target=_import_for_the_end, daemon=True).start()
    with Screen(opened) as screen:
        outcome = run_pipeline(folder, pipeline, opened, arguments, screen.update)
    screen.summarise(outcome)
    from gatehouse.components.tracking.stages import track_apart

    track_apart(opened, outcome.run, outcome.log)
    refused = outcome.result("register").get("decision") == "refused"
    sys.exit(3 if strict and refused and outcome.exit_code == 0 else outcome.exit_code)


def _import_for_the_end() -> None:
    """Import what shows the end of a run, while the run works in another process and this one waits."""
    declared_stages()
    importlib.import_module("gatehouse.components.tracking.stages")


def project_folder(given: Path | None) -> Path:
    """The folder of the project that is meant: the one given, else the one that we are in, else the example."""
    return given or (Path.cwd() if (Path.cwd() / "project.yaml").is_file() else EXAMPLE)


def _parameter(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found:
        raise ConfigurationError(f"--param: expected NAME=VALUE, found {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
