"""A project: one folder of configuration that a user writes, and the specs that the stages read from it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from gatehouse.configuration.yaml_lines import at_line, load_model
from gatehouse.configuration.yaml_text import lines_of, read_text
from gatehouse.data.validation.contract import CONTRACT_FILE, Contract, contract_text
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.features.definitions.loading import FILE, in_repository
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.project.between_files import (
    TESTS,
    loss_problem,
    policy_problems,
    snapshot_problems,
    store_problems,
    test_problems,
    time_problems,
    with_fitting_loss,
)
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile
from gatehouse.runtime.counting import counted
from gatehouse.store.manifest import Manifest
from gatehouse.store.publishing import manifest_of
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class Config:
    """A part of the configuration that is passed as a reference, because it is too large for a parameter."""

    name: str
    files: dict[str, bytes]

    @property
    def reference(self) -> Reference:
        """The identity that it gets when it is published; computed without a store."""
        return self.manifest.reference

    @property
    def manifest(self) -> Manifest:
        """The manifest that publishing it would write."""
        return manifest_of("config", self.name, self.files)

    def publish(self, store: ArtifactStore) -> Reference:
        """Publish it; publishing the same files again changes nothing."""
        return store.publish("config", self.name, self.files)


@dataclass(frozen=True)
class Project:
    """A validated project.

    Attributes:
        folder: Its folder.
        file: The content of `project.yaml`.
        contract: Its data contract, as a configuration reference.
        definitions: Its feature definitions, as a configuration reference.
        policy: Its promotion policy as written; the evaluation fills in defaults from the task.
        tests: Its own tests of candidates, as a configuration reference; None if it has none.
        warnings: Findings that are no errors.
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
        """Address of the store for pipelines on a cluster; empty if the project's store is a local folder."""
        return self.file.store if "://" in self.file.store else ""

    def configs(self) -> tuple[Config, ...]:
        """All configuration that must be published before a run."""
        return (self.contract, self.definitions, *filter(None, [self.tests]))


@dataclass
class ProjectParts:
    """The parts of a project that have been read.

    Attributes:
        folder: Its folder.
        problems: Problems, one sentence each.
        file: The content of `project.yaml`, or its valid part; None if it cannot be read (also for the other parts).
        partly: Whether some of its keys are wrong; reading such a key raises AttributeError.
        contract: Its data contract.
        policy: Its promotion policy.
        repository: Its feature definitions.
        warnings: Findings that are no errors, one sentence each.
    """

    folder: Path
    problems: list[str]
    file: ProjectFile | None = None
    partly: bool = False
    contract: Contract | None = None
    policy: GatePolicy | None = None
    repository: Repository | None = None
    warnings: list[str] = field(default_factory=list)

    def note(self, look: Callable[..., Iterable[str]], *given: Any) -> None:
        """Add the problems that `look` finds in what is given; it ends where it reads a wrong key."""
        try:
            for problem in look(*given):
                self.problems.append(problem)
        except AttributeError:
            if not self.partly:
                raise


def load_project(folder: Path) -> Project:
    """Read and validate the project in `folder`.

    Raises:
        ConfigurationError: listing every problem of every file, each with file, line and key.
    """
    return assembled(read_project(folder))


def read_project(folder: Path) -> ProjectParts:
    """Read every file of the project in `folder`, and collect problems within and between them.

    All metrics go by the task. Where loss and label have different ones, the rest is held against that of the two which
    leaves fewer problems, so that one mistake is told once.
    """
    parts = _read(folder.resolve())
    file, repository = parts.file, parts.repository
    if file is None or repository is None or not (problem := loss_problem(parts.folder, file, repository)):
        return parts
    other = _read(parts.folder, lambda body: with_fitting_loss(body, repository))
    parts = min(parts, other, key=lambda each: len(each.problems))
    parts.partly = True
    parts.problems.insert(0, problem)
    return parts


def _read(folder: Path, instead: Callable[[Any], Any] = lambda body: body) -> ProjectParts:
    parts = ProjectParts(folder, [])
    problems = parts.problems
    file = parts.file = _load(folder, PROJECT_FILE, ProjectFile, problems, instead)
    parts.partly = bool(problems)
    contract_name = str(getattr(file, "contract", "contract.yaml"))
    contract = parts.contract = _load(folder, contract_name, Contract, problems)
    policy_name = str(getattr(file, "policy", "policy.yaml"))
    policy = parts.policy = _load(folder, policy_name, GatePolicy, problems)
    if file is not None:
        if policy is not None:
            parts.note(policy_problems, folder, file, policy)
        if contract is not None:
            parts.note(snapshot_problems, file, contract)
        parts.note(store_problems, folder, file)
        parts.note(time_problems, file)
        parts.note(test_problems, folder, file)
    if repo := getattr(getattr(file, "features", None), "repo", ""):
        parts.repository = _repository(folder, str(repo), problems)
    return parts


def assembled(parts: ProjectParts) -> Project:
    """The project, if it has no problems.

    Raises:
        ConfigurationError: listing every problem.
    """
    file, problems = parts.file, parts.problems
    if problems or file is None or parts.contract is None or parts.policy is None or parts.repository is None:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(f"{counted(len(problems), 'problem')} in the project {parts.folder}:{listed}")
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
    """The files of the folder `integration/` for publishing; None if the project does not test candidates."""
    if file.integration is None or not (folder / TESTS).is_dir():
        return None
    paths = [path for path in sorted((folder / TESTS).rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return Config(
        f"{file.name}-integration", {str(path.relative_to(folder / TESTS)): path.read_bytes() for path in paths}
    )


def definitions_of(file: ProjectFile, repository: Repository) -> Config:
    """The feature definitions for publishing."""
    return Config(f"{file.name}-features", published_files(repository))


def _load(
    folder: Path,
    name: str,
    model: type[_Model],
    problems: list[str],
    instead: Callable[[Any], Any] = lambda body: body,
) -> _Model | None:
    path = folder / name
    if (text := read_text(path, name, problems)) is None:
        if problems[-1].endswith("found none"):
            problems[-1] += "; `gatehouse init` writes one"
        return None
    return load_model(name, text, model, problems, partly=model is ProjectFile, instead=instead)


def _repository(folder: Path, repo: str, problems: list[str]) -> Repository | None:
    if not (folder / repo / FILE).is_file():
        told = f"features.repo: expected a folder with {FILE}, found none in {folder / repo}"
        problems.append(at_line(PROJECT_FILE, lines_of((folder / PROJECT_FILE).read_text()), told))
        return None
    try:
        return read_repository(folder / repo)
    except ConfigurationError as error:
        problems.extend(in_repository(repo, str(error)))
        return None
