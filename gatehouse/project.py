"""A project: one folder of configuration that a user writes, and the specs that the stages read from it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from gatehouse.components.alerting.notice import Form, When
from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.artifacts.publishing import manifest_of
from gatehouse.components.artifacts.reference import Reference, references_in
from gatehouse.components.artifacts.stage import declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.calibration.spec import CalibrationSpec
from gatehouse.components.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.components.features.definitions.loading import FILE
from gatehouse.components.features.definitions.published import published_files
from gatehouse.components.features.definitions.repository import Repository, read_repository
from gatehouse.components.features.spec import FeaturesSpec
from gatehouse.components.integration.project_tests import is_test_file
from gatehouse.components.integration.spec import IntegrationSpec
from gatehouse.components.launchers.spec import Launch, LocalLaunch, division_problem
from gatehouse.components.monitoring.spec import MonitoringSpec
from gatehouse.components.probing.spec import ProbeSpec
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.components.splitting.spec import SplitSpec
from gatehouse.components.tasks.judging import judging_of
from gatehouse.components.tracking.cost import Prices
from gatehouse.components.training.spec import TrainSpec, task_of
from gatehouse.components.training.transformation.spec import TransformationSpec
from gatehouse.components.tuning.configuration import configured, infeasible, none_held_out
from gatehouse.components.tuning.spec import ExperimentSpec
from gatehouse.components.validation.contract import CONTRACT_FILE, Contract, contract_text
from gatehouse.components.validation.spec import StatisticsSpec
from gatehouse.errors import ConfigurationError
from gatehouse.schedule import Schedule
from gatehouse.yaml_lines import at_line, lines_of, load_model

PROJECT_FILE = "project.yaml"
TESTS = "integration"
_Model = TypeVar("_Model", bound=BaseModel)
_Value = TypeVar("_Value")


class TaskResources(BaseModel):
    """What the pod of one task gets; what is empty stays as its stage declares it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu: str = Field("", description="CPUs, as Kubernetes writes them.")
    memory: str = Field("", description="Memory, such as 32G or 512Mi.")
    accelerator: int = Field(0, ge=0, le=64, description="Number of accelerators.")
    accelerator_type: str = Field("nvidia.com/gpu", description="Resource name of the accelerators.")

    @field_validator("cpu", mode="before")
    @classmethod
    def _number(cls, given: Any) -> Any:
        """YAML reads `cpu: 8` as a number."""
        return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given

    @field_validator("cpu")
    @classmethod
    def _some_cpu(cls, given: str) -> str:
        if given and not (re.fullmatch(r"[0-9]+m|[0-9]+(\.[0-9]+)?", given) and float(given.rstrip("m"))):
            raise ValueError(f"expected CPUs, more than none, as 4, 0.5 or 500m, found {given!r}")
        return given

    @field_validator("memory")
    @classmethod
    def _some_memory(cls, given: str) -> str:
        if given and not (re.fullmatch(r"[0-9]+(\.[0-9]+)?[EPTGMK]i?", given) and float(given.rstrip("EPTGMKi"))):
            raise ValueError(f"expected an amount of memory, more than none, as 32G or 512Mi, found {given!r}")
        return given


def of_stages(given: dict[str, _Value]) -> dict[str, _Value]:
    """What is given by stage, where every key is the name of one that is a task.

    Raises:
        ValueError: naming the keys that are none.
    """
    stages = {name for name, stage in declared_stages().items() if not stage.declared.inner}
    if unknown := sorted(given.keys() - stages):
        raise ValueError(f"expected names of stages ({', '.join(sorted(stages))}), found {', '.join(unknown)}")
    return given


class StageSettings(BaseModel):
    """Who answers for a stage, and what happens where it fails."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner: str = Field("", max_length=200, description="Who is named where it fails; empty for the project's owner.")
    on_failure: Literal["stop", "warn"] = Field(
        "stop",
        description="`stop` ends the run; `warn` lets it go on with a warning, where nothing that decides needs it.",
    )
    retries: int | None = Field(
        None, ge=1, le=10, description="How often KFP tries it again, where that is safe; null for twice."
    )


class ProjectFile(BaseModel):
    """The content of `project.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,39}$", description="Lower-case name; it opens references and spec names."
    )
    description: str = Field("", max_length=400)
    store: str = Field(
        ".gatehouse/store",
        description="Where everything is kept: an address, or a folder relative to this file. `--store` comes first.",
    )
    source: Annotated[SourceSpec, Field(description="Where the raw tables come from.")]
    contract: str = Field("contract.yaml", description="The data contract, relative to this file.")
    baseline: str = Field(
        "", description="Reference of an earlier validation to measure drift against; empty for none."
    )
    snapshots: dict[str, str] = Field(
        {}, description="References of snapshots that foreign keys of the contract lead to, by their name in it."
    )
    features: FeaturesSpec
    split: SplitSpec
    model: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$", description="Name under which models are registered.")
    transformation: TransformationSpec = Field(
        TransformationSpec(), description="How features are transformed, fitted on the train part."
    )
    training: TrainSpec
    launch: Annotated[
        Launch, Field(description="Where training runs; changes no bit of a model, unless elastic nodes come and go.")
    ] = LocalLaunch()
    tuning: ExperimentSpec | None = Field(
        None, description="What is searched, and with which settings a trial; null trains `training` as it is."
    )
    calibration: CalibrationSpec | None = Field(
        None, description="What is fitted on the validation part after training; null for nothing."
    )
    evaluation: EvaluationSpec
    probes: ProbeSpec | None = Field(
        None, description="How the candidate's robustness is probed on test rows; null for not at all."
    )
    integration: IntegrationSpec | None = Field(
        None, description="How the candidate is tried as serving would have it before it is judged; null for not."
    )
    policy: str = Field("policy.yaml", description="The promotion policy, relative to this file.")
    monitoring: MonitoringSpec
    statistics: StatisticsSpec = Field(StatisticsSpec(), description="Where the statistics of a snapshot are computed.")
    alerts: When = Field(
        "never", description="Which verdicts and ends of runs are told to the webhook GATEHOUSE_ALERT_WEBHOOK."
    )
    alert_form: Form = Field(
        "generic", description="What the webhook takes: plain JSON, Slack's blocks, or an adaptive card for Teams."
    )
    owner: str = Field("", max_length=200, description="Who answers for the project, as notices of failures name them.")
    schedules: dict[str, Schedule] = Field(
        {}, description="When pipelines recur, by the schedule's name; an empty text is none."
    )
    prices: Prices = Field(Prices(), description="What an hour of each type of machine costs; tracked with every run.")

    resources: dict[str, TaskResources] = Field({}, description="Resources of single tasks, by the stage's name.")

    stages: dict[str, StageSettings] = Field(
        {}, description="Owner and failure policy of single tasks, by the stage's name."
    )

    @field_validator("schedules", mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        return {name: each for name, each in given.items() if each != ""} if isinstance(given, dict) else given

    @field_validator("schedules")
    @classmethod
    def _named(cls, given: dict[str, Schedule]) -> dict[str, Schedule]:
        if wrong := [name for name in given if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", name)]:
            raise ValueError(f"expected names of lower-case letters, digits and hyphens, found {', '.join(wrong)}")
        return given

    @field_validator("resources", "stages")
    @classmethod
    def _of_stages(cls, given: dict[str, Any]) -> dict[str, Any]:
        return of_stages(given)

    @property
    def owners(self) -> dict[str, str]:
        """Who answers for a stage, by its name; under "" who answers for every other."""
        named = {"": self.owner} | {name: settings.owner for name, settings in self.stages.items()}
        return {name: owner for name, owner in named.items() if owner}

    @model_validator(mode="after")
    def _launchable(self) -> "ProjectFile":
        trained = [("training", self.training)]
        if self.tuning is not None:
            trained.append(("tuning.trial_settings", self._trial(self.tuning)))
        for section, spec in trained:
            parallel, name = spec.parallelism, f"{section}.parallelism.processes"
            if problem := division_problem(self.launch, parallel.processes, name, parallel.model_size):
                raise ValueError(problem)
        return self

    def _trial(self, tuning: ExperimentSpec) -> TrainSpec:
        """The training of a trial, before a parameter is chosen.

        Raises:
            ValidationError: naming every parameter that the training's model cannot take.
        """
        wrong = [
            _problem(where if where[0] == "training" else ("tuning", *where), found, why)
            for where, found, why in infeasible(tuning, self.training)
        ]
        if wrong:
            raise ValidationError.from_exception_data("project", wrong)
        return configured(self.training, {}, tuning.trial_settings)

    @model_validator(mode="after")
    def _priced(self) -> "ProjectFile":
        if self.tuning is not None and self.tuning.budget.cost is not None and not self.prices.per_hour:
            raise ValueError(
                "tuning.budget.cost: expected the price of a machine under prices.per_hour, found none; add one, as "
                "prices: {per_hour: {default: 1.2}}, or remove the budget"
            )
        return self

    @model_validator(mode="after")
    def _calibratable(self) -> "ProjectFile":
        problems = list(self.calibration.problems(task_of(self.training).name)) if self.calibration else []
        problems += none_held_out(self.training, self.tuning) if self.calibration else []
        if wrong := [_problem(("calibration",), None, why) for why in problems]:
            raise ValidationError.from_exception_data("project", wrong)
        return self


def _problem(where: tuple[str | int, ...], found: Any, why: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("impossible", "{why}", {"why": why}), loc=where, input=found)


@dataclass(frozen=True)
class Config:
    """A part of the configuration that travels as a reference, because it is too large for a parameter."""

    name: str
    files: dict[str, bytes]

    @property
    def reference(self) -> Reference:
        """The identity that publishing it gives; computed without a store."""
        return self.manifest.reference

    @property
    def manifest(self) -> Manifest:
        """The manifest that publishing it writes."""
        return manifest_of("config", self.name, self.files)

    def publish(self, store: ArtifactStore) -> Reference:
        """Publish it; the same files again change nothing."""
        return store.publish("config", self.name, self.files)


@dataclass(frozen=True)
class Project:
    """A validated project.

    Attributes:
        folder: Where it was read from.
        file: The content of `project.yaml`.
        contract: Its data contract, as a configuration reference.
        definitions: Its feature definitions, as a configuration reference.
        policy: Its promotion policy as it is written; what it leaves open, the evaluation takes from the task.
        tests: Its own tests of candidates, as a configuration reference; None where it has none.
        warnings: What is not wrong, and better known.
    """

    folder: Path
    file: ProjectFile
    contract: Config
    definitions: Config
    policy: GatePolicy
    tests: Config | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The project's name."""
        return self.file.name

    @property
    def store(self) -> str:
        """Address of the store for pipelines on a cluster; empty where the project names a folder of this machine."""
        return self.file.store if "://" in self.file.store else ""

    def configs(self) -> tuple[Config, ...]:
        """Everything that must be published before a run."""
        return (self.contract, self.definitions, *filter(None, [self.tests]))


@dataclass
class ProjectParts:
    """What was read of a project so far.

    Attributes:
        folder: Its folder.
        problems: What is wrong, one sentence each.
        file: The content of `project.yaml`; None, as with the others, where it cannot be read.
        contract: Its data contract.
        policy: Its promotion policy.
        repository: Its feature definitions.
        warnings: What is not wrong, and better known, one sentence each.
    """

    folder: Path
    problems: list[str]
    file: ProjectFile | None = None
    contract: Contract | None = None
    policy: GatePolicy | None = None
    repository: Repository | None = None
    warnings: list[str] = field(default_factory=list)


def load_project(folder: Path) -> Project:
    """Read and validate the project in `folder`.

    Raises:
        ConfigurationError: listing every problem of every file at once, each with file, line and key.
    """
    return assembled(read_project(folder))


def read_project(folder: Path) -> ProjectParts:
    """Read every file of the project in `folder`, and note what is wrong with each and between them."""
    parts = ProjectParts(folder.resolve(), [])
    problems = parts.problems
    file = parts.file = _load(parts.folder / PROJECT_FILE, ProjectFile, problems)
    contract_path = parts.folder / (file.contract if file else "contract.yaml")
    policy_path = parts.folder / (file.policy if file else "policy.yaml")
    contract = parts.contract = _load(contract_path, Contract, problems)
    policy = parts.policy = _load(policy_path, GatePolicy, problems)
    if file is None:
        return parts
    if policy is not None:
        lines, task = lines_of(policy_path.read_text()), task_of(file.training)
        resolved = policy.resolved(judging_of(task))
        problems.extend(at_line(policy_path.name, lines, problem) for problem in resolved.problems(task))
        if policy.slices and not file.evaluation.slices:
            problems.append(
                f"{policy_path.name}: slices: expected columns under evaluation.slices in {PROJECT_FILE} to judge by "
                f"{', '.join(policy.slices)}, found none; name some, or remove the limits"
            )
    if contract is not None:
        problems.extend(_snapshot_problems(file.snapshots, contract, contract_path.name))
    if not any(table.event_time for table in file.source.tables.values()):
        problems.append(
            f"{PROJECT_FILE}: source.tables: expected an event_time in one of them at least, as the newest is the "
            "snapshot's time, found none"
        )
    problems.extend(_test_problems(parts.folder, file))
    parts.repository = _repository(parts.folder / file.features.repo, problems)
    return parts


def assembled(parts: ProjectParts) -> Project:
    """The project, where nothing is wrong with it.

    Raises:
        ConfigurationError: listing every problem that was noted.
    """
    file, problems = parts.file, parts.problems
    if problems or file is None or parts.contract is None or parts.policy is None or parts.repository is None:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(
            f"{len(problems)} problem{'s' * (len(problems) > 1)} in the project {parts.folder}:{listed}"
        )
    return Project(
        folder=parts.folder,
        file=file,
        contract=Config(f"{file.name}-contract", {CONTRACT_FILE: contract_text(parts.contract).encode()}),
        definitions=definitions_of(file, parts.repository),
        policy=parts.policy,
        tests=_tests(parts.folder, file),
        warnings=tuple(parts.warnings),
    )


def _tests(folder: Path, file: ProjectFile) -> Config | None:
    """The files of the folder `integration/`, as they are published, where candidates are tried."""
    if file.integration is None or not (folder / TESTS).is_dir():
        return None
    paths = [path for path in sorted((folder / TESTS).rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return Config(
        f"{file.name}-integration", {str(path.relative_to(folder / TESTS)): path.read_bytes() for path in paths}
    )


def _test_problems(folder: Path, file: ProjectFile) -> Iterator[str]:
    """Tests of candidates that would never run, and a folder of tests without any."""
    if not (folder / TESTS).is_dir():
        return
    if file.integration is None:
        yield f"{TESTS}/: expected the section integration in {PROJECT_FILE}, as these tests never run without; add it"
    elif not any(is_test_file(path.name) for path in (folder / TESTS).rglob("*.py")):
        yield f"{TESTS}/: expected test_….py, found none; write one, or remove the folder"


def definitions_of(file: ProjectFile, repository: Repository) -> Config:
    """The feature definitions as they are published."""
    return Config(f"{file.name}-features", published_files(repository))


def _snapshot_problems(given: Mapping[str, str], contract: Contract, name: str) -> Iterator[str]:
    for wanted in contract.snapshots():
        reference = given.get(wanted, wanted)
        if not reference.startswith("snapshots/") or not references_in(reference):
            yield (
                f"{name}: a foreign key leads to the snapshot {wanted!r}: expected its reference "
                f"(snapshots/…) under `snapshots` in {PROJECT_FILE}, found {given.get(wanted, 'none')!r}"
            )
    for unused in sorted(given.keys() - set(contract.snapshots())):
        yield f"{PROJECT_FILE}: snapshots.{unused}: no foreign key of {name} leads to it; remove it"


def _load(path: Path, model: type[_Model], problems: list[str]) -> _Model | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        problems.append(f"{path.name}: expected a file in {path.parent}, found none; `gatehouse init` writes one")
        return None
    except UnicodeDecodeError as error:
        problems.append(f"{path.name}: is not YAML: {' '.join(str(error).split())}")
        return None
    return load_model(path.name, text, model, problems)


def _repository(folder: Path, problems: list[str]) -> Repository | None:
    if not (folder / FILE).is_file():
        problems.append(f"{PROJECT_FILE}: features.repo: expected a folder with {FILE}, found none in {folder}")
        return None
    try:
        return read_repository(folder)
    except ConfigurationError as error:
        problems.append(str(error))
        return None
