"""The outcome of a leakage check of a split, and what to do about it."""

from dataclasses import dataclass

from gatehouse.data.splitting.spec import Severity

PASSED, FAILED, NOTED, COULD_NOT_RUN = "passed", "failed", "noted", "could not run"
USABLE = "parts"
"""The check that each part has rows, labels that differ, and times, without which nothing can leak."""
_REPEATED = (
    "If they are one thing seen twice, split by the column that says so (strategy `group`); if they only look alike, "
    "raise the limit in split.checks"
)
TO_DO: dict[str, str] = {
    USABLE: "Move the boundaries or shares in `split`, or bring more rows",
    "time_order": "Move the boundaries in `split`, or divide by strategy `time`",
    "label_maturity": "Raise split.gap, so that the labels of a part are known before the next part begins",
    "group_overlap": "Divide by strategy `group` with these columns, or take them out of split.checks.groups",
    "unnamed_groups": "Divide by strategy `group` with this column, have the label's query keep it (`keeps`), and make "
    "no feature of it, as `gatehouse init --group` does; where it names nothing, set split.checks.severity: "
    "{unnamed_groups: note}",
    "entity_overlap": "Divide by strategy `entity`, where the model meets entities that it was not trained on",
    "duplicates": _REPEATED,
    "near_duplicates": _REPEATED,
    "single_feature": "Look what its query reads; where all of it is known at the decision, raise "
    "split.checks.single_feature_auc",
    "availability": "Have the view's query read what was known at the decision, or leave the feature out",
    "geographic_neighbours": "Divide by strategy `geographic` with a buffer_km, or lower split.checks.neighbours_km",
    "decision_time_drift": "Divide by strategy `time`, or look which times one of the parts lacks",
    "feature_drift": "Look when its values changed; train on newer rows, leave the feature out, or raise "
    "split.checks.psi",
}
"""What to do about what a check found, where its own sentence does not say it."""


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: Which.
        status: `passed`, `failed`, `noted` (found, where its severity is `note`) or `could not run`.
        severity: `fail`, `warn` or `note`: what it means that something was found.
        said: What was found, or why it could not run, one sentence each.
        required: Whether the configuration demands that it runs and passes.
    """

    name: str
    status: str
    severity: Severity
    said: tuple[str, ...]
    required: bool = False

    @property
    def told(self) -> tuple[str, ...]:
        """What was found, each with the check's name; the last also with what to do."""
        to_do = f". {TO_DO[self.name]}" if self.name in TO_DO else ""
        return tuple(f"{self.name}: {text}{to_do * (text is self.said[-1])}" for text in self.said)

    @property
    def ends_the_run(self) -> bool:
        """Whether the split must not be published."""
        return self.severity == "fail" and (self.status == FAILED or (self.required and self.status == COULD_NOT_RUN))
