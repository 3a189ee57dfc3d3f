"""`gatehouse check` and `compile`: a project without its data, and its specs."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.errors import ConfigurationError
from gatehouse.project.place import project_folder, store_address
from gatehouse.project.platforms import load_platform
from gatehouse.runtime.plural import counted
from gatehouse.store.store import ArtifactStore


def check(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
) -> None:
    """Check every file and query of a project, and every name that they use, before anything runs.

    The data is not read: `gatehouse run --until validate` judges it.
    """
    from gatehouse.project.checking import check_project

    checked = check_project(project_folder(project))
    if any(settings.on_failure == "warn" for settings in checked.file.stages.values()):
        from gatehouse.pipelines.catalog import build, names

        for name in names():  # Some checks need the built pipelines.
            build(name, checked)
    for warning in checked.warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW)
    warned = f"; {counted(len(checked.warnings), 'warning')}" if checked.warnings else ""
    typer.echo(f"✓ {checked.name}: files, queries and the names that they use fit each other{warned}.")


def compile_specs(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    platform: Annotated[Path | None, typer.Option(help="Profile of the platform; without: this machine only.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the YAML files.")] = Path("compiled"),
    publish: Annotated[bool, typer.Option(help="Also publish the configuration that the specs name.")] = False,
    store: Annotated[str, typer.Option(help="Where to publish; default: the platform's store, or the project's.")] = "",
    check: Annotated[bool, typer.Option(help="Write nothing: fail where files are stale or break the policy.")] = False,
    release: Annotated[bool, typer.Option(help="Refuse what must not be released: images without digest.")] = False,
) -> None:
    """Compile every pipeline of a project."""
    from gatehouse.kfp.compilation.compiling import broken, compile_project, refuse, stale
    from gatehouse.project.checking import check_project

    profile = load_platform(platform) if platform else None
    if release and profile is None:
        raise ConfigurationError(
            "--release: expected --platform FILE too: specs without a platform are for this machine only."
        )
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"--output: expected a folder, found the file {output}.")
    loaded = check_project(project_folder(project))
    with tempfile.TemporaryDirectory() as folder:
        written = compile_project(loaded, Path(folder), profile)
        findings = broken(written, output, release=release)
        refuse([*(stale(loaded, written, output) if check else ()), *findings])
        if check:
            typer.echo(f"{loaded.name}: the specs in {output} are current and keep the policy")
        else:
            output.mkdir(parents=True, exist_ok=True)
            for path in written:
                typer.echo(shutil.move(path, output / path.name))
    if publish:
        address = store or (profile.store if profile else "")
        opened = ArtifactStore.open(store_address(address, loaded.folder))
        for config in loaded.configs():
            typer.echo(opened.address_of(config.publish(opened)))
