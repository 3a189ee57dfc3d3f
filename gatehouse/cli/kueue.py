"""`gatehouse kueue`: several teams on one cluster, as Kueue's objects."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.errors import ConfigurationError
from gatehouse.project.platforms import load_platform

app = typer.Typer(no_args_is_help=True, help="Several teams on one cluster: Kueue's objects.")


@app.callback()
def _kueue() -> None:
    """Several teams on one cluster: Kueue's objects."""


@app.command("manifests")
def print_manifests(
    profile: Annotated[Path, typer.Argument(help="A platform profile with a section `kueue`.")],
) -> None:
    """Print Kueue's objects for the teams of a profile, to be applied with kubectl."""
    import yaml

    from gatehouse.launchers.kueue import manifests

    platform = load_platform(profile)
    if platform.kueue is None:
        raise ConfigurationError(f"The profile {profile} has no section kueue with the teams of the cluster.")
    objects = manifests(platform.kueue, platform.queue)
    typer.echo(yaml.safe_dump_all(objects, sort_keys=False, explicit_start=True), nl=False)
