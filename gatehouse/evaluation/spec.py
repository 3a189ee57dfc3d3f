"""What is measured on a candidate, and what the gate demands of it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from gatehouse.evaluation.gate import Termed, families
from gatehouse.evaluation.group_measures import problems_of as group_measure_problems
from gatehouse.metrics.judging import Judging
from gatehouse.metrics.tasks import Task
from gatehouse.store.identity import Spec, Unordered

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Metric


class EvaluationSpec(Spec):
    """What is measured on the test part."""

    slices: tuple[str, ...] | dict[str, str] = Field(
        (),
        description="Columns for whose values metrics are also computed; or SQL expressions over the test "
        "rows, by name.",
    )
    crossed_slices: tuple[tuple[str, str], ...] = Field(
        (), description="Pairs of names from `slices`: metrics are computed for each combination of their values."
    )
    min_slice_rows: int = Field(
        500, ge=1, description="Slices with fewer rows (for a ranking, fewer groups) are shown, but not judged."
    )
    calibration_bins: int = Field(20, ge=2, le=200)
    bootstrap_samples: int = Field(
        500, ge=20, le=10_000, description="Number of bootstrap resamples of the test rows, for confidence intervals."
    )
    resample_by: str = Field(
        "",
        description="What the bootstrap draws as a whole, because its rows are not independent: a column, or the "
        "`day` or "
        "`week` of the decision; empty for the groups or entities that the split keeps together, else single rows (for "
        "a ranking, groups).",
    )
    protected: Unordered = Field(
        (),
        description="Columns by whose values fairness is measured, besides those that the contract marks as protected.",
    )
    seed: int = Field(7, ge=0)

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


_SIDES = ("min", "max")
_OF_METRICS = ("bar", "baseline", "champion", "guessing", "improvement", "slices")
"""What names of rules begin with that go on with the name of a metric."""


# Each file of the folder `rules` adds its piece.
class GatePolicy(Termed, *(family.policy for family in reversed(families())), Spec):  # type: ignore[misc]  # Files of a folder.
    """The promotion policy: every rule must hold that does not only warn.

    Metrics are those of the task; so are the values of what is null.
    """

    approval: Literal["automatic", "manual"] = Field("automatic", description="Who makes a passing model the champion.")
    inconclusive: Literal["refuse", "approval"] = Field(
        "refuse",
        description="What happens if the test rows cannot show whether a rule is kept: the candidate is refused, or "
        "a person "
        "decides.",
    )
    approval_days: int = Field(7, ge=1, le=365, description="How many days an approval by a person is valid.")
    four_eyes: bool = Field(
        False, description="With `manual`: a person who trained or submitted a model may not approve it."
    )

    def resolved(self, judging: Judging) -> "GatePolicy":
        """The policy with the task's values in place of what is null."""
        champion = self.champion.model_copy(update={"metric": self.champion.metric or judging.objective})
        given = {
            "must_beat_baseline": (judging.objective,),
            "leakage_alarm": dict(judging.leakage_alarm),
            "slices": dict(judging.slices),
        }
        missing = {name: value for name, value in given.items() if getattr(self, name) is None}
        complete: GatePolicy = self.model_copy(update=missing | {"champion": champion})
        return complete

    def problems(self, task: Task) -> Iterator[str]:
        """What this policy asks of metrics that the task does not have; a metric's file says which tasks it is for."""
        from gatehouse.metrics.catalogue import metrics_for

        offered = metrics_for(task.name)
        named = {
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
        for key, metrics in named.items():
            for metric in sorted(set(metrics or ()) - set(offered)):
                yield f"{key}: the task {task.name} has the metrics {', '.join(offered)}; found {metric}"
        yield from self._unreachable(offered, task.name)

    def refusing(self) -> tuple[str, ...]:
        """Names of the rules that this policy, once it is resolved, asks for and that can refuse a candidate."""
        off = {"improvement": self.champion.min_improvement is None, "warnings": self.warnings == "allow"}
        found = []
        for each in families():
            asked = [value for name in each.policy.model_fields if _asks(value := getattr(self, name))]
            # A rule for each metric or column has its name after that of the family.
            single = [f" {key}" for value in asked if isinstance(value, (dict, tuple)) for key in value]
            heads = [head for head in each.names if asked and not off.get(head)]
            found += [f"{head}{one}" for head in heads for one in (single or [""])]
        return tuple(name for name in found if self.terms_of(name).severity == "refuse")

    def _unreachable(self, offered: "Mapping[str, Metric]", task: str) -> Iterator[str]:
        """Bounds that every model keeps or that none can, as the metric has other values or another direction."""
        bars = self.bars.items()
        bounds = [(f"bars.{name}.{side}", name, getattr(bar, side)) for name, bar in bars for side in _SIDES]
        bounds += [(f"leakage_alarm.{name}", name, value) for name, value in (self.leakage_alarm or {}).items()]
        bounds += [(f"slices.{name}", name, value) for name, value in (self.slices or {}).items()]
        for key, name, value in bounds:
            if name in offered and value is not None:
                words, perfect = ("at most", 1) if offered[name].better == "higher" else ("at least", 0)
                chance = offered[name].chance.get(task) if key.startswith("leakage_alarm.") else None
                if value > 1 if perfect else value < 0:
                    yield f"{key}: expected {words} {perfect}, the {name} of a perfect model, found {value:g}"
                elif chance is not None and value <= chance:
                    yield f"{key}: expected more than {chance:g}, the {name} of a model that guesses, found {value:g}"
        for name, bar in bars:
            if name not in offered:
                continue
            better = offered[name].better
            wanted, other = _SIDES if better == "higher" else _SIDES[::-1]
            bound, alarm = getattr(bar, wanted), (self.leakage_alarm or {}).get(name)
            if bound is None:
                yield f"bars.{name}: {better} values of {name} are better: expected {wanted}, found only {other}"
            elif alarm is not None and (alarm < bound if wanted == "min" else alarm > bound):
                yield (
                    f"leakage_alarm.{name}: expected a better value than the bar of {bound:g}, as no model is approved "
                    f"that keeps the bar and raises no alarm; found {alarm:g}"
                )


def _asks(value: Any) -> bool:
    """Whether a value of the policy asks for anything: a rule that is off is null, false or empty."""
    if isinstance(value, Spec):
        return any(_asks(getattr(value, name)) for name in type(value).model_fields)
    return value not in (None, False, {}, ())
