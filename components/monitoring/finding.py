"""What a check found: a number, from where on it alarms, and in a sentence why it did or did not."""

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
"""States: it alarms; it moved, and alone asks for nothing; its season, or chance, moves it as far; it would alarm, and
the model holds; it is ignored; nothing is to be said; it could not be judged."""

DATA, PREDICTION, LABEL = "data drift", "prediction drift", "label drift"
PERFORMANCE, CALIBRATION, DETECTOR = "performance", "calibration", "detector"
QUALITY, FRESHNESS = "quality", "freshness"
DRIFT, DECAY = (DATA, PREDICTION, LABEL), (PERFORMANCE, CALIBRATION, DETECTOR)


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: Which check.
        name: Of the column, metric or view; the name of all of them together where `kind` is empty.
        state: One of the states above.
        why: The state in a sentence.
        kind: `numeric` or `categorical` of a feature.
        measure: What `value` is.
        value: What was found; None where nothing could be measured.
        alarm: From where on it alarms.
        flat: The same, if there were no seasons.
        seasonal: The largest value that the reference has by itself.
        expected: What the value was in the reference, or at the gate.
        low, high: Ends of the 95 % interval of the value.
        weight: Share of what the model goes by.
        chance: The corrected p-value.
        effective: As how many independent rows the newest ones count.
        others: Other measures of the same, by name.
        holds: Of the performance: whether it is within its alarm even where chance flattered it.
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
        """What stands before the sentence: the check, and whose."""
        return f"{self.check}, {self.name}" if self.name else self.check

    @property
    def sentence(self) -> str:
        """The whole, for a list."""
        return f"{self.title}: {self.why}"
