"""Findings of the checks, and the decision that follows from them: the alarms, and whether to retrain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gatehouse.monitoring.spec import MonitoringSpec

ALARM = "alarm"
MOVED = "moved"
"""The feature drifted; one feature alone gives no alarm."""
SEASON = "season"
"""Above the flat alarm, but within its season."""
CHANCE = "chance"
"""Above the alarm, but within chance."""
SUPPRESSED = "suppressed"
"""Would alarm, but the performance of the model holds."""
IGNORED = "ignored"
QUIET = "quiet"
UNKNOWN = "not judged"

DATA, PREDICTION, LABEL = "data drift", "prediction drift", "label drift"
PERFORMANCE, CALIBRATION = "performance", "calibration"
QUALITY, FRESHNESS = "quality", "freshness"
ADVISORY = (QUALITY, FRESHNESS)
"""Checks that never ask for a new model."""
_TRIGGERS = {"decay": (PERFORMANCE, CALIBRATION), "drift": (DATA, PREDICTION, LABEL)}


@dataclass(frozen=True)
class Finding:
    """The result of a check: a value, its alarm limit, and a sentence that says why there is an alarm or not.

    Attributes:
        name: Name of the column, metric or view; if `kind` is empty, the name of all of them together.
        flat: The limit without regard to seasons.
        seasonal: The largest value within the reference itself.
        low, high: Bounds of the 95 % interval of the value.
        holds: For performance: whether it is within its alarm even at the worse bound of chance.
    """

    check: str
    name: str
    state: str
    why: str
    kind: str = ""
    measure: str = ""
    value: float | None = None
    alarm: float | None = None
    flat: float | None = None
    seasonal: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    weight: float | None = None
    chance: float | None = None
    effective: float | None = None
    distances: dict[str, float] = field(default_factory=dict)
    holds: bool = False

    @property
    def title(self) -> str:
        """The check and its subject."""
        return f"{self.check}, {self.name}" if self.name else self.check

    @property
    def sentence(self) -> str:
        """Title and reason together, for a list."""
        return f"{self.title}: {self.why}"


@dataclass(frozen=True)
class Decision:
    """The result of all findings."""

    findings: tuple[Finding, ...]
    decision: str
    triggers: tuple[str, ...]
    reasons: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[str, ...]
    unchecked: tuple[str, ...]


def decide(spec: MonitoringSpec, findings: Sequence[Finding]) -> Decision:
    """Decide from the findings of all checks.

    With `unless_holds`, drift of inputs and predictions only warns while the performance on known labels holds beyond
    chance: the model does not depend on what moved, or can handle it.
    """
    holding = next((finding for finding in findings if finding.check == PERFORMANCE and finding.holds), None)
    if holding is not None and (spec.data_drift is None or spec.data_drift.unless_holds):
        findings = [
            replace(finding, state=SUPPRESSED, why=f"{finding.why}; no alarm, as {holding.name}: {holding.why}")
            if finding.check in (DATA, PREDICTION) and finding.state == ALARM
            else finding
            for finding in findings
        ]
    alarms = [finding for finding in findings if finding.state == ALARM]
    asking = {name: checks for name, checks in _TRIGGERS.items() if name in spec.retrain.on}
    reasons = [alarm.sentence for checks in asking.values() for alarm in alarms if alarm.check in checks]
    together = next((finding for finding in findings if finding.check == DATA and not finding.kind), None)
    quiet = together is not None and together.state == QUIET
    warnings = []
    for finding in sorted(findings, key=lambda finding: (finding.state != SUPPRESSED, -(finding.weight or 0.0))):
        if finding.state in (SEASON, CHANCE, SUPPRESSED):
            warnings.append(finding.sentence)
        elif finding.state == MOVED and quiet:
            weight = "" if finding.weight is None else f", as it holds {finding.weight:.1%} of what counts"
            warnings.append(f"{finding.sentence}; alone it asks for nothing{weight}")
    return Decision(
        findings=tuple(findings),
        decision="retrain" if reasons else "keep",
        triggers=tuple(name for name, checks in asking.items() if any(alarm.check in checks for alarm in alarms)),
        reasons=tuple(reasons),
        alarms=tuple(alarm.sentence for alarm in alarms),
        warnings=tuple(warnings),
        unchecked=tuple(finding.sentence for finding in findings if finding.state == UNKNOWN),
    )
