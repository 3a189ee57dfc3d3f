"""The integration suite: the candidate passed it, if it was run or the policy asks for it."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.evaluation.integration.spec import NOT_CHECKED, ONLINE
from gatehouse.store.identity import Spec


class Integration(Spec):
    """Whether candidates must be tried before they are judged."""

    require_integration: bool = Field(
        False, description="Whether a candidate without integration tests is refused; one that failed them always is."
    )
    require_online: bool = Field(
        False,
        description="Whether a candidate is refused if its online features were not compared with the offline ones.",
    )


@family(Integration, of_rows=False)
def integration(policy: Integration, evidence: Evidence) -> Iterator[Rule]:
    """Every check of the integration suite passed."""
    suite = evidence.integration
    if suite.verdict != NOT_CHECKED or policy.require_integration:
        reasons = "; ".join(suite.reasons) or suite.verdict
        yield Rule("integration", "that the candidate passes its suite", reasons, suite.verdict == "pass")
    if policy.require_online:
        unchecked = "; ".join(warning for warning in suite.warnings if warning.startswith(ONLINE))
        compared = suite.online in ("pass", "fail") and not unchecked
        why = unchecked or (
            "the candidate was not tried" if suite.verdict == NOT_CHECKED else "a suite without this check"
        )
        yield Rule(
            "integration online", "that online features were compared", "they were" if compared else why, compared
        )
