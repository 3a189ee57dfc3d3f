"""Makes the decision from the findings: the alarms, what asks for a new model, and what gave no alarm and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gatehouse.monitoring.finding import (
    ALARM,
    CHANCE,
    DATA,
    DECAY,
    DRIFT,
    HELD,
    MOVED,
    PERFORMANCE,
    PREDICTION,
    QUIET,
    SEASON,
    UNKNOWN,
    Finding,
)
from gatehouse.monitoring.spec import MonitoringSpec


@dataclass(frozen=True)
class Decision:
    """The result of all findings.

    Attributes:
        findings: The findings in their final states.
        decision: `retrain` or `keep`.
        triggers: Which of `drift` and `decay` ask for a new model.
        reasons: The alarms that ask for a new model.
        alarms: All alarms, including those that do not ask for a new model.
        warnings: Changes that gave no alarm, and why.
        unchecked: What could not be judged, and why.
    """

    findings: tuple[Finding, ...]
    decision: str
    triggers: tuple[str, ...]
    reasons: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[str, ...]
    unchecked: tuple[str, ...]


def decide(spec: MonitoringSpec, findings: Sequence[Finding]) -> Decision:
    """Make the decision.

    If the project says so, drift of inputs and predictions only warns while the performance on known labels holds
    beyond chance. Then the model does not depend on what moved, or can handle it.

    Args:
        spec: What asks for a new model.
        findings: The findings of all checks.
    """
    held = next((each for each in findings if each.check == PERFORMANCE and each.holds), None)
    if held is not None and (spec.data_drift is None or spec.data_drift.unless_holds):
        findings = [_held(each, held) for each in findings]
    asking = {name: checks for name, checks in (("decay", DECAY), ("drift", DRIFT)) if name in spec.retrain.on}
    alarms = [each for each in findings if each.state == ALARM]
    triggers = tuple(name for name, checks in asking.items() if any(each.check in checks for each in alarms))
    reasons = [each.sentence for name in triggers for each in alarms if each.check in asking[name]]
    return Decision(
        findings=tuple(findings),
        decision="retrain" if reasons else "keep",
        triggers=triggers,
        reasons=tuple(reasons),
        alarms=tuple(each.sentence for each in alarms),
        warnings=tuple(_warnings(findings)),
        unchecked=tuple(each.sentence for each in findings if each.state == UNKNOWN),
    )


def _held(finding: Finding, held: Finding) -> Finding:
    if finding.check not in (DATA, PREDICTION) or finding.state != ALARM:
        return finding
    return replace(finding, state=HELD, why=f"{finding.why}; no alarm, as {held.name}: {held.why}")


def _warnings(findings: Sequence[Finding]) -> list[str]:
    """Findings beyond a flat alarm that gave no alarm, those with the most weight first."""
    whole = next((each for each in findings if each.check == DATA and not each.kind), None)
    alone = whole is not None and whole.state == QUIET
    told = [
        each if each.state != MOVED else replace(each, why=f"{each.why}; alone it asks for nothing{_counts(each)}")
        for each in findings
        if each.state in (SEASON, CHANCE, HELD) or (each.state == MOVED and alone)
    ]
    return [each.sentence for each in sorted(told, key=lambda each: (each.state != HELD, -(each.weight or 0.0)))]


def _counts(finding: Finding) -> str:
    return "" if finding.weight is None else f", as it holds {finding.weight:.1%} of what counts"
