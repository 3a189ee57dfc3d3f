"""`gatehouse check`: finds all problems of a project at once, in seconds and without its data."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.place import project_folder
from gatehouse.runtime.counting import counted


def check(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
) -> None:
    """Check every file and query of a project, and every name that they use, before anything runs.

    The rows are for `gatehouse run --until validate`. `gatehouse schedule apply` applies `schedules`.
    """
    from gatehouse.project.checking import check_project

    checked = check_project(project_folder(project))
    if any(settings.on_failure == "warn" for settings in checked.file.stages.values()):
        from gatehouse.pipelines.catalog import build, names

        for name in names():  # Some checks need the built pipelines.
            build(name, checked)
    for warning in checked.warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW)
    told = "files, queries and the names that they use fit each other"
    warned = f"; {counted(len(checked.warnings), 'warning')}" if checked.warnings else ""
    typer.echo(f"✓ {checked.name}: {told}{warned}.")
