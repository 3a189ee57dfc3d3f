"""Platform profiles: a YAML file that says where a project's pipelines run, and what their pods get there.

By convention it is `platforms/<name>.yaml` beside `project.yaml`. It never changes the result of a stage.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from gatehouse.configuration.strict import Strict
from gatehouse.configuration.yaml_lines import load_model, read_text
from gatehouse.data.snapshot.spec import window_of
from gatehouse.deployment.spec import DeploySpec
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.pod_settings import Name, Pods
from gatehouse.monitoring.rows import LATEST
from gatehouse.pieces.engine import Engine
from gatehouse.project.project import Project
from gatehouse.project.project_file import TaskResources, of_components
from gatehouse.runtime.images import LOCKS, TRAINING, by_digest, image
from gatehouse.runtime.plural import counted
from gatehouse.runtime.redaction import public_address, require_encoded
from gatehouse.runtime.variables import CREDENTIALS, SETTINGS

_LOCAL = ("file", "sqlite", "duckdb", "memory")
_PLACES = ("path", "url", "catalog_url", "warehouse", "uri", "metadata")
"""Keys of sources and of their tables with the location of data."""
_BUCKETS = ("gs", "s3")


class StagePods(Pods, TaskResources):
    """Settings for the pods of one stage; the others come from `pods`, the project and the stage."""


def _bare(address: str) -> str:
    """An address without user and password, which a profile may not hold."""
    try:
        return require_encoded(address, "the address", bare=True)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


class Mlflow(Strict):
    """Settings of KFP's own MLflow integration, which an administrator sets up; runs of schedules have none."""

    experiment: str = Field("", description="Name of the MLflow experiment; empty for KFP's default.")
    disabled: bool = Field(False, description="Whether to switch off KFP's own MLflow integration.")


class ModelRegistry(Strict):
    """The Kubeflow Model Registry in which models that pass the gate are shown as well."""

    server: Annotated[str, AfterValidator(_bare)] = Field(pattern="^https?://", description="Its address.")
    port: int = Field(443, ge=1, le=65535)
    author: str = Field("gatehouse", min_length=1, description="Author of the registrations.")

    @property
    def address(self) -> str:
        """Where its API is: the server, with the port where the server names none."""
        return self.server if urlsplit(self.server).port else f"{self.server.rstrip('/')}:{self.port}"


class Platform(Strict):
    """Where pipelines run, and what their pods get there."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$", description="Name of the platform.")
    description: str = Field("", max_length=400, description="Description for people.")
    store: str = Field(min_length=1, description="The store, as an address or a mounted folder that every pod reaches.")
    endpoint: str = Field("", description="KFP's API, for commands that call it.")
    namespace: Name | Literal[""] = Field("", description="Namespace of the runs; empty for a single-user KFP.")
    experiment: str = Field("", max_length=128, description="KFP's experiment; empty for the project's name.")
    service_account: Name | Literal[""] = Field("", description="Service account of the pods; empty for KFP's own.")
    images: dict[str, str] = Field(
        {}, description="Image that pods pull, as repository@sha256:…, by the name of an image here."
    )
    settings: Name = Field(SETTINGS, description="Config map with addresses; it may be missing.")
    credentials: Name = Field(CREDENTIALS, description="Secret with credentials; it may be missing.")
    pods: Pods = Field(Pods(), description="Settings of all pods.")
    stages: dict[str, StagePods] = Field({}, description="Settings of the pods of single stages, by the stage's name.")
    engine: Engine | None = Field(
        None, description="Where the pieces of a divided stage run, in place of the project's `engine`; null for that."
    )
    deploy: DeploySpec = Field(
        DeploySpec(), description="How `gatehouse deploy` runs predictors; what it does not say is that of `pods`."
    )
    queue: Name | Literal[""] = Field("", description="Local queue of Kueue for every pod; empty for none.")
    ttl_hours: float = Field(
        0, ge=0, le=24 * 365, description="Time after which the pods of an ended run are removed; 0 for never."
    )
    mlflow: Mlflow = Field(Mlflow(), description="Settings of KFP's own MLflow integration.")
    model_registry: ModelRegistry | None = Field(None, description="The Kubeflow Model Registry; null for none.")

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, address: str) -> str:
        if address and not address.startswith(("http://", "https://")):
            raise ValueError(f"expected http://… or https://…, found {'another' if '@' in address else repr(address)}")
        return _bare(address) if address else ""

    @field_validator("store")
    @classmethod
    def _with_bucket(cls, address: str) -> str:
        scheme, separator, rest = address.partition("://")
        if separator and scheme not in _LOCAL and (scheme not in _BUCKETS or not rest.split("/")[0]):
            shown_address = public_address(address) or scheme
            raise ValueError(f"expected an address with a bucket, as gs://bucket/gatehouse, found {shown_address}")
        return address

    @field_validator("images")
    @classmethod
    def _image_names(cls, images: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(images.keys() - LOCKS.keys()):
            raise ValueError(f"expected images of {', '.join(LOCKS)}, found {', '.join(unknown)}")
        return images

    @field_validator("stages")
    @classmethod
    def _of_tasks(cls, stages: dict[str, StagePods]) -> dict[str, StagePods]:
        return of_components(stages)

    @model_validator(mode="after")
    def _check_places(self) -> "Platform":
        if not self.reaches(self.store):
            mounted = ", ".join(volume.path for volume in self.pods.volumes) or "none"
            raise ValueError(
                "store: expected an address that every pod reaches, as gs://bucket/gatehouse or s3://bucket/gatehouse, "
                f"or a folder in a volume under pods.volumes ({mounted}), found {self.store}"
            )
        return self

    @property
    def plugins_input(self) -> dict[str, Any]:
        """Input of runs for KFP's plug-ins; empty if the profile has none. Recurring runs get none."""
        settings = {"experiment_name": self.mlflow.experiment, "disabled": self.mlflow.disabled}
        settings = {name: value for name, value in settings.items() if value}
        return {"mlflow": settings} if settings else {}

    def of(self, stage: str) -> StagePods:
        """Settings of a stage's pods, besides the resources in the project and the stage."""
        own = self.stages.get(stage, StagePods())
        merged = own.over(self.pods)
        labels = {"kueue.x-k8s.io/queue-name": self.queue, "kueue.x-k8s.io/priority-class": merged["priority_class"]}
        merged["labels"] = {name: value for name, value in labels.items() if value} | merged["labels"]
        return own.model_copy(update=merged)

    def deployment(self) -> DeploySpec:
        """How predictors are deployed here, with the store, the image, the account and the pods of the platform."""
        own = self.deploy
        unset = {
            "namespace": self.namespace,
            "store": self.store,
            "image": self.image(TRAINING),
            "service_account": self.service_account,
            "settings": self.settings,
            "credentials": self.credentials,
        }
        unset = {name: value for name, value in unset.items() if name not in own.model_fields_set}
        return own.model_copy(update=own.over(self.pods) | unset | {"priority_class": ""})

    def image(self, name: str) -> str:
        """The image of this name, as pods pull it. Raises ConfigurationError if `images` names only others."""
        reference = self.images.get(name) or image(name)
        if self.images and name not in self.images and not by_digest(reference):
            raise ConfigurationError(
                f"images of the platform {self.name}: expected one for {name}, found {', '.join(self.images)}."
            )
        return reference

    def reaches(self, place: str) -> bool:
        """Whether every pod can reach an address or a folder: on a network, or in a volume that all mount."""
        scheme, separator, rest = place.partition("://")
        if separator and scheme not in _LOCAL:
            return True
        # SQLAlchemy reads a relative path after three slashes, and an absolute one after four.
        path = Path(rest.removeprefix("/") if scheme in ("sqlite", "duckdb") else rest if separator else place)
        volumes = [Path(volume.path) for volume in self.pods.volumes]
        return ".." not in path.parts and any(path.is_relative_to(volume) for volume in volumes)

    def run_problems(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        """Problems of a run with these parameters on this platform, one sentence each, parameter first."""
        filled = {name: str(value) for name, value in parameters.items() if value}
        if (store := filled.get("store", self.store)) != self.store:
            yield (
                f"store: expected {self.store}, where {self.name} has its configuration, found {store}; another store "
                "has a profile of its own"
            )
        for name in ("source", "predictions", "keys"):
            place = filled.get(name, "")
            in_store = name != "source" and ("/sha256-" in place or (name, place) == ("predictions", LATEST))
            if place and not in_store and not self.reaches(place):
                yield f"{name}: {self._expected()}, found {place}"
        try:
            window_of(filled.get("window", ""))
        except ConfigurationError as error:
            yield str(error)

    def _expected(self) -> str:
        return f"expected an address that every pod of {self.name} reaches, or a folder in a volume under pods.volumes"

    def problems(self, project: Project) -> Iterator[str]:
        """Problems of the pipelines of `project` on this platform, one sentence each."""
        source = project.file.source
        places = {key: getattr(source, key, "") for key in _PLACES}
        for name, table in source.tables.items():
            places |= {f"tables.{name}.{key}": getattr(table, key, "") for key in _PLACES}
        for key, place in places.items():
            if place and not self.reaches(place):
                yield f"source.{key} of {project.name}: {self._expected()}, found {place}"


def load_platform(path: Path) -> Platform:
    """Read and validate a platform profile.

    Raises ConfigurationError, listing every problem of the file, each with line and key.
    """
    if not path.is_file():
        raise ConfigurationError(f"There is no platform profile {path}: expected a YAML file, as platforms/NAME.yaml.")
    problems: list[str] = []
    text = read_text(path, path.name, problems)
    platform = None if text is None else load_model(path.name, text, Platform, problems)
    if platform is None:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(f"{counted(len(problems), 'problem')} in the profile {path}:{listed}")
    return platform


def profile_in(folder: Path, profile: Path | None) -> Platform:
    """The platform profile at a path, else the only one of the project in a folder."""
    profiles = [profile] if profile else sorted((folder / "platforms").glob("*.yaml"))
    if len(profiles) != 1:
        names = ", ".join(path.name for path in profiles) or "none"
        raise ConfigurationError(
            f"--platform: expected a platform profile, as platforms/NAME.yaml, which says where pipelines run and what "
            f"their pods get; {folder / 'platforms'} holds {names}."
        )
    return load_platform(profiles[0])


THIS_MACHINE = Platform.model_construct(name="this-machine", store="")
"""The platform of specs that were compiled without a profile: only `kfp.local`."""
