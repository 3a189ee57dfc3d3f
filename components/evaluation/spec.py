"""What is measured on a candidate, and what the gate demands of it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Metric = Literal["roc_auc", "average_precision", "log_loss", "brier", "calibration_error"]
LOWER_IS_BETTER: frozenset[str] = frozenset({"log_loss", "brier", "calibration_error"})


class EvaluationSpec(BaseModel):
    """What is measured on the test part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slices: tuple[str, ...] = Field((), description="Columns by whose values metrics are given too.")
    min_slice_rows: int = Field(500, ge=1, description="Smaller slices are counted, not judged.")
    calibration_bins: int = Field(20, ge=2, le=200)
    bootstrap_samples: int = Field(500, ge=20, le=10_000, description="Paired resamples of the champion comparison.")
    seed: int = Field(7, ge=0)
    boosted_trees: bool = Field(True, description="Show gradient-boosted trees beside the candidate; not judged by.")


class Bar(BaseModel):
    """A bound that the candidate's own metric must keep; a value on the bound keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: float | None = Field(None, allow_inf_nan=False)
    max: float | None = Field(None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _bounds_something(self) -> "Bar":
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both, found neither")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min <= max, found min {self.min:g} and max {self.max:g}")
        return self


class ChampionRule(BaseModel):
    """How the candidate must compare with the champion on the same test rows.

    Two conditions, both in the direction in which the metric is better. The candidate must not be inferior: the bound
    of the paired bootstrap interval that is worst for it is not worse than the champion by more than `tolerance`. And
    it must be better by `min_improvement` on the test rows themselves; with 0 an equal model passes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Metric = "log_loss"
    tolerance: float = Field(0.002, ge=0.0, allow_inf_nan=False)
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Of the one-sided bound.")
    min_improvement: float | None = Field(
        None, ge=0.0, allow_inf_nan=False, description="Least improvement; null where not being inferior is enough."
    )


class GatePolicy(BaseModel):
    """The promotion policy: every rule must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bars: dict[Metric, Bar] = Field(default_factory=dict)
    must_beat_baseline: tuple[Metric, ...] = Field(
        ("log_loss",), description="Metrics in which the candidate must be better than logistic regression."
    )
    leakage_alarm: float = Field(0.80, gt=0.5, le=1.0, description="ROC AUC above which a model is taken for leaky.")
    champion: ChampionRule = ChampionRule()
    slice_min_roc_auc: float = Field(0.5, ge=0.0, le=1.0, description="Least ROC AUC of any judged slice.")
    approval: Literal["automatic", "manual"] = Field("automatic", description="Who makes a passing model the champion.")
