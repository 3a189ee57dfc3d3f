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
class LabelLevel:
    """The level of labels then and now.

    Attributes:
        title: What the level is.
        is_share: Whether it is a share of the rows.
        trained: That of the train rows.
        current: That of the current ones.
        seasonal: The largest distance of a block of the train rows.
        flat: The distance from where on it would count as drift if there were no seasons.
        alarm: The distance from where on it does.
    """

    title: str
    is_share: bool
    trained: float
    current: float
    seasonal: float
    flat: float
    alarm: float

    @property
    def drifted(self) -> bool:
        """Whether it moved beyond its alarm."""
        return abs(self.current - self.trained) > self.alarm


def alarm_of(spec: MonitoringSpec, flat: float, seasonal: float) -> float:
    """The distance from where on something counts as drift: never below the flat alarm."""
    return max(flat, round(spec.seasonal_margin * seasonal, 9))


def flat_alarm(spec: MonitoringSpec, kind: str) -> float:
    """The PSI from where on a column of a kind would count as drifted if there were no seasons."""
    return {NUMERIC: spec.numeric_alarm, CATEGORICAL: spec.categorical_alarm, SCORE: spec.score_alarm}[kind]


def hidden_by_seasons(spec: MonitoringSpec, columns: list[Moved], label: LabelLevel) -> list[str]:
    """Every alarm that would have rung, had the train rows not moved as far by themselves; the furthest first."""
    hidden = [each for each in columns if not each.ignored and flat_alarm(spec, each.kind) < each.psi <= each.alarm]
    told = [
        f"{each.name}: a PSI of {each.psi:.2f} is above the alarm of {flat_alarm(spec, each.kind):.2f} and rang none, "
        f"as its season alone reaches {each.seasonal:.2f}, which raised the alarm to {each.alarm:.2f}"
        for each in sorted(hidden, key=lambda each: (-each.psi, each.name))
    ]
    if label.flat < abs(label.current - label.trained) <= label.alarm:
        told.append(
            f"{label.title}: {label.current:.3g} is further from {label.trained:.3g} than the alarm of "
            f"{label.flat:.3g} and rang none, as its season alone reaches {label.seasonal:.3g}, which raised the "
            f"alarm to {label.alarm:.3g}"
        )
    return told


def reasons_to_retrain(
    spec: MonitoringSpec, features: list[Moved], scores: Moved | None, label: LabelLevel
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
        reasons.append(
            f"{label.title}: expected {label.trained:.3g} within {label.alarm:.3g}, found {label.current:.3g}"
        )
    return reasons
