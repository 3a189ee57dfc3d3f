"""Finds warnings that a run is sure to give, where the policy refuses every candidate with one."""

from collections.abc import Iterator

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.features.definitions.repository import Repository, without_history
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile


def views_warned_of(file: ProjectFile, policy: GatePolicy, repository: Repository) -> Iterator[str]:
    """That there are views of which the check for leakage always warns."""
    views = [name for name in file.features.unchecked if name in repository.views]
    if _refuses(policy) and (warned := [name for name in views if without_history(repository, name)]):
        yield (
            f"{file.policy}: warnings: refuse: expected no view under features.unchecked in {PROJECT_FILE}, as each is "
            f"warned of and every candidate refused, found {', '.join(warned)}; write known/<table>.sql for what these "
            "read, or allow warnings"
        )


def _refuses(policy: GatePolicy) -> bool:
    return policy.warnings == "refuse" and policy.terms_of("warnings").severity == "refuse"
