"""The result of a check: a value, its alarm limit, and a sentence that says why there is an alarm or not."""

from dataclasses import dataclass, field

ALARM, MOVED, SEASON, CHANCE, HELD, IGNORED, QUIET, UNKNOWN = (
    "alarm",
    "moved",
    "season",
    "chance",
    "held",
    "ignored",
    "quiet",
    "not judged",
)
"""States, in order: alarm; moved, but one feature alone gives no alarm; within its season; within chance; would alarm,
but the model holds; ignored; nothing to report; not judged.
"""

DATA, PREDICTION, LABEL = "data drift", "prediction drift", "label drift"
PERFORMANCE, CALIBRATION, DETECTOR = "performance", "calibration", "detector"
QUALITY, FRESHNESS = "quality", "freshness"
DRIFT, DECAY = (DATA, PREDICTION, LABEL), (PERFORMANCE, CALIBRATION, DETECTOR)


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes:
        check: The check.
        name: Name of the column, metric or view; if `kind` is empty, the name of all of them together.
        state: One of the states above.
        why: The reason for the state, in a sentence.
        kind: `numeric` or `categorical` for a feature.
        measure: Name of the measure of `value`.
        value: The measured value; None if nothing could be measured.
        alarm: The limit above which it alarms.
        flat: The limit without regard to seasons.
        seasonal: The largest value within the reference itself.
        expected: The value in the reference, or at the gate.
        low, high: Bounds of the 95 % interval of the value.
        weight: Share of the model's feature importance.
        chance: The corrected p-value.
        effective: How many independent rows the newest rows are worth.
        others: Other measures of the same column, by name.
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
    others: dict[str, float] = field(default_factory=dict)
    holds: bool = False

    @property
    def title(self) -> str:
        """The text before the sentence: the check and its subject."""
        return f"{self.check}, {self.name}" if self.name else self.check

    @property
    def sentence(self) -> str:
        """Title and reason together, for a list."""
        return f"{self.title}: {self.why}"
