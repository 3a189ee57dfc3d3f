"""Slices: every judged slice of the test rows keeps a limit."""

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
    """Every judged slice keeps the limit of each metric."""
    for name, limit in sorted((policy.slices or {}).items()):
        metric, values = metric_named(name), evidence.slices.get(name, {})
        expected = f"{metric.name} of at {'least' if metric.better == 'higher' else 'most'} {limit:g}"
        if not values and evidence.slices_requested:
            yield Rule(f"slices {name}", "at least one judged slice", "0", False)
        broken = {slice_name: value for slice_name, value in values.items() if not metric.keeps(value, limit)}
        for slice_name, value in broken.items():
            yield Rule(f"slice {slice_name}", expected, figure(value), False)
        if values and not broken:
            worst = max(values, key=lambda slice_name: (metric.worse_by(values[slice_name], limit), slice_name))
            yield Rule(
                "slices",
                f"{expected} in each of {len(values)}",
                f"{figure(values[worst])} at worst, in {worst}",
                True,
            )
