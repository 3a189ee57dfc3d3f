"""`gatehouse compile`: the pipelines of a project as YAML to upload, and their configuration published."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.commands.place import project_folder, store_address
from gatehouse.components.artifacts.store import ArtifactStore


def compile_specs(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the YAML files.")] = Path("compiled"),
    publish: Annotated[bool, typer.Option(help="Also publish the configuration that the specs name.")] = False,
    store: Annotated[str, typer.Option(help="Where to publish; default: the project's store.")] = "",
) -> None:
    """Compile every pipeline of a project."""
    from gatehouse.checking import check_project
    from gatehouse.compilation import compile_project

    loaded = check_project(project_folder(project))
    for path in compile_project(loaded, output):
        typer.echo(path)
    if publish:
        opened = ArtifactStore.open(store_address(store, loaded.folder))
        for config in loaded.configs():
            typer.echo(opened.address_of(config.publish(opened)))
