"""`gatehouse check`: finds all problems of a project at once, in seconds and without its data."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.place import project_folder
from gatehouse.runtime.counting import counted


def check(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Also hold the contract and the queries against the first rows of tables.")
    ] = False,
) -> None:
    """Check every file and query of a project, and every name that they use, before anything runs.

    With --data the first part of every table is read: rows that would be rejected are counted, the contract is held
    against the rest, and the queries run on it. What only all rows can tell, such as their number, is for `gatehouse
    run --until validate`. `gatehouse schedule apply` applies `schedules`.
    """
    from gatehouse.project.checking import check_project

    checked = check_project(project_folder(project), data=data)
    if any(settings.on_failure == "warn" for settings in checked.file.stages.values()):
        from gatehouse.pipelines.catalog import build, names

        for name in names():  # Some checks need the built pipelines.
            build(name, checked)
    for warning in checked.warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW)
    told = "files, queries and the names that they use fit each other"
    told += ", and the first rows of the data" * data
    warned = f"; {counted(len(checked.warnings), 'warning')}" if checked.warnings else ""
    typer.echo(f"✓ {checked.name}: {told}{warned}.")
