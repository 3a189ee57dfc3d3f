"""Slices: a value that every judged slice of the test rows reaches."""

from collections.abc import Iterator

from pydantic import Field, FiniteFloat

from gatehouse.evaluation.gate import Evidence, Rule, family, figure
from gatehouse.metrics.catalogue import MetricName, metric_named
from gatehouse.store.identity import Spec


class Slices(Spec):
    """Limits of slices, by metric."""

    slices: dict[MetricName, FiniteFloat] | None = Field(
        None, description="Values of metrics that every judged slice must reach."
    )


@family(Slices, "slices", "slice")
def slices(policy: Slices, evidence: Evidence) -> Iterator[Rule]:
    """That every judged slice reaches the limit of each metric."""
    for name, limit in sorted((policy.slices or {}).items()):
        metric, values = metric_named(name), evidence.slices.get(name, {})
        wanted = f"{metric.name} of at {'least' if metric.better == 'higher' else 'most'} {limit:g}"
        if not values and evidence.slices_asked:
            yield Rule(f"slices {name}", "at least one judged slice", "0", False)
        broken = {each: value for each, value in values.items() if not metric.keeps(value, limit)}
        for each, value in broken.items():
            yield Rule(f"slice {each}", wanted, figure(value), False)
        if values and not broken:
            worst = max(values, key=lambda each: (metric.worse_by(values[each], limit), each))
            yield Rule(
                "slices",
                f"{wanted} in each of {len(values)}",
                f"{figure(values[worst])} at worst, in {worst}",
                True,
            )
