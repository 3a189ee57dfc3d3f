"""`gatehouse compile`: the pipelines of a project as YAML to upload, checked, and their configuration."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.place import project_folder, store_address
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore


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
    from gatehouse.project.platforms import load_platform

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
        kept = store or (profile.store if profile else "")
        opened = ArtifactStore.open(store_address(kept, loaded.folder))
        for config in loaded.configs():
            typer.echo(opened.address_of(config.publish(opened)))
