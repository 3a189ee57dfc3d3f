"""The baseline: metrics in which the candidate is better than a linear model."""

import math
from collections.abc import Iterator

from pydantic import Field, field_validator

from gatehouse.components.artifacts.identity import Spec
from gatehouse.components.evaluation.gate import Evidence, Rule, family, figure
from gatehouse.components.metrics.catalogue.found import MetricName, metric_named


class Baseline(Spec):
    """What the baseline is beaten in."""

    must_beat_baseline: tuple[MetricName, ...] | None = Field(
        None, description="Metrics in which the candidate must be better than the baseline; null for the objective."
    )

    @field_validator("must_beat_baseline")
    @classmethod
    def _in_one_order(cls, metrics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The order of metrics has no meaning, so that it must not change what identifies the policy."""
        return metrics if metrics is None else tuple(sorted(set(metrics)))


@family(Baseline)
def baseline(policy: Baseline, evidence: Evidence) -> Iterator[Rule]:
    """That the candidate is strictly better than the baseline in each metric."""
    for name in policy.must_beat_baseline or ():
        metric = metric_named(name)
        ours, theirs = (values.get(name, math.nan) for values in (evidence.candidate, evidence.baseline))
        wanted = f"{'above' if metric.better == 'higher' else 'below'} the baseline's {figure(theirs)}"
        yield Rule(f"baseline {name}", wanted, figure(ours), metric.is_better(ours, theirs))
