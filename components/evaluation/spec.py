"""What is measured on a candidate, and what the gate demands of it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gatehouse.components.artifacts.identity import Spec
from gatehouse.components.metrics.catalogue.names import MetricName
from gatehouse.components.tasks.judging import Judging
from gatehouse.components.tasks.task import Task

if TYPE_CHECKING:
    from gatehouse.components.metrics.catalogue.metric import Metric


class EvaluationSpec(Spec):
    """What is measured on the test part."""

    slices: tuple[str, ...] = Field((), description="Columns by whose values metrics are given too.")
    min_slice_rows: int = Field(
        500, ge=1, description="Slices of fewer rows, or of fewer groups of a ranking, are counted and not judged."
    )
    calibration_bins: int = Field(20, ge=2, le=200)
    bootstrap_samples: int = Field(500, ge=20, le=10_000, description="Paired resamples of the champion comparison.")
    seed: int = Field(7, ge=0)
    boosted_trees: bool = Field(True, description="Show gradient-boosted trees beside the candidate; not judged by.")


_SIDES = ("min", "max")


class Bar(Spec):
    """A bound that the candidate's own metric must keep; a value on the bound keeps it."""

    min: float | None = Field(None, allow_inf_nan=False)
    max: float | None = Field(None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _bounds_something(self) -> "Bar":
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both, found neither")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min <= max, found min {self.min:g} and max {self.max:g}")
        return self


class ChampionRule(Spec):
    """How the candidate must compare with the champion on the same test rows.

    Two conditions, both in the direction in which the metric is better. The candidate must not be inferior: the bound
    of the paired bootstrap interval that is worst for it is not worse than the champion by more than is tolerated. And
    it must be better by `min_improvement` on the test rows themselves; with 0 an equal model passes.
    """

    format_version: ClassVar[int] = 2

    metric: MetricName | None = Field(None, description="What is compared; null for the task's objective.")
    tolerance: float | None = Field(
        None, ge=0.0, allow_inf_nan=False, description="In the metric's own unit; null for `relative_tolerance`."
    )
    relative_tolerance: float = Field(
        0.005, ge=0.0, allow_inf_nan=False, description="As a share of the champion's value."
    )
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Of the one-sided bound.")
    min_improvement: float | None = Field(
        None, ge=0.0, allow_inf_nan=False, description="Least improvement; null where not being inferior is enough."
    )

    @model_validator(mode="after")
    def _one_tolerance(self) -> "ChampionRule":
        usual = type(self).model_fields["relative_tolerance"].default
        if self.tolerance is not None and self.relative_tolerance != usual:
            raise ValueError("expected tolerance or relative_tolerance, found both")
        return self

    def tolerated(self, champion: float) -> float:
        """By how much a candidate may be worse than a champion of this value, in the metric's own unit."""
        return self.relative_tolerance * abs(champion) if self.tolerance is None else self.tolerance


class GatePolicy(Spec):
    """The promotion policy: every rule must hold. Metrics are those of the task; so are the values of what is null."""

    format_version: ClassVar[int] = 2

    bars: dict[MetricName, Bar] = Field(default_factory=dict)
    must_beat_baseline: tuple[MetricName, ...] | None = Field(
        None, description="Metrics in which the candidate must be better than the baseline; null for the objective."
    )
    leakage_alarm: dict[MetricName, float] | None = Field(
        None, description="Values of metrics such that a model that is better is taken for leaky."
    )
    champion: ChampionRule = ChampionRule()
    slices: dict[MetricName, float] | None = Field(
        None, description="Values of metrics that every judged slice must reach."
    )
    warnings: Literal["allow", "refuse"] = Field(
        "allow", description="Whether a candidate passes whose data was checked with warnings; they are on its record."
    )
    approval: Literal["automatic", "manual"] = Field("automatic", description="Who makes a passing model the champion.")

    @field_validator("must_beat_baseline")
    @classmethod
    def _in_one_order(cls, metrics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The order of metrics has no meaning, so that it must not change what identifies the policy."""
        return metrics if metrics is None else tuple(sorted(set(metrics)))

    def resolved(self, judging: Judging) -> "GatePolicy":
        """The policy with the task's values in place of what is null."""
        champion = self.champion.model_copy(update={"metric": self.champion.metric or judging.objective})
        given = {
            "must_beat_baseline": (judging.objective,),
            "leakage_alarm": dict(judging.leakage_alarm),
            "slices": dict(judging.slices),
        }
        missing = {name: value for name, value in given.items() if getattr(self, name) is None}
        return self.model_copy(update=missing | {"champion": champion})

    def problems(self, task: Task) -> Iterator[str]:
        """What this policy asks of metrics that the task does not have; a metric's file says which tasks it is for."""
        from gatehouse.components.metrics.catalogue.found import metrics_for

        offered = metrics_for(task.name)
        named = {
            "bars": self.bars,
            "must_beat_baseline": self.must_beat_baseline,
            "leakage_alarm": self.leakage_alarm,
            "champion.metric": [self.champion.metric] if self.champion.metric else (),
            "slices": self.slices,
        }
        for key, metrics in named.items():
            for metric in sorted(set(metrics or ()) - set(offered)):
                yield f"{key}: the task {task.name} has the metrics {', '.join(offered)}; found {metric}"
        yield from self._unreachable(offered)

    def _unreachable(self, offered: "Mapping[str, Metric]") -> Iterator[str]:
        """Bounds that every model keeps or that none can, as the metric has other values or another direction."""
        bars = self.bars.items()
        bounds = [(f"bars.{name}.{side}", name, getattr(bar, side)) for name, bar in bars for side in _SIDES]
        bounds += [(f"leakage_alarm.{name}", name, value) for name, value in (self.leakage_alarm or {}).items()]
        bounds += [(f"slices.{name}", name, value) for name, value in (self.slices or {}).items()]
        for key, name, value in bounds:
            if name in offered and value is not None:
                words, perfect = ("at most", 1) if offered[name].better == "higher" else ("at least", 0)
                if value > 1 if perfect else value < 0:
                    yield f"{key}: expected {words} {perfect}, the {name} of a perfect model, found {value:g}"
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
