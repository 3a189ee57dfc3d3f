"""What the files of a project say against each other, or that no single key of a file can tell."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from gatehouse.configuration.yaml_lines import at_line, nearest, shown
from gatehouse.configuration.yaml_text import lines_of, read_yaml
from gatehouse.data.validation.contract import Contract
from gatehouse.evaluation.gate import NONE_REFUSES
from gatehouse.evaluation.integration.child import is_test_file
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.features.definitions.repository import Repository
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile
from gatehouse.store.objects.opening import address_problem
from gatehouse.store.reference import references_in
from gatehouse.training.spec import task_of

TESTS = "integration"
"""The folder of the tests of candidates."""


def loss_problem(folder: Path, file: ProjectFile, repository: Repository) -> str:
    """That the loss trains for another task than that of the label; empty if they fit each other."""
    task, loss = repository.label.task, getattr(getattr(file, "training", None), "loss", None)
    text = (folder / PROJECT_FILE).read_text()
    # Where the key is wrong, the file has none, and nobody but the label says which losses may be meant.
    losses, found = TASKS[task].losses, getattr(loss, "kind", "") or _kind_as_written(read_yaml(text))
    if not found or found in losses:
        return ""
    why = f"as the label's task in {file.features.repo} is {task}"
    told = f"training.loss.kind: expected {' or '.join(losses)}, {why}, found {shown(found)}{nearest(found, losses)}"
    return at_line(PROJECT_FILE, lines_of(text), told)


def _kind_as_written(body: Any) -> str:
    """The kind of the loss in the content of `project.yaml`; empty where it is no text, or none is written."""
    for key in ("training", "loss", "kind"):
        body = body.get(key) if isinstance(body, dict) else None
    return body if isinstance(body, str) else ""


def with_fitting_loss(body: Any, repository: Repository) -> Any:
    """The content of `project.yaml` with a loss of the label's task, so that the rest can be held against it."""
    return body | {"training": body["training"] | {"loss": {"kind": next(iter(TASKS[repository.label.task].losses))}}}


def policy_problems(folder: Path, file: ProjectFile, policy: GatePolicy) -> Iterator[str]:
    """Rules of the policy that the task, or what the project measures, cannot keep."""
    lines, task = lines_of((folder / file.policy).read_text()), task_of(file.training)
    resolved = policy.resolved(judging_of(task))
    yield from (at_line(file.policy, lines, problem) for problem in resolved.problems(task))
    if policy.slices and not file.evaluation.slices:
        yield (
            f"{file.policy}: slices: expected columns under evaluation.slices in {PROJECT_FILE} to judge by "
            f"{', '.join(policy.slices)}, found none; name some, or remove the limits"
        )
    yield from (at_line(file.policy, lines, problem) for problem in _never_kept(file, policy))


def policy_warnings(folder: Path, file: ProjectFile, policy: GatePolicy) -> Iterator[str]:
    """That the policy lets every candidate pass, or nearly every one."""
    lines = lines_of((folder / file.policy).read_text())
    refusing = policy.resolved(judging_of(task_of(file.training))).refusing()
    tried = file.integration is not None and policy.terms_of("integration").severity == "refuse"
    if not refusing and not tried:
        yield at_line(file.policy, lines, f"rules: {NONE_REFUSES}")
    for key, rule in (("champion", policy.champion), ("regressions", policy.regressions)):
        if rule is not None and rule.relative_tolerance >= 1:
            yield at_line(
                file.policy,
                lines,
                f"{key}.relative_tolerance: {rule.relative_tolerance:g} is a share of the champion's value, so that a "
                f"candidate may be worse by {rule.relative_tolerance:,.0%} of it; write 0.005 for half a percent",
            )


def _never_kept(file: ProjectFile, policy: GatePolicy) -> Iterator[str]:
    """Rules that would refuse every candidate, because no stage of this project measures their values."""
    asked = {"require_integration": "integration", "require_online": "integration online"}
    for key, rule in asked.items() if file.integration is None else ():
        if getattr(policy, key) and policy.terms_of(rule).severity == "refuse":
            yield (
                f"{key}: expected the section integration in {PROJECT_FILE}, without which no candidate is tried and "
                "each is refused, found none; write `integration: {}` there, or remove this rule"
            )
    looked_at = policy.regressions
    nothing = looked_at and not looked_at.metrics and not (looked_at.slices and file.evaluation.slices)
    if nothing and policy.terms_of("regressions").severity == "refuse":
        yield (
            f"regressions: expected metrics here, or columns under evaluation.slices in {PROJECT_FILE} together with "
            "slices: true, found neither, so that every candidate is refused once there is a champion; name some, or "
            "remove this rule"
        )
    gap, oldest, day = getattr(file.split, "gap", None), policy.max_training_age, timedelta(days=1)
    if gap is not None and oldest is not None and oldest < gap and policy.terms_of("training age").severity == "refuse":
        yield (
            f"max_training_age: expected at least the gap of split in {PROJECT_FILE}, {gap / day:g} days, as all that "
            f"is learned from is older than the test rows by that, found {oldest / day:g} days; allow more, or leave "
            "a smaller gap"
        )


def store_problems(folder: Path, file: ProjectFile) -> Iterator[str]:
    """An address that no store can have."""
    if problem := address_problem(file.store):
        yield at_line(PROJECT_FILE, lines_of((folder / PROJECT_FILE).read_text()), f"store: {problem}")


def time_problems(file: ProjectFile) -> Iterator[str]:
    """That no table has a time of its events."""
    if not any(table.event_time for table in file.source.tables.values()):
        yield (
            f"{PROJECT_FILE}: source.tables: expected an event_time in one of them at least, as the newest is the "
            "snapshot's time, found none"
        )


def test_problems(folder: Path, file: ProjectFile) -> Iterator[str]:
    """Tests of candidates that would never run, and an empty folder of tests."""
    if not (folder / TESTS).is_dir():
        return
    if file.integration is None:
        yield f"{TESTS}/: expected the section integration in {PROJECT_FILE}, as these tests never run without; add it"
    elif not any(is_test_file(path.name) for path in (folder / TESTS).rglob("*.py")):
        yield f"{TESTS}/: expected test_….py, found none; write one, or remove the folder"


def snapshot_problems(file: ProjectFile, contract: Contract) -> Iterator[str]:
    """Snapshots to which foreign keys lead and that are not named, and the other way round."""
    given, name = file.snapshots, file.contract
    for wanted in contract.snapshots():
        reference = given.get(wanted, wanted)
        if not reference.startswith("snapshots/") or not references_in(reference):
            yield (
                f"{name}: a foreign key leads to the snapshot {wanted!r}: expected its reference "
                f"(snapshots/…) under `snapshots` in {PROJECT_FILE}, found {given.get(wanted, 'none')!r}"
            )
    for unused in sorted(given.keys() - set(contract.snapshots())):
        yield f"{PROJECT_FILE}: snapshots.{unused}: no foreign key of {name} leads to it; remove it"
