"""The baseline: metrics in which the candidate is better than a linear model."""

import math
from collections.abc import Iterator

from pydantic import Field, field_validator

from gatehouse.evaluation.gate import Evidence, Rule, family, figure
from gatehouse.metrics.catalogue import MetricName, metric_named
from gatehouse.store.identity import Spec

_AS_GOOD = 0.02
"""A linear candidate is as good as the baseline within this share of its value: early stopping ends its fit at another
epoch with other validation rows."""


class Baseline(Spec):
    """The comparison with the baseline."""

    must_beat_baseline: tuple[MetricName, ...] | None = Field(
        None,
        description="Metrics in which the candidate must be better than the baseline, or, if it is linear itself, as "
        "good; null for the objective.",
    )

    @field_validator("must_beat_baseline")
    @classmethod
    def _in_one_order(cls, metrics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The order of metrics has no meaning, so it must not change the identity of the policy."""
        return metrics if metrics is None else tuple(sorted(set(metrics)))


@family(Baseline)
def baseline(policy: Baseline, evidence: Evidence) -> Iterator[Rule]:
    """The candidate is strictly better than the baseline in each metric; a linear candidate is as good."""
    linear = evidence.model.configuration.get("model", {}).get("architecture") == "linear"
    for name in policy.must_beat_baseline or ():
        metric = metric_named(name)
        candidate, base = (values.get(name, math.nan) for values in (evidence.candidate, evidence.baseline))
        better = metric.is_better(candidate, base)
        expected = f"{'above' if metric.better == 'higher' else 'below'} the baseline's {figure(base)}"
        if linear:
            better = better or abs(candidate - base) <= _AS_GOOD * abs(base)
            expected += f", or within {_AS_GOOD:.0%} of it, as the candidate is linear too"
        yield Rule(f"baseline {name}", expected, figure(candidate), better)
