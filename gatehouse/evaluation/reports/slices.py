"""The order of slices on the page of an evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.metrics.catalogue import metric_named

Json = Mapping[str, Any]


def by_loss(slices: Sequence[Json]) -> list[Json]:
    """Slices by the metric that the task is judged by, the worst first."""

    def loss(entry: Json) -> float:
        name, value = next(iter(entry["metrics"]["candidate"].items()))
        return -metric_named(name).worse_by(value, 0.0)

    return sorted(slices, key=lambda entry: (loss(entry), entry["name"]))
