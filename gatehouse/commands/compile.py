"""`gatehouse compile`: the pipelines of a project as YAML to upload, checked, compared, and their configuration."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.commands.place import project_folder, store_address
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError


def compile_specs(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    platform: Annotated[Path | None, typer.Option(help="Profile of the platform; without: this machine only.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the YAML files.")] = Path("compiled"),
    publish: Annotated[bool, typer.Option(help="Also publish the configuration that the specs name.")] = False,
    store: Annotated[str, typer.Option(help="Where to publish; default: the platform's store, or the project's.")] = "",
    check: Annotated[bool, typer.Option(help="Write nothing: fail where files are stale or break the policy.")] = False,
    release: Annotated[bool, typer.Option(help="Refuse what must not be released: images without digest.")] = False,
    diff: Annotated[Path | None, typer.Option(help="Say what changed since this file or folder.")] = None,
    backend_version: Annotated[str, typer.Option(help="Refuse what the KFP backend of this version ignores.")] = "",
) -> None:
    """Compile every pipeline of a project."""
    from gatehouse.checking import check_project
    from gatehouse.compilation.committed import findings, problems, refuse
    from gatehouse.compilation.compiling import compile_project
    from gatehouse.compilation.difference import compare
    from gatehouse.compilation.specification import read_spec
    from gatehouse.platforms import load_platform

    profile = load_platform(platform) if platform else None
    if release and profile is None:
        raise ConfigurationError("--release: expected --platform FILE as well: what is for this machine stays here.")
    loaded = check_project(project_folder(project))
    if check:
        refuse(findings(loaded, output, profile, release=release, backend=backend_version))
        typer.echo(f"{loaded.name}: the specs in {output} are current and keep the policy")
    else:
        written = compile_project(loaded, output, profile)
        refuse(
            f"{path}: {found}"
            for path in written
            for found in problems(read_spec(path), release=release, backend=backend_version)
        )
        for path in written:
            typer.echo(path)
    if diff is not None:
        compared = output / diff.name if diff.is_file() else output
        for line in compare(diff, compared) or ["nothing changed"]:
            typer.echo(line)
    if publish:
        kept = store or (profile.store if profile else "")
        opened = ArtifactStore.open(store_address(kept, loaded.folder))
        for config in loaded.configs():
            typer.echo(opened.address_of(config.publish(opened)))
