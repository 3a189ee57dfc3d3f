"""`gatehouse runs`: searches and compares the runs that MLflow tracks, and draws their curves; `gatehouse mlflow`."""

import math
import os
import sys
import webbrowser
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.api import runs as api
from gatehouse.api.records import Selection, is_number
from gatehouse.cli.output import JsonOption, SortOption, StoreOption, WhereOption, print_json, show, written
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import open_store
from gatehouse.store.objects.remote import cache_folder
from gatehouse.tracking.place import URI
from gatehouse.tracking.runs import SYSTEM, Observed, RunReader, TrackedRun

app = typer.Typer(no_args_is_help=True)
UriOption = Annotated[str, typer.Option(help=f"MLflow's tracking URI; default: {URI}, else the store's database.")]
MetricOption = Annotated[list[str] | None, typer.Option(help="Only this metric; may be given several times.")]
RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs, their beginnings, or names.")]
_BLOCKS, _COLUMNS = "▁▂▃▄▅▆▇█", 3


@app.command("list")
def list_runs(
    experiment: Annotated[str, typer.Option(help="Only runs of this experiment of MLflow's.")] = "",
    where: WhereOption = None,
    sort: SortOption = "",
    metric: MetricOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Most runs shown.")] = 30,
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """List runs: the newest, each below the run that it is part of; or those that meet conditions, sorted.

    A condition names a parameter, a metric, a tag or a field: --where learning_rate=1e-4..1e-3 --sort log_loss.
    """
    selected = api.search(_reader(store, uri, experiment), where or (), sort, limit)
    runs, searched = selected.records, bool(where or sort)
    columns = metric or ([] if searched else _common_metrics(runs))
    rows = [
        _row(run, depth, columns) for depth, run in ([(0, run) for run in runs] if searched else _below_parents(runs))
    ]
    empty = "No run meets these conditions." if searched else "MLflow holds no runs there."
    show(Selection([run.to_json() for run in runs], selected.columns), as_json, view=rows, empty=empty)


@app.command("show")
def show_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, its beginning, or its name.")],
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a run: how it was made, its metrics with their course, and the runs below it."""
    reader = _reader(store, uri)
    tracked = reader.find(run)
    history, children = reader.history(tracked, list(tracked.metrics)), reader.children(tracked)
    if as_json:
        points = {name: [point.to_json() for point in observed] for name, observed in history.items()}
        print_json(tracked.to_json() | {"children": [child.id for child in children], "history": points})
        return
    own_tags = {name: value for name, value in tracked.tags.items() if name.startswith("gatehouse.")}
    metrics = [
        {"metric": name, "last": value, "course": spark(history[name])} for name, value in tracked.metrics.items()
    ]
    columns = _common_metrics(children)
    facts = _row(tracked) | {"id": tracked.id, "parameters": dict(sorted(tracked.params.items())), "tags": own_tags}
    show(facts | {"metrics": metrics, "runs below it": [_row(child, 0, columns) for child in children]})


@app.command()
def compare(runs: RunsArgument, store: StoreOption = "", uri: UriOption = "", as_json: JsonOption = False) -> None:
    """Compare runs: what differs in how they were made first, then their metrics and learning curves."""
    if len(runs) < 2:
        raise ConfigurationError(f"compare: expected two runs at least, found {len(runs)}.")
    compared = api.compare(_reader(store, uri), runs)
    courses = {(curve.label, curve.metric): spark(curve.points) for curve in compared.curves}
    differs: list[dict[str, Any]] = [
        {"": name} | dict(zip(compared.labels, map(_brief, values), strict=True))
        for name, values in compared.differs.items()
    ]
    metrics: list[dict[str, Any]] = []
    for name, last in compared.metrics.items():
        row: dict[str, Any] = {"": name}
        for label, value in zip(compared.labels, last, strict=True):
            row |= {label: value, f"course of {label}": courses.get((label, name), "")}
        metrics.append(row)
    show(compared.to_json(), as_json, view={"differs": differs or "nothing", "metrics": metrics})
    if not as_json:
        typer.echo(f"\n{len(compared.same)} parameters and tags are the same.")


@app.command()
def curves(
    runs: RunsArgument,
    metric: MetricOption = None,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """Draw the metrics of several runs on the same axes: a page, or with --json their values by step."""
    compared = api.compare(_reader(store, uri), runs, metric or ())
    if as_json:
        print_json(compared.curves)
        return
    name = "-".join(run.id[:8] for run in compared.runs)
    page = written(out or cache_folder() / "pages" / "curves" / f"{name}.html", api.curves_page(compared))
    typer.echo(str(page))
    if open_page:
        webbrowser.open(page.resolve().as_uri())


def mlflow(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port.")] = 5000,
    store: StoreOption = "",
) -> None:
    """Open MLflow's own pages on the runs of a store, until SIGINT; they need the full MLflow (the extra `ui`)."""
    opened = open_store(store)
    uri = api.uri_of(opened)
    if "://" in uri and not uri.startswith("sqlite:"):
        typer.echo(f"The runs are on a server, which has its own pages: {uri}")
        return
    try:
        version("mlflow")
    except PackageNotFoundError:
        raise ConfigurationError(
            "mlflow: expected the full MLflow with its pages, found the skinny one: in a checkout, pip install '.[ui]'."
        ) from None
    typer.echo(f"http://{host}:{port}", err=True)
    place = ["--backend-store-uri", uri, "--artifacts-destination", f"{opened.address}/mlflow/artifacts"]
    command = [sys.executable, "-m", "mlflow", "server", *place, "--host", host, "--port", str(port), "--workers", "1"]
    os.execv(command[0], command)


def spark(points: Sequence[Observed], width: int = 24) -> str:
    """A metric's values in one line of block characters; non-finite values are gaps, and one alone has no course."""
    values = [value for _, value in api.buckets(points, width)]
    finite = [value for value in values if math.isfinite(value)]
    if len(values) < 2 or not finite:
        return ""
    # Halved, so that the difference of the largest and the smallest number does not overflow.
    low, high = min(finite) / 2, max(finite) / 2
    steps = [(value / 2 - low) / ((high - low) or 1.0) * (len(_BLOCKS) - 1) for value in values]
    return "".join(_BLOCKS[round(step)] if math.isfinite(step) else " " for step in steps)


def _brief(value: str | None) -> str:
    """A parameter for people: the first six digits of a long number."""
    return f"{float(value):.6g}" if value and len(value) > 12 and "." in value and is_number(value) else value or "–"


def _reader(store: str, uri: str, experiment: str = "") -> RunReader:
    return api.reader(None if uri else open_store(store), uri, experiment)


def _common_metrics(runs: Iterable[TrackedRun]) -> list[str]:
    """The few metrics that most of these runs have, without machine metrics."""
    frequent = Counter(name for run in runs for name in sorted(run.metrics) if not name.startswith(SYSTEM))
    return [name for name, _ in frequent.most_common(_COLUMNS)]


def _below_parents(runs: Sequence[TrackedRun]) -> list[tuple[int, TrackedRun]]:
    """Each run below its parent if that is listed, with its depth; newest first, children oldest first."""
    listed = {run.id for run in runs}
    children: dict[str, list[TrackedRun]] = {}
    for run in runs:
        children.setdefault(run.parent if run.parent in listed else "", []).append(run)
    ordered: list[tuple[int, TrackedRun]] = []
    pending = [(0, run) for run in reversed(children.get("", []))]
    while pending:
        depth, run = pending.pop()
        ordered.append((depth, run))
        pending.extend((depth + 1, child) for child in children.get(run.id, ()))
    return ordered


def _row(run: TrackedRun, depth: int = 0, columns: Sequence[str] = ()) -> dict[str, Any]:
    span = None if run.duration is None or not math.isfinite(run.duration) else timedelta(seconds=run.duration)
    facts: dict[str, Any] = {
        "id": run.id[:8],
        "name": "  " * depth + run.name,
        "experiment": run.experiment,
        "status": run.status,
    }
    facts |= {"started": datetime.fromtimestamp(run.started, UTC), "duration": span}
    return facts | {name: run.metrics.get(name) for name in columns}
