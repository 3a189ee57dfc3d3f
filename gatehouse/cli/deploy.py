"""`gatehouse deploy`: a model as a service of a cluster."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from gatehouse.api import deployments
from gatehouse.cli.output import JsonOption, ProjectOption, show, written
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import project_folder
from gatehouse.project.platforms import profile_in


def deploy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME for its champion, canary and shadow; or NAME:2.")],
    project: ProjectOption = None,
    platform: Annotated[
        Path | None, typer.Option(help="Platform profile; default: the only one in platforms/.")
    ] = None,
    kind: Annotated[
        Literal["", "deployment", "kserve"], typer.Option(help="deployment or kserve; default: that of the profile.")
    ] = "",
    file: Annotated[Path | None, typer.Option(help="Write the manifests to this file, and apply nothing.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask the cluster whether it takes the objects.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Apply the deployment before the present one.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave a deployment that does not answer as it is.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Take fields that others have set.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Minutes until it must answer; default: those of the profile.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run the predictor of a model in a cluster, and return when it answers with the version that was asked for."""
    actions = {"write": file is not None, "try": dry_run, "rollback": rollback}
    if sum(actions.values()) > 1:
        raise ConfigurationError("expected one of --file, --dry-run, --rollback, found several.")
    action = next((name for name, asked in actions.items() if asked), "deploy")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("gatehouse").setLevel(logging.INFO)  # Not what clients of the store say.
    place = profile_in(Path() if platform else project_folder(project), platform)
    result = deployments.deploy(place, model, kind, timeout, action=action, keep=keep, take=force)
    if file:
        typer.echo(written(file, deployments.manifests(place, result.deployment).decode()))
    else:
        show(result, as_json)
