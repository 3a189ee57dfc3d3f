"""`gatehouse submit`: a pipeline of a project as a run of Kubeflow Pipelines; the same again is the same run."""

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.kfp import DryRunOption, Place, PlatformOption, exit_code, show
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.submission import Submission, planned
from gatehouse.kfp_api.specs import parsed_parameters


def submit(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    pipeline: Annotated[str, typer.Option(help="Which of the project's pipelines.")] = "training",
    platform: PlatformOption = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the pipeline, as NAME=VALUE.")] = None,
    name: Annotated[str, typer.Option(help="Name of the run; default: by what it runs.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Another run of the same, as on new data.")] = False,
    cache: Annotated[bool, typer.Option(help="Whether KFP may take results of its earlier runs.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the run has ended, with its exit code.")] = False,
    timeout: Annotated[float, typer.Option(help="With --wait: at most so many hours.")] = 24 * 7,
    dry_run: DryRunOption = False,
) -> None:
    """Compile a pipeline, upload it where its content is new, and run it; what is there already is taken."""
    given = _pairs(param or ())
    place = Place.of(project, platform)
    upload = place.compiled([pipeline], cache)[pipeline]
    wanted = Submission(
        upload,
        parsed_parameters(upload.spec, given),
        place.experiment,
        place.platform.service_account,
        place.platform.plugins_input,
        name,
    )
    place.require_runs(wanted.parameters)
    # KFP does not make run names unique: with this lock, the second of two commands finds the first one's run.
    with nullcontext() if dry_run else place.alone(f"run {wanted.key}") as turn:
        if again:
            wanted = wanted.again(place.api)
        changes = list(planned(place.api, wanted))
        show(changes)
        if turn is None:
            return
        place.publish()
        run = wanted.send(place.api, turn.require)
    if changes[-1].sign == "=" and not wait:
        typer.echo(f"{run.name} was submitted before; --again runs the same once more.")
    typer.echo(place.page_of(run))
    if wait:
        ended = place.api.wait(run.id, timeout * 3600)
        sys.exit(exit_code(ended, place.platform.store))


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found:
            raise ConfigurationError(f"--param: expected NAME=VALUE, found {text!r}.")
        if name in given:
            raise ConfigurationError(f"--param: expected {name} once, found {name}={given[name]} and {text}.")
        given[name] = value
    return given
