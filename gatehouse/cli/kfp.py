"""Common code of the commands for Kubeflow Pipelines: the server, compiled pipelines, and how a run ended."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.cli.place import project_folder
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.specification import read_spec, tags_of
from gatehouse.kfp.submission import Change, Upload, summary
from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.variables import UI
from gatehouse.operations.ending.outcome import outcome_in_kfp, unsuccessful
from gatehouse.project.platforms import Platform, load_platform
from gatehouse.project.project import Project
from gatehouse.store.forcing import require_known
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore
from gatehouse.store.turns import Turn
from gatehouse.tracking.environment import revision

PlatformOption = Annotated[Path | None, typer.Option(help="Platform profile; default: the only one in platforms/.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")]


@dataclass(frozen=True)
class Place:
    """The server and platform for a project's runs.

    Attributes:
        project: The project.
        platform: The platform profile.
        api: The server.
    """

    project: Project
    platform: Platform
    api: KfpApi

    @classmethod
    def of(cls, folder: Path | None, profile: Path | None) -> "Place":
        """The project in a folder with a platform profile; by default the only profile of the project.

        Raises:
            ConfigurationError: if project or profile is wrong, or the server is unknown or of another major release.
        """
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
        """Refuse parameters with which a run would fail on the platform, as `compile` refuses such a project.

        Args:
            parameters: Parameters of the run.
            key: Prefix of a parameter's name in messages.

        Raises:
            ConfigurationError: listing them.
        """
        from gatehouse.pipelines.tasks import forcible_stages

        require_known(str(parameters.get("rerun", "")), forcible_stages())
        if problems := [f"\n  - {key}{problem}" for problem in self.platform.run_problems(parameters)]:
            raise ConfigurationError(f"This cannot run on the platform {self.platform.name}:{''.join(problems)}")

    def page_of(self, run: Run) -> str:
        """Address of a run's page in KFP's UI."""
        return f"{(os.environ.get(UI) or self.api.endpoint).rstrip('/')}/#/runs/details/{run.id}"

    def alone(self, what: str) -> Turn:
        """A `with` statement in which no other command on the same store and namespace does `what`.

        The server's address is not part of the lock, because a server can have several addresses.
        """
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
    """The platform profile at a path, else the only one of a project.

    Raises:
        ConfigurationError: if it is wrong, or the project has none or several.
    """
    return load_platform(profile or _only_profile(project.folder))


def _only_profile(folder: Path) -> Path:
    """The only platform profile of a project.

    Raises:
        ConfigurationError: if it has none, or several.
    """
    found = sorted((folder / "platforms").glob("*.yaml"))
    if len(found) != 1:
        shown = ", ".join(path.name for path in found) or "none"
        raise ConfigurationError(
            f"--platform: expected a platform profile, as platforms/NAME.yaml, which says where pipelines run and what "
            f"their pods get; {folder / 'platforms'} holds {shown}."
        )
    return found[0]


def show(changes: list[Change]) -> None:
    """Print a plan."""
    for change in changes:
        typer.echo(str(change))
    typer.echo(summary(changes))


def exit_code(run: Run, store: str) -> int:
    """The exit code of a command for a run that ended; how it ended is printed.

    Args:
        run: A run that has ended.
        store: The store with its record.
    """
    opened = ArtifactStore.open(store)
    outcome = outcome_in_kfp(opened, run.id, run.state)
    if outcome.state == "succeeded":
        typer.echo(f"{run.name} succeeded.")
        return 0
    where = f" in {outcome.stage}" if outcome.stage else ""
    typer.echo(f"{run.name} {outcome.state}{where}: {outcome.message} {run.error}".strip(), err=True)
    broken = unsuccessful(event for _, event in events(opened, run.id))
    return int(broken[0].body.get("exit_code", 1)) if broken else 1
