"""`gatehouse backfill`: one run of a pipeline for each window of time, on this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gatehouse.cli.place import project_folder, store_address
from gatehouse.cli.run import from_here, parameter, run_on_screen
from gatehouse.project.windows import windows_of
from gatehouse.store.store import ArtifactStore


def backfill(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    windows: Annotated[
        str, typer.Option(help="START/END, START/END/STEP such as 2013-01-01/2013-07-01/P1M, or several with commas.")
    ] = "",
    pipeline: Annotated[str, typer.Option(help="scoring, monitoring or training.")] = "scoring",
    store: Annotated[str, typer.Option(help="Where everything is written; default: the project's store.")] = "",
    source: Annotated[str, typer.Option(help="Read the raw tables here instead of the project's source.")] = "",
    param: Annotated[list[str] | None, typer.Option(help="Any other parameter of the pipeline, as NAME=VALUE.")] = None,
) -> None:
    """Run a pipeline once for each window; one that fails does not stop the others, and a repeat takes the memo."""
    from gatehouse.pipelines.catalog import build
    from gatehouse.project.project import load_project

    wanted, folder = windows_of(windows), project_folder(project).resolve()
    built = build(pipeline, load_project(folder))
    known = built.function.pipeline_spec.root.input_definitions.parameters
    given = from_here(dict(parameter(text) for text in param or ()) | ({"source": source} if source else {}))
    of_each = [window.parameters(known) for window in wanted]
    opened, ended = ArtifactStore.open(store_address(store, folder)), []
    for window, arguments in zip(wanted, of_each, strict=True):
        outcome = run_on_screen(folder, pipeline, opened, given | arguments)
        ended.append((window, outcome))
        if outcome.exit_code and outcome.exit_code > 128:  # A signal to this command ends all windows.
            break
    table = Table("window", "run", "ended")
    for window, outcome in ended:
        why = (outcome.failure or {}).get("error", "")
        table.add_row(str(window), outcome.run, "well" if outcome.exit_code == 0 else f"{outcome.exit_code} {why}")
    Console(markup=False).print(table)
    sys.exit(max((outcome.exit_code or 0 for _, outcome in ended), default=0))
