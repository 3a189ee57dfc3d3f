"""Learning curves of runs: sparklines for the terminal, and an HTML report with the differences and charts."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from gatehouse.reports.charts import Series, line_chart
from gatehouse.reports.format import number
from gatehouse.reports.page import Cell, render
from gatehouse.tracking.query import number_of
from gatehouse.tracking.runs import SYSTEM, Observed, TrackedRun

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_POINTS = 600
_SHOWN_TAGS = ("gatehouse.", "mlflow.source.git.commit")
Histories = Mapping[str, Mapping[str, Sequence[Observed]]]


def spark(points: Sequence[Observed], width: int = 24) -> str:
    """A metric's values in one line of block characters; non-finite values are gaps, and an empty series is a dot."""
    values = [mean for mean, _ in _buckets([(float(at), each.value) for at, each in enumerate(points)], width)]
    finite = [value for value in values if math.isfinite(value)]
    if len(values) < 2 or not finite:
        return ""
    # Halved, so that the difference of the largest and the smallest number does not overflow.
    low, high = min(finite) / 2, max(finite) / 2
    span = (high - low) or 1.0
    return "".join(
        _BLOCKS[round((value / 2 - low) / span * (len(_BLOCKS) - 1))] if math.isfinite(value) else " "
        for value in values
    )


def _buckets(points: Sequence[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    """Mean value and mean position of at most `count` groups of neighbouring points; a group with NaN is NaN."""
    if len(points) <= count:
        return [(value, place) for place, value in points]
    edges = [round(index * len(points) / count) for index in range(count + 1)]
    parts = [points[low:high] for low, high in pairwise(edges)]
    return [
        (sum(value for _, value in part) / len(part), sum(place for place, _ in part) / len(part)) for part in parts
    ]


def differing(runs: Sequence[TrackedRun]) -> tuple[dict[str, list[str | None]], dict[str, list[str | None]]]:
    """Parameters and tags of several runs: those that differ, and those that are equal, by name.

    Equal numbers do not differ, however they are written. Only tags about how a run was made are used.
    """
    facts = [_facts(run) for run in runs]
    names = list(dict.fromkeys(name for each in facts for name in each))
    different: dict[str, list[str | None]] = {}
    same: dict[str, list[str | None]] = {}
    for name in sorted(names, key=lambda name: (name.startswith("gatehouse."), name)):
        values = [each.get(name) for each in facts]
        first, *others = [number_of(value) if number_of(value) is not None else value for value in values]
        (same if all(other == first for other in others) else different)[name] = values
    return different, same


def _facts(run: TrackedRun) -> dict[str, str]:
    own = {"experiment": run.experiment, "status": run.status}
    return own | run.params | {name: value for name, value in run.tags.items() if name.startswith(_SHOWN_TAGS)}


def measured(runs: Sequence[TrackedRun]) -> dict[str, list[float | None]]:
    """The last value of every metric of several runs, by name; machine metrics come last."""
    names = sorted({name for run in runs for name in run.metrics}, key=lambda name: (name.startswith(SYSTEM), name))
    return {name: [run.metrics.get(name) for run in runs] for name in names}


def report(runs: Sequence[TrackedRun], histories: Histories) -> str:
    """The page: differences, metrics, learning curves, and common settings.

    Args:
        runs: One run or several; the beginnings of their ids make their names unique.
        histories: By run id, all values of each metric to draw.
    """
    labels, numbers = labels_of(runs), measured(runs)
    different, same = differing(runs)
    charts = {
        name: _chart(name, runs, labels, histories)
        for name in numbers
        if sum(len(histories.get(run.id, {}).get(name, ())) for run in runs) > len(runs)
    }
    return render(
        "runs.html",
        f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs compared",
        ", ".join(dict.fromkeys(run.experiment for run in runs)),
        labels=labels,
        different=[[name, *map(brief, values)] for name, values in different.items()],
        metrics=[[name, *values] for name, values in numbers.items() if not name.startswith(SYSTEM)],
        curves=[(chart, name) for name, chart in charts.items() if not name.startswith(SYSTEM)],
        machine=[(chart, name) for name, chart in charts.items() if name.startswith(SYSTEM)],
        same=[[name, Cell(values[0], "soft")] for name, values in same.items()],
    )


def brief(value: str | float | None) -> str:
    """A value for people: a dash for none, and the first six digits of a long number."""
    if isinstance(value, str):
        return f"{float(value):.6g}" if len(value) > 12 and "." in value and number_of(value) is not None else value
    return number(value)


def labels_of(runs: Sequence[TrackedRun]) -> list[str]:
    """A name for each run. Runs with the same name get the beginning of their id too."""
    names = [run.name or run.id[:8] for run in runs]
    return [name if names.count(name) == 1 else f"{name} {run.id[:8]}" for name, run in zip(names, runs, strict=True)]


def _chart(name: str, runs: Sequence[TrackedRun], labels: Sequence[str], histories: Histories) -> Markup:
    lines = []
    for run, label in zip(runs, labels, strict=True):
        observed = histories.get(run.id, {}).get(name, ())
        points = [
            (place, value) for value, place in _buckets([(each.step, each.value) for each in observed], _MOST_POINTS)
        ]
        lines.append(Series(label, points, dots=points if len(points) <= 20 else ()))
    return line_chart(lines, "second" if name.startswith(SYSTEM) else "step", name.removeprefix(SYSTEM))
