"""From how far everything moved to the decision whether to retrain."""

from dataclasses import dataclass

from gatehouse.components.monitoring.spec import MonitoringSpec

NUMERIC, CATEGORICAL, SCORE = "numeric", "categorical", "score"


@dataclass(frozen=True)
class Moved:
    """How far one column moved, and from where on that is drift."""

    name: str
    kind: str
    psi: float
    divergence: float
    seasonal: float
    alarm: float
    ignored: bool = False

    @property
    def drifted(self) -> bool:
        """Whether it moved beyond its alarm."""
        return not self.ignored and self.psi > self.alarm


@dataclass(frozen=True)
class LabelRate:
    """The rate of positive labels then and now; `seasonal` is the largest distance of a block of the train rows."""

    trained: float
    current: float
    seasonal: float
    alarm: float

    @property
    def drifted(self) -> bool:
        """Whether it moved beyond its alarm."""
        return abs(self.current - self.trained) > self.alarm


def alarm_of(spec: MonitoringSpec, flat: float, seasonal: float) -> float:
    """The distance from where on something counts as drift: never below the flat alarm."""
    return max(flat, round(spec.seasonal_margin * seasonal, 9))


def reasons_to_retrain(
    spec: MonitoringSpec, features: list[Moved], scores: Moved | None, label: LabelRate
) -> list[str]:
    """Every reason to retrain, the worst features named first; none where all stands."""
    watched = [each for each in features if not each.ignored]
    drifted = sorted((each for each in watched if each.drifted), key=lambda each: (-each.psi / each.alarm, each.name))
    reasons = []
    if len(drifted) > spec.max_drifted * len(watched):
        named = ", ".join(f"{each.name} {each.psi:.2f} (alarm {each.alarm:.2f})" for each in drifted[:5])
        reasons.append(
            f"features: expected at most {spec.max_drifted:.0%} of {len(watched)} to drift, found {len(drifted)}: "
            f"{named}"
        )
    if scores is not None and scores.drifted:
        reasons.append(f"scores: expected a PSI of at most {scores.alarm:.2f}, found {scores.psi:.2f}")
    if label.drifted:
        reasons.append(f"label rate: expected {label.trained:.3f} within {label.alarm:.3f}, found {label.current:.3f}")
    return reasons
