"""A project: one folder of configuration that a user writes, and the specs that the stages read from it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from gatehouse.configuration.yaml_lines import at_line, lines_of, load_model, nearest, read_text
from gatehouse.data.sources.catalog import SourceSpec, parse_source
from gatehouse.data.validation.contract import CONTRACT_FILE, Contract, contract_text, published_contract
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy, is_test_file
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import FILE, Repository, in_repository, read_repository
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import TASKS
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile
from gatehouse.runtime.plural import counted
from gatehouse.store.manifest import Manifest
from gatehouse.store.objects.opening import address_problem
from gatehouse.store.publishing import manifest_of
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import task_of

TESTS = "integration"
"""The folder of the project's own tests of candidates."""
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
    """A validated project; `tests` are its own tests of candidates.

    `policy` is the promotion policy as written; the evaluation fills in defaults from the task.
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

    @property
    def source(self) -> SourceSpec:
        """The source as snapshots are taken of it: the contract's sensitive columns are the source's too."""
        promised = published_contract(self.contract.files[CONTRACT_FILE].decode())
        declared = self.file.source.model_dump(mode="json")
        for name, table in declared["tables"].items():
            table["sensitive"] = sorted({*table["sensitive"], *promised.sensitive(name, table["columns"])})
        return parse_source(declared)

    def configs(self) -> tuple[Config, ...]:
        """All configuration that must be published before a run."""
        return (self.contract, self.definitions, *filter(None, [self.tests]))


@dataclass
class ProjectParts:
    """The files of a project that could be read, and the problems so far; a part is None if its file is wrong."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    file: ProjectFile | None = None
    contract: Contract | None = None
    policy: GatePolicy | None = None
    repository: Repository | None = None

    def add(self, file: str, problems: Iterable[str]) -> None:
        """Add problems of a YAML file, each of which begins with a dotted key, with the lines of the keys."""
        self.problems += at_lines(self.folder / file, file, problems)

    def project(self) -> Project:
        """The project, if it has no problems. Raises ConfigurationError, listing every problem."""
        file, problems = self.file, self.problems
        if problems or file is None or self.contract is None or self.policy is None or self.repository is None:
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise ConfigurationError(f"{counted(len(problems), 'problem')} in the project {self.folder}:{listed}")
        tests = None  # The files of the folder `integration/`, where the project tests candidates.
        folder = self.folder / TESTS
        if file.integration is not None and folder.is_dir():
            paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
            files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
            tests = Config(f"{file.name}-integration", files)
        return Project(
            folder=self.folder,
            file=file,
            contract=Config(f"{file.name}-contract", {CONTRACT_FILE: contract_text(self.contract).encode()}),
            definitions=definitions_of(file, self.repository),
            policy=self.policy,
            tests=tests,
            warnings=tuple(self.warnings),
        )


def load_project(folder: Path) -> Project:
    """Read and validate the project in `folder`.

    Raises ConfigurationError, listing every problem of every file, each with file, line and key.
    """
    return read_project(folder).project()


def read_project(folder: Path) -> ProjectParts:
    """Read every file of the project in `folder`; if all can be read, also check that they fit each other."""
    folder = folder.resolve()
    parts = ProjectParts(folder)
    file = parts.file = _load(folder, PROJECT_FILE, ProjectFile, parts.problems)
    parts.contract = _load(folder, file.contract if file else "contract.yaml", Contract, parts.problems)
    policy = parts.policy = _load(folder, file.policy if file else "policy.yaml", GatePolicy, parts.problems)
    if file is None:
        return parts
    if (folder / file.features.repo / FILE).is_file():
        try:
            parts.repository = read_repository(folder / file.features.repo)
        except ConfigurationError as error:
            parts.problems += in_repository(file.features.repo, str(error))
    else:
        parts.add(PROJECT_FILE, [f"features.repo: expected a folder with {FILE}, found none"])
    parts.add(PROJECT_FILE, _project_problems(folder, file, parts.repository))
    if policy is not None and not _loss_problem(file, parts.repository):  # Metrics depend on the task.
        parts.add(file.policy, _policy_problems(file, policy))
    if parts.contract is not None:
        # Snapshots that foreign keys of the contract name and `snapshots` does not, and the other way round.
        names = parts.contract.snapshots()
        for name in names:
            reference = file.snapshots.get(name, name)
            if not reference.startswith("snapshots/") or not references_in(reference):
                parts.problems.append(
                    f"{file.contract}: a foreign key leads to the snapshot {name!r}: expected its reference "
                    f"(snapshots/…) under `snapshots` in {PROJECT_FILE}, found {file.snapshots.get(name, 'none')!r}"
                )
        for unused in sorted(file.snapshots.keys() - set(names)):
            parts.problems.append(
                f"{PROJECT_FILE}: snapshots.{unused}: no foreign key of {file.contract} leads to it; remove it"
            )
    return parts


def at_lines(path: Path, name: str, problems: Iterable[str]) -> Iterator[str]:
    """Problems of a YAML file that begin with a dotted key, with the lines of the keys."""
    lines = None
    for problem in problems:
        lines = lines or lines_of(path.read_text())
        yield at_line(name, lines, problem)


def definitions_of(file: ProjectFile, repository: Repository) -> Config:
    """The feature definitions for publishing."""
    return Config(f"{file.name}-features", published_files(repository))


def _load(folder: Path, name: str, model: type[_Model], problems: list[str]) -> _Model | None:
    text = read_text(folder / name, name, problems)
    return None if text is None else load_model(name, text, model, problems)


def _loss_problem(file: ProjectFile, repository: Repository | None) -> str:
    """A message if the loss trains for another task than that of the label; empty if they fit."""
    loss = getattr(file.training, "loss", None)
    if repository is None or loss is None or loss.kind in (losses := TASKS[repository.label.task].losses):
        return ""
    return (
        f"training.loss.kind: expected {' or '.join(losses)}, as the label's task in {file.features.repo} is "
        f"{repository.label.task}, found {loss.kind!r}{nearest(loss.kind, losses)}"
    )


def _project_problems(folder: Path, file: ProjectFile, repository: Repository | None) -> Iterator[str]:
    if problem := _loss_problem(file, repository):
        yield problem
    if problem := address_problem(file.store):
        yield f"store: {problem}"
    if not any(table.event_time for table in file.source.tables.values()):
        yield "source.tables: expected an event_time in at least one table, as the newest is the snapshot's time"
    if (folder / TESTS).is_dir():
        if file.integration is None:
            yield f"integration: expected this section, as the folder {TESTS}/ holds tests of candidates, found none"
        elif not any(is_test_file(path.name) for path in (folder / TESTS).rglob("*.py")):
            yield f"integration: expected tests in {TESTS}/test_….py, found none; write one, or remove the folder"


def _policy_problems(file: ProjectFile, policy: GatePolicy) -> Iterator[str]:
    """Rules of the policy that the task, or what the project measures, cannot keep."""
    task = task_of(file.training)
    yield from policy.resolved(profile_of(task)).problems(task)
    if policy.slices and not file.evaluation.slices:
        yield f"slices: expected columns under evaluation.slices in {PROJECT_FILE}, found none"
    for key, rule in (("require_integration", "integration"), ("require_online", "integration online")):
        if file.integration is None and getattr(policy, key) and policy.terms_of(rule).severity == "refuse":
            yield f"{key}: expected the section integration in {PROJECT_FILE}, found none; each candidate is refused"
    if policy.live_required and policy.live is None:
        yield "live_required: expected a section `live` that says what must hold, found none"
    regressions = policy.regressions
    measured = regressions and (regressions.metrics or (regressions.slices and file.evaluation.slices))
    if regressions and not measured and policy.terms_of("regressions").severity == "refuse":
        yield f"regressions: expected metrics, or slices: true with evaluation.slices in {PROJECT_FILE}, found neither"
    gap, oldest = getattr(file.split, "gap", None), policy.max_training_age
    if gap and oldest is not None and oldest < gap and policy.terms_of("training age").severity == "refuse":
        days = timedelta(days=1)
        yield (
            f"max_training_age: expected at least the gap of split in {PROJECT_FILE}, {gap / days:g} days, found "
            f"{oldest / days:g} days, so every candidate is refused"
        )
