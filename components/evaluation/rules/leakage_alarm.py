"""The leakage alarm: metrics that are too good to be true."""

import math
from collections.abc import Iterator

from pydantic import Field, FiniteFloat

from gatehouse.components.artifacts.identity import Spec
from gatehouse.components.evaluation.gate import Evidence, Rule, family
from gatehouse.components.metrics.catalogue.found import MetricName, metric_named


class LeakageAlarm(Spec):
    """Where the alarm rings, by metric."""

    leakage_alarm: dict[MetricName, FiniteFloat] | None = Field(
        None,
        description="By metric, the value that is too good to be true: a better model is refused, because it "
        "probably uses a "
        "leak.",
    )


@family(LeakageAlarm)
def leakage_alarm(policy: LeakageAlarm, evidence: Evidence) -> Iterator[Rule]:
    """That no metric of the candidate is better than can be true."""
    for name, limit in sorted((policy.leakage_alarm or {}).items()):
        metric, value = metric_named(name), evidence.candidate.get(name, math.nan)
        expected = f"{metric.name} of at {'most' if metric.better == 'higher' else 'least'} {limit:g}"
        yield Rule(f"leakage alarm {name}", expected, metric.text(value), metric.worse_by(value, limit) >= 0)
