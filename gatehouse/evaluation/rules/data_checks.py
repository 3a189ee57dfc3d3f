"""Checks of the data: all of them passed, and the policy allows or refuses their warnings."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.evaluation.integration.spec import NOT_CHECKED
from gatehouse.store.identity import Spec


class DataChecks(Spec):
    """The meaning of warnings on the data."""

    warnings: Literal["allow", "refuse"] = Field(
        "allow",
        description="Whether a candidate passes if the checks of its data gave warnings; they are recorded with it.",
    )


@family(DataChecks, "validation", "leakage", "split checks", "warnings", of_rows=False)
def data_checks(policy: DataChecks, evidence: Evidence) -> Iterator[Rule]:
    """The checks of the data passed, without warnings if the policy asks for that."""
    for check in evidence.data_checks:
        if check.verdict != NOT_CHECKED:
            count = len(check.warnings)
            warned = f" with {count} warning{'s' * (count > 1)}" if count else ""
            yield Rule(check.name, "pass", check.verdict + warned, check.verdict == "pass")
    if policy.warnings == "refuse" and evidence.data_checks:
        warnings = [f"{check.name}: {text}" for check in evidence.data_checks for text in check.warnings]
        yield Rule("warnings", "none on the data", "; ".join(warnings) or "none", not warnings)
    elif policy.warnings == "refuse":
        yield Rule("warnings", "none on the data", "not checked: the evaluation was given no checks of the data", False)
