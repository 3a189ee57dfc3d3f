"""The leakage alarm: metrics that are too good to be true."""

import math
from collections.abc import Iterator

from pydantic import Field, FiniteFloat

from gatehouse.data.splitting.spec import SEEN_BEFORE
from gatehouse.evaluation.gate import Evidence, Rule, family, figure
from gatehouse.metrics.catalogue import MetricName, metric_named
from gatehouse.store.identity import Spec


class LeakageAlarm(Spec):
    """The values of the alarm, by metric."""

    leakage_alarm: dict[MetricName, FiniteFloat] | None = Field(
        None,
        description="By metric, the value that is too good to be true: a better model is refused, because it probably "
        "uses a leak.",
    )


@family(LeakageAlarm)
def leakage_alarm(policy: LeakageAlarm, evidence: Evidence) -> Iterator[Rule]:
    """No metric of the candidate is too good to be true."""
    # Warnings of the split which say that a model may know rows of test.
    warned = [text for check in evidence.data_checks if check.name == "split checks" for text in check.warnings]
    seen_before = [text for text in warned if text.startswith(tuple(f"{name}:" for name in SEEN_BEFORE))]
    for name, limit in sorted((policy.leakage_alarm or {}).items()):
        metric, value = metric_named(name), evidence.candidate.get(name, math.nan)
        expected = f"{metric.name} of at {'most' if metric.better == 'higher' else 'least'} {limit:g}"
        holds = metric.worse_by(value, limit) >= 0
        reasons = [figure(value), *([] if holds else seen_before)]
        yield Rule(f"leakage alarm {name}", expected, "; ".join(reasons), holds)
