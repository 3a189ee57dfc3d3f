"""`gatehouse submit`, and what all commands for Kubeflow Pipelines share: the server and compiled pipelines."""

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.specification import read_spec, tags_of
from gatehouse.kfp.submission import Change, Submission, Upload, planned, summary
from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.specs import parsed_parameters
from gatehouse.operations.ending_stage import outcome_in_kfp, unsuccessful
from gatehouse.project.place import project_folder
from gatehouse.project.platforms import Platform, load_platform
from gatehouse.project.project import Project
from gatehouse.runtime.variables import UI
from gatehouse.store.parameters import require_known
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore
from gatehouse.store.turns import Turn
from gatehouse.tracking.provenance import revision

PlatformOption = Annotated[Path | None, typer.Option(help="Platform profile; default: the only one in platforms/.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")]


@dataclass(frozen=True)
class Place:
    """The server and platform for a project's runs."""

    project: Project
    platform: Platform
    api: KfpApi

    @classmethod
    def of(cls, folder: Path | None, profile: Path | None) -> "Place":
        """The project in a folder with a platform profile; by default the only profile of the project."""
        from gatehouse.project.checking import check_project

        project = check_project(project_folder(folder))
        platform = profile_of(project, profile)
        api = KfpApi.connect(platform.endpoint, platform.namespace)
        server = api.server().version
        if server and server.split(".")[0] != version("kfp").split(".")[0]:
            raise ConfigurationError(
                f"{api.endpoint} is Kubeflow Pipelines {server}: expected the major release of kfp {version('kfp')}."
            )
        return cls(project, platform, api)

    @property
    def experiment(self) -> str:
        """Name of the experiment that the runs belong to."""
        return self.platform.experiment or self.project.name

    def require_runs(self, parameters: Mapping[str, Any], key: str = "--param ") -> None:
        """Refuse parameters with which a run would fail on the platform; `key` is put before their names in errors."""
        from gatehouse.store.stage import forcible_stages

        require_known(str(parameters.get("rerun", "")), forcible_stages())
        if problems := [f"\n  - {key}{problem}" for problem in self.platform.run_problems(parameters)]:
            raise ConfigurationError(f"This cannot run on the platform {self.platform.name}:{''.join(problems)}")

    def page_of(self, run: Run) -> str:
        """Address of a run's page in KFP's UI."""
        return f"{(os.environ.get(UI) or self.api.endpoint).rstrip('/')}/#/runs/details/{run.id}"

    def alone(self, what: str) -> Turn:
        """A lock on `what` for the store and namespace; a server can have several addresses, so these do not count."""
        return Turn(ArtifactStore.open(self.platform.store).objects, f"{what} {self.api.namespace}".strip())

    def publish(self) -> None:
        """Publish the artifacts that the specs name by reference: contract, feature definitions, tests."""
        store = ArtifactStore.open(self.platform.store)
        for config in self.project.configs():
            config.publish(store)

    def compiled(self, pipelines: Iterable[str], cache: bool = True) -> dict[str, Upload]:
        """Pipelines of the project by name, compiled for the platform."""
        uploads, made_of = {}, revision(self.project.folder)
        with tempfile.TemporaryDirectory() as folder:
            for name in sorted(set(pipelines)):
                spec = read_spec(compile_pipeline(name, self.project, Path(folder), self.platform))
                uploads[name] = Upload(self.project.name, name, spec.text, tags_of(spec), made_of)
        return uploads if cache else {name: upload.without_cache() for name, upload in uploads.items()}


def profile_of(project: Project, profile: Path | None) -> Platform:
    """The platform profile at a path, else the only one of a project."""
    profiles = [profile] if profile else sorted((project.folder / "platforms").glob("*.yaml"))
    if len(profiles) != 1:
        names = ", ".join(path.name for path in profiles) or "none"
        raise ConfigurationError(
            f"--platform: expected a platform profile, as platforms/NAME.yaml, which says where pipelines run and what "
            f"their pods get; {project.folder / 'platforms'} holds {names}."
        )
    return load_platform(profiles[0])


def show(changes: list[Change]) -> None:
    """Print a plan."""
    for change in changes:
        typer.echo(str(change))
    typer.echo(summary(changes))


def exit_code(run: Run, store: str) -> int:
    """The exit code of a command for a run that ended, whose record is in the store; how it ended is printed."""
    opened = ArtifactStore.open(store)
    outcome = outcome_in_kfp(opened, run.id, run.state)
    if outcome.state == "succeeded":
        typer.echo(f"{run.name} succeeded.")
        return 0
    where = f" in {outcome.stage}" if outcome.stage else ""
    typer.echo(f"{run.name} {outcome.state}{where}: {outcome.message} {run.error}".strip(), err=True)
    failed = unsuccessful(event for _, event in events(opened, run.id))
    return int(failed[0].body.get("exit_code", 1)) if failed else 1


def submit(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    pipeline: Annotated[str, typer.Option(help="Which of the project's pipelines.")] = "training",
    platform: PlatformOption = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the pipeline, as NAME=VALUE.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Another run of the same, as on new data.")] = False,
    cache: Annotated[bool, typer.Option(help="Whether KFP may take results of its earlier runs.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the run has ended, with its exit code.")] = False,
    timeout: Annotated[float, typer.Option(help="With --wait: at most so many hours.")] = 24 * 7,
    dry_run: DryRunOption = False,
) -> None:
    """Compile a pipeline, upload it where its content is new, and run it; what is there already is taken."""
    texts: dict[str, str] = {}
    for text in param or ():
        key, equals, value = text.partition("=")
        if not equals or key in texts:
            raise ConfigurationError(f"--param: expected NAME=VALUE, each name once, found {text!r}.")
        texts[key] = value
    place = Place.of(project, platform)
    upload = place.compiled([pipeline], cache)[pipeline]
    submission = Submission(
        upload,
        parsed_parameters(upload.spec, texts),
        place.experiment,
        place.platform.service_account,
        place.platform.plugins_input,
    )
    place.require_runs(submission.parameters)
    # KFP does not make run names unique: with this lock, the second of two commands finds the first one's run.
    with nullcontext() if dry_run else place.alone(f"run {submission.key}") as turn:
        if again:
            submission = submission.again(place.api)
        changes = list(planned(place.api, submission))
        show(changes)
        if turn is None:
            return
        place.publish()
        run = submission.send(place.api, turn.require)
    if changes[-1].sign == "=" and not wait:
        typer.echo(f"{run.name} was submitted before; --again runs the same once more.")
    typer.echo(place.page_of(run))
    if wait:
        sys.exit(exit_code(place.api.wait(run.id, timeout * 3600), place.platform.store))
