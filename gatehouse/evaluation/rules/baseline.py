"""The baseline: metrics in which the candidate is better than a linear model."""

import math
from collections.abc import Iterator

from pydantic import Field, field_validator

from gatehouse.evaluation.gate import Evidence, Rule, family, figure
from gatehouse.metrics.catalogue import MetricName, metric_named
from gatehouse.store.identity import Spec

_AS_GOOD = 0.02
"""By how much less a linear candidate may be as good as the baseline, as a share of its value: its fit ends where
the rows of validation are told best, and with other rows it would have been another epoch."""


class Baseline(Spec):
    """What the baseline is beaten in."""

    must_beat_baseline: tuple[MetricName, ...] | None = Field(
        None,
        description="Metrics in which the candidate must be better than the baseline, or, if it is linear itself, as "
        "good; null for the objective.",
    )

    @field_validator("must_beat_baseline")
    @classmethod
    def _in_one_order(cls, metrics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The order of metrics has no meaning, so that it must not change what identifies the policy."""
        return metrics if metrics is None else tuple(sorted(set(metrics)))


@family(Baseline)
def baseline(policy: Baseline, evidence: Evidence) -> Iterator[Rule]:
    """That the candidate is strictly better than the baseline in each metric; one that is linear itself, as good."""
    linear = evidence.model.configuration.get("model", {}).get("architecture") == "linear"
    for name in policy.must_beat_baseline or ():
        metric = metric_named(name)
        ours, theirs = (values.get(name, math.nan) for values in (evidence.candidate, evidence.baseline))
        better = metric.is_better(ours, theirs)
        wanted = f"{'above' if metric.better == 'higher' else 'below'} the baseline's {figure(theirs)}"
        if linear:
            better = better or abs(ours - theirs) <= _AS_GOOD * abs(theirs)
            wanted += f", or within {_AS_GOOD:.0%} of it, as the candidate is linear too"
        yield Rule(f"baseline {name}", wanted, figure(ours), better)
