"""The slices of an evaluation: the worst first, and those that nobody named."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.metrics.catalogue.found import metric_named
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.metrics.tasks.task import Task
from gatehouse.reports.format import Html
from gatehouse.reports.page import Report
from gatehouse.reports.row_charts import Dot, dot_chart

Json = Mapping[str, Any]


def by_loss(slices: Sequence[Json]) -> list[Json]:
    """Slices by the metric that the task is judged by, the worst first."""

    def loss(entry: Json) -> float:
        name, value = next(iter(entry["metrics"]["candidate"].items()))
        return -metric_named(name).worse_by(value, 0.0)

    return sorted(slices, key=lambda entry: (loss(entry), entry["name"]))


def add_found(drawn: Report, found: Sequence[Json], table: Html, metrics: Json, task: Task) -> None:
    """The worst slices of features, which no rule looks at."""
    metric = metric_named(judging_of(task).objective)
    in_groups = task.counted == "group"
    whole = " A ranking metric needs whole groups, so only features with one value in all rows of a group are searched."
    drawn.section(
        "Worst slices found",
        f"Of all values of one feature, and of two together, where {metric.title} is worse than on the other rows, "
        f"with 95 % confidence after Holm's correction for all that were tested.{whole if in_groups else ''} "
        "No rule of the gate looks at them.",
        f"{len(found):,}",
    )
    if not found:
        # Nothing that an evaluation records tells those apart that were made before rankings were searched.
        drawn.note("None was found, or none was looked for." if in_groups else "None was found.")
        return
    none = (float("nan"),) * 2
    given = [entry["intervals"]["candidate"] if metric.has_interval else {} for entry in found]
    ends = [each.get(metric.name, none) for each in given]
    dots = [
        Dot(entry["name"], entry["metrics"]["candidate"][metric.name], low, high)
        for entry, (low, high) in zip(found, ends, strict=True)
    ]
    drawn.figure(
        dot_chart(dots, metric.title, [("all rows", metrics["candidate"][metric.name])]),
        f"{metric.title} of the worst slices with its 95 % interval.",
    )
    drawn.element(table)
