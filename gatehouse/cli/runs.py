"""`gatehouse runs`: lists and compares the runs tracked in MLflow, with their learning curves."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, print_facts, print_json, print_rows, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import open_store
from gatehouse.reports.format import duration, number
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import URI
from gatehouse.tracking.runs import SYSTEM, Observed, RunReader, TrackedRun

_BLOCKS = "▁▂▃▄▅▆▇█"
_SHOWN_TAGS = ("gatehouse.", "mlflow.source.git.commit")
Histories = Mapping[str, Mapping[str, Sequence[Observed]]]


def spark(points: Sequence[Observed], width: int = 24) -> str:
    """A metric's values in one line of block characters; non-finite values are gaps, and an empty series is a dot."""
    values = [point.value for point in points]
    if len(values) > width:  # The mean of each group of neighbours; a group with NaN is NaN.
        edges = [round(index * len(values) / width) for index in range(width + 1)]
        values = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
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


def differing(runs: Sequence[TrackedRun]) -> tuple[dict[str, list[str | None]], dict[str, list[str | None]]]:
    """Parameters and tags of several runs: those that differ, and those that are equal, by name.

    Equal numbers do not differ, however they are written. Only tags about how a run was made are used.
    """
    facts = [
        {"experiment": run.experiment, "status": run.status}
        | run.params
        | {name: value for name, value in run.tags.items() if name.startswith(_SHOWN_TAGS)}
        for run in runs
    ]
    names = list(dict.fromkeys(name for run_facts in facts for name in run_facts))
    different: dict[str, list[str | None]] = {}
    same: dict[str, list[str | None]] = {}
    for name in sorted(names, key=lambda name: (name.startswith("gatehouse."), name)):
        values = [run_facts.get(name) for run_facts in facts]
        first, *rest = [number_of(value) if number_of(value) is not None else value for value in values]
        (same if all(other == first for other in rest) else different)[name] = values
    return different, same


def number_of(value: str | None) -> float | None:
    """The number that a whole text spells; None for everything else, including NaN."""
    try:
        spelled = float(value or "nan")
    except ValueError:
        return None
    return None if math.isnan(spelled) else spelled


def measured(runs: Sequence[TrackedRun]) -> dict[str, list[float | None]]:
    """The last value of every metric of several runs, by name; machine metrics come last."""
    names = sorted({name for run in runs for name in run.metrics}, key=lambda name: (name.startswith(SYSTEM), name))
    return {name: [run.metrics.get(name) for run in runs] for name in names}


def brief(value: str | float | None) -> str:
    """A value for people: a dash for none, and the first six digits of a long number."""
    if isinstance(value, str):
        return f"{float(value):.6g}" if len(value) > 12 and "." in value and number_of(value) is not None else value
    return number(value)


def labels_of(runs: Sequence[TrackedRun]) -> list[str]:
    """A name for each run. Runs with the same name get the beginning of their id too."""
    names = [run.name or run.id[:8] for run in runs]
    return [name if names.count(name) == 1 else f"{name} {run.id[:8]}" for name, run in zip(names, runs, strict=True)]


app = typer.Typer(no_args_is_help=True, help="Tracked runs: list, show, compare.")
UriOption = Annotated[str, typer.Option(help=f"MLflow's tracking URI; default: {URI}, else the store's database.")]
ExperimentOption = Annotated[str, typer.Option(help="Only runs of this experiment of MLflow's.")]
MetricOption = Annotated[list[str] | None, typer.Option(help="Show this metric; may be given several times.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, its beginning, or its name.")]
_STYLES = {"FINISHED": "green", "FAILED": "red", "KILLED": "red", "RUNNING": "yellow", "SCHEDULED": "yellow"}
_COLUMNS = 3


@app.command("list")
def list_runs(
    experiment: ExperimentOption = "",
    metric: MetricOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Most runs shown, the newest.")] = 30,
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the newest runs; stages and trials stand below the run that they are part of."""
    runs = list(_reader(store, uri, experiment).runs(limit=limit))
    if as_json:
        print_json([run.to_json() for run in runs])
    elif runs:
        # Each run stands below its parent if that is listed; newest first, children oldest first.
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
        _print_runs(ordered, metric or _common_metrics(runs))
    else:
        typer.echo("MLflow holds no runs there.", err=True)


@app.command()
def show(run: RunArgument, store: StoreOption = "", uri: UriOption = "", as_json: JsonOption = False) -> None:
    """Show a run: how it was made, its metrics with their course, and the runs below it."""
    reader = _reader(store, uri)
    tracked = reader.find(run)
    histories = {tracked.id: reader.history(tracked, list(tracked.metrics))}
    children = reader.children(tracked)
    if as_json:
        points = {name: [point.to_json() for point in history] for name, history in histories[tracked.id].items()}
        print_json(tracked.to_json() | {"children": [child.id for child in children], "history": points})
        return
    own_tags = {name: value for name, value in tracked.tags.items() if name.startswith("gatehouse.")}
    print_facts(
        [
            ("id", tracked.id),
            ("name", tracked.name),
            ("experiment", tracked.experiment),
            ("status", Text(tracked.status, style=_STYLES.get(tracked.status, ""))),
            ("started", _time(tracked.started)),
            ("duration", _span(tracked.duration)),
            *sorted(tracked.params.items()),
            *sorted(own_tags.items()),
        ]
    )
    if tracked.metrics:
        typer.echo()
        _print_metrics([tracked], histories)
    if children:
        typer.echo()
        _print_runs([(0, child) for child in children], _common_metrics(children))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs, their beginnings, or names.")],
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare runs: what differs in how they were made first, then their metrics and learning curves."""
    if len(runs) < 2:
        raise ConfigurationError(f"compare: expected two runs at least, found {len(runs)}.")
    reader = _reader(store, uri)
    tracked = [reader.find(run) for run in runs]
    different, same = differing(tracked)
    if as_json:
        body = {"differs": different, "same": {name: values[0] for name, values in same.items()}}
        print_json({"runs": [run.to_json() for run in tracked]} | body)
        return
    histories = {
        run.id: reader.history(run, sorted(name for name in run.metrics if not name.startswith(SYSTEM)))
        for run in tracked
    }
    head = ("differs" if different else "nothing differs", *labels_of(tracked))
    print_rows(head, ((name, *map(brief, values)) for name, values in different.items()))
    typer.echo()
    _print_metrics(tracked, histories)
    typer.echo(f"\n{len(same)} parameters and tags are the same.")


def _reader(store: str, uri: str, experiment: str = "") -> RunReader:
    """A reader of runs: at the given URI, else where the store's runs are tracked."""
    if not uri:
        opened = open_store(store)
        tracking = tracking_of(opened)
        if tracking is None:
            raise ConfigurationError(
                f"--uri: the store {opened.address} is remote and {URI} is not set: expected one of them."
            )
        if tracking.embedded and not (tracking.embedded / "mlflow.db").is_file():
            raise ConfigurationError(
                f"The store {opened.address} has no MLflow database yet. `gatehouse run` writes one."
            )
        uri = tracking.uri
    elif uri.startswith("sqlite:///") and not Path(file := uri.removeprefix("sqlite:///").partition("?")[0]).is_file():
        raise ConfigurationError(f"--uri: expected a database of MLflow at {file}, found none.")
    return RunReader(uri, experiment)


def _common_metrics(runs: Iterable[TrackedRun]) -> list[str]:
    """The few metrics that most of these runs have, without machine metrics."""
    frequent = Counter(name for run in runs for name in sorted(run.metrics) if not name.startswith(SYSTEM))
    return [name for name, _ in frequent.most_common(_COLUMNS)]


def _print_runs(runs: Sequence[tuple[int, TrackedRun]], columns: Sequence[str]) -> None:
    table = Table("id", "name", "experiment", "status", "started (UTC)", box=None, pad_edge=False)
    for name in ("duration", *columns):
        table.add_column(Text(name), justify="right")
    for depth, run in runs:
        table.add_row(
            *(run.id[:8], Text("  " * depth + run.name), Text(run.experiment)),
            *(Text(run.status, style=_STYLES.get(run.status, "")), _time(run.started), _span(run.duration)),
            *(Text(number(run.metrics.get(name))) for name in columns),
        )
    print_table(table)


def _print_metrics(runs: Sequence[TrackedRun], histories: Histories) -> None:
    table = Table("metric", box=None, pad_edge=False)
    for label in labels_of(runs) if len(runs) > 1 else ["last"]:
        table.add_column(Text(label), justify="right")
        table.add_column("")
    for name, values in measured(runs).items():
        cells = [Text(name, style="dim")]
        for run, value in zip(runs, values, strict=True):
            cells += [Text(number(value)), Text(spark(histories.get(run.id, {}).get(name, ())), style="cyan")]
        table.add_row(*cells)
    print_table(table)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _span(seconds: float | None) -> str:
    return "–" if seconds is None or not math.isfinite(seconds) else duration(seconds)
