"""Runs that MLflow tracks: search, comparison, and their curves on the same axes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from gatehouse.api.records import Selection, is_number, select
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import URI
from gatehouse.tracking.runs import SYSTEM, Observed, RunReader, TrackedRun

MOST_RUNS = 8
_TAGS = ("gatehouse.", "mlflow.source.git.commit")
_MOST_POINTS = 600


def uri_of(store: ArtifactStore) -> str:
    """The URI of the MLflow that tracks a store's runs. Raises ConfigurationError if there is none, or none yet."""
    tracking = tracking_of(store)
    if tracking is None:
        raise ConfigurationError(
            f"--uri: the store {store.address} is remote and {URI} is not set: expected one of them."
        )
    if tracking.embedded and not (tracking.embedded / "mlflow.db").is_file():
        raise ConfigurationError(f"The store {store.address} has no MLflow database yet. `gatehouse run` writes one.")
    return tracking.uri


def reader(store: ArtifactStore | None, uri: str = "", experiment: str = "") -> RunReader:
    """A reader of runs: at the given URI, else where the store's runs are tracked."""
    file = uri.removeprefix("sqlite:///").partition("?")[0]
    if uri.startswith("sqlite:///") and not Path(file).is_file():
        raise ConfigurationError(f"--uri: expected a database of MLflow at {file}, found none.")
    return RunReader(uri if store is None else uri_of(store), experiment)


def search(runs: RunReader, where: Sequence[str] = (), sort: str = "", most: int = 0) -> Selection[TrackedRun]:
    """The runs that meet all conditions on their fields, parameters, metrics and tags; by default the newest first.

    Example:
        >>> search(reader(store), ["learning_rate=1e-4..1e-3"], sort="log_loss")  # doctest: +SKIP
    """
    return select(runs.runs(limit=None if where or sort else most or None), where, sort, most, _values)


def _values(run: TrackedRun) -> dict[str, Any]:
    times = {name: datetime.fromtimestamp(at, UTC) for name in ("started", "ended") if (at := getattr(run, name))}
    values = {name: getattr(run, name) for name in ("id", "name", "experiment", "status", "user", "duration")} | times
    groups: dict[str, dict[str, Any]] = {"params": run.params, "metrics": {**run.metrics}, "tags": run.tags}
    return values | {f"{group}.{name}": value for group, named in groups.items() for name, value in named.items()}


@dataclass(frozen=True)
class Curve:
    """The values of one metric in one run; `label` tells the runs apart."""

    run: str
    label: str
    metric: str
    points: tuple[Observed, ...]


@dataclass(frozen=True)
class Comparison:
    """Several runs: parameters and tags that `differ` or are the `same`, their last metrics, and their curves.

    Equal numbers do not differ, however they are written. Tags are those about how a run was made.
    """

    runs: tuple[TrackedRun, ...]
    labels: tuple[str, ...]
    differs: dict[str, list[str | None]]
    same: dict[str, str | None]
    metrics: dict[str, list[float | None]]
    curves: tuple[Curve, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON, in which numbers that JSON lacks are null."""
        return vars(self) | {"runs": [run.to_json() for run in self.runs]}


def compare(runs: RunReader, names: Sequence[str], metrics: Sequence[str] = ()) -> Comparison:
    """Compare runs by ids, their beginnings, or names; the curves are of these metrics, or all but the machine's.

    Raises ConfigurationError if there is no such run, more than eight are named, or none of them has the metrics.
    """
    if len(names) > MOST_RUNS:
        raise ConfigurationError(
            f"expected at most {MOST_RUNS} runs, which a reader can tell apart, found {len(names)}."
        )
    tracked = [runs.find(name) for name in names]
    titles = [run.name or run.id[:8] for run in tracked]
    labels = [
        title if titles.count(title) == 1 else f"{title} {run.id[:8]}"
        for title, run in zip(titles, tracked, strict=True)
    ]
    facts = [
        {"experiment": run.experiment, "status": run.status}
        | run.params
        | {name: value for name, value in run.tags.items() if name.startswith(_TAGS)}
        for run in tracked
    ]
    differs, same = {}, {}
    for name in sorted(
        {name for fact in facts for name in fact}, key=lambda name: (name.startswith("gatehouse."), name)
    ):
        values = [fact.get(name) for fact in facts]
        if len({float(value) if value and is_number(value) else value for value in values}) > 1:
            differs[name] = values
        else:
            same[name] = values[0]
    known = sorted({name for run in tracked for name in run.metrics}, key=lambda name: (name.startswith(SYSTEM), name))
    if unknown := [name for name in metrics if name not in known]:
        raise ConfigurationError(f"metric: expected some of {', '.join(known)}, found {', '.join(unknown)}.")
    drawn = metrics or [name for name in known if not name.startswith(SYSTEM)]
    curves = []
    for run, label in zip(tracked, labels, strict=True):
        history = runs.history(run, [name for name in drawn if name in run.metrics])
        curves += [Curve(run.id, label, name, tuple(points)) for name, points in history.items()]
    values_of = {name: [run.metrics.get(name) for run in tracked] for name in known}
    return Comparison(tuple(tracked), tuple(labels), differs, same, values_of, tuple(curves))


def buckets(points: Sequence[Observed], count: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """Mean step and mean value of at most `count` groups of neighbouring points; a group with NaN is NaN."""
    edges = [round(place * len(points) / count) for place in range(count + 1)] if len(points) > count else []
    groups = [points[low:high] for low, high in pairwise(edges)] if edges else [[point] for point in points]
    return [(fmean(p.step for p in group), fmean(p.value for p in group)) for group in groups]


def curves_page(compared: Comparison) -> str:
    """The page of a comparison: each metric of all runs on the same axes, then what differs in how they were made."""
    from gatehouse.reports.charts import Axis, Series, line_chart
    from gatehouse.reports.page import render

    lines: dict[str, list[Series]] = {}
    for curve in compared.curves:
        points = [point for point in buckets(curve.points) if math.isfinite(point[1])]
        if len(points) > 1:  # A run has the same look on all axes.
            style = f"s{compared.labels.index(curve.label)}"
            lines.setdefault(curve.metric, []).append(Series(curve.label, points, style=style))
    charts = {}
    for metric, series in lines.items():
        steps = Axis.of("step", [point[0] for line in series for point in line.points], whole=True)
        charts[metric] = line_chart(series, steps, metric)
    title = f"Curves of {counted(len(compared.runs), 'run')}"
    return render("curves.html", title, ", ".join(compared.labels), compared=compared, charts=charts)
