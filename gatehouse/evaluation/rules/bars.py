"""Bars: bounds that the candidate's own metrics keep."""

import math
from collections.abc import Iterator
from typing import Any

from pydantic import Field, model_validator

from gatehouse.evaluation.gate import Evidence, Rule, family, figure
from gatehouse.metrics.catalogue import MetricName
from gatehouse.store.identity import Spec


class Bar(Spec):
    """A bound that the candidate's own metric must keep; a value on the bound keeps it."""

    min: float | None = Field(None, allow_inf_nan=False, description="Least value.")
    max: float | None = Field(None, allow_inf_nan=False, description="Greatest value.")

    @model_validator(mode="before")
    @classmethod
    def _by_side(cls, bounds: Any) -> Any:
        if isinstance(bounds, (dict, Bar)):
            return bounds
        raise ValueError(f"expected min, max or both, as {{min: 0.7}}, found {bounds!r}")

    @model_validator(mode="after")
    def _bounds_something(self) -> "Bar":
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both, found neither")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min <= max, found min {self.min:g} and max {self.max:g}")
        return self


class Bars(Spec):
    """Bounds by metric."""

    bars: dict[MetricName, Bar] = Field(default_factory=dict, description="Bounds by metric.")


@family(Bars, "bar")
def bars(policy: Bars, evidence: Evidence) -> Iterator[Rule]:
    """The candidate's value of each metric keeps its bounds."""
    for name, bar in sorted(policy.bars.items()):
        value = evidence.candidate.get(name, math.nan)
        if bar.min is not None:
            yield Rule(f"bar {name}", f"at least {bar.min:g}", figure(value), value >= bar.min)
        if bar.max is not None:
            yield Rule(f"bar {name}", f"at most {bar.max:g}", figure(value), value <= bar.max)
