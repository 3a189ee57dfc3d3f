"""What is measured on a candidate, and what the gate demands of it."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gatehouse.evaluation.gate import RuleSettings, families
from gatehouse.evaluation.group_measures import problems_of as group_measure_problems
from gatehouse.metrics.catalogue import NAMES
from gatehouse.metrics.judging import TaskProfile
from gatehouse.metrics.tasks import Task
from gatehouse.store.identity import Spec, Unordered


class EvaluationSpec(Spec):
    """What is measured on the test part."""

    slices: tuple[str, ...] | dict[str, str] = Field(
        (),
        description="Columns for whose values metrics are also computed; or SQL expressions over test rows, by name.",
    )
    crossed_slices: tuple[tuple[str, str], ...] = Field(
        (), description="Pairs of names from `slices`: metrics are computed for each combination of their values."
    )
    min_slice_rows: int = Field(
        500, ge=1, description="Slices with fewer rows (for a ranking, fewer groups) are shown, but not judged."
    )
    calibration_bins: int = Field(20, ge=2, le=200, description="Bins of the calibration curve and error.")
    bootstrap_samples: int = Field(
        500, ge=20, le=10_000, description="Number of bootstrap resamples of the test rows, for confidence intervals."
    )
    resample_by: str = Field(
        "",
        description="What the bootstrap draws as a whole, because its rows are not independent: a column, or the "
        "`day` or `week` of the decision; empty for the groups or entities that the split keeps together, else single "
        "rows (for a ranking, groups).",
    )
    protected: Unordered = Field(
        (),
        description="Columns by whose values fairness is measured, besides those that the contract marks as protected.",
    )
    seed: int = Field(7, ge=0, description="Of the resamples.")

    @field_validator("slices")
    @classmethod
    def _in_no_order(cls, slices: tuple[str, ...] | dict[str, str]) -> tuple[str, ...] | dict[str, str]:
        return dict(sorted(slices.items())) if isinstance(slices, dict) else tuple(sorted(set(slices)))

    @field_validator("crossed_slices")
    @classmethod
    def _pairs_in_no_order(cls, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))

    @model_validator(mode="after")
    def _crosses_what_is_named(self) -> "EvaluationSpec":
        if unknown := sorted({name for pair in self.crossed_slices for name in pair} - set(self.slices)):
            raise ValueError(
                f"crossed_slices: expected names from slices ({', '.join(self.slices) or 'none'}), found "
                f"{', '.join(unknown)}"
            )
        return self


_OF_METRICS = ("bar", "baseline", "champion", "guessing", "improvement", "slices")
"""First words of rule names that continue with the name of a metric."""


# Each file of the folder `rules` adds its fields.
class GatePolicy(RuleSettings, *(family.policy for family in reversed(families())), Spec):  # type: ignore[misc]  # Files of a folder.
    """The promotion policy: every rule whose severity is `refuse` must hold. The task gives the defaults of nulls."""

    approval: Literal["automatic", "manual"] = Field("automatic", description="Who makes a passing model the champion.")
    inconclusive: Literal["refuse", "approval"] = Field(
        "refuse",
        description="What happens if the test rows cannot show whether a rule is kept: the candidate is refused, or "
        "a person decides.",
    )
    approval_days: int = Field(7, ge=1, le=365, description="How many days an approval by a person is valid.")
    four_eyes: bool = Field(
        False, description="With `manual`: a person who trained or submitted a model may not approve it."
    )

    def resolved(self, profile: TaskProfile) -> "GatePolicy":
        """The policy with the task's defaults in place of nulls."""
        champion = self.champion.model_copy(update={"metric": self.champion.metric or profile.objective})
        defaults = {
            "must_beat_baseline": (profile.objective,),
            "leakage_alarm": dict(profile.leakage_alarm),
            "slices": dict(profile.slices),
        }
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        complete: GatePolicy = self.model_copy(update=missing | {"champion": champion})
        return complete

    def problems(self, task: Task) -> Iterator[str]:
        """Metrics and measures of the policy that the task does not have."""
        offered = NAMES[task.name]
        metrics_of = {
            "bars": self.bars,
            "must_beat_baseline": self.must_beat_baseline,
            "leakage_alarm": self.leakage_alarm,
            "champion.metric": [self.champion.metric] if self.champion.metric else (),
            "slices": self.slices,
            "rules": [
                rest for head, _, rest in (name.partition(" ") for name in self.rules) if head in _OF_METRICS and rest
            ],
            "regressions.metrics": self.regressions.metrics if self.regressions else (),
        }
        for column, bounds in self.fairness.items():
            yield from group_measure_problems(f"fairness.{column}", bounds, task.name)
        for key, metrics in metrics_of.items():
            for metric in sorted(set(metrics or ()) - set(offered)):
                yield f"{key}: the task {task.name} has the metrics {', '.join(offered)}; found {metric}"
