"""`gatehouse runs`: lists, searches and compares the runs tracked in MLflow."""

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli.curves import Histories, brief, differing, labels_of, measured, report, spark
from gatehouse.cli.output import JsonOption, StoreOption, open_store, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.reports.format import number
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import URI
from gatehouse.tracking.query import ATTRIBUTES, lookup, parse
from gatehouse.tracking.runs import SYSTEM, RunReader, TrackedRun

app = typer.Typer(no_args_is_help=True, help="Tracked runs: list, show, compare, search.")
UriOption = Annotated[str, typer.Option(help=f"MLflow's tracking URI; default: {URI}, else the store's database.")]
ExperimentOption = Annotated[str, typer.Option(help="Only runs of this experiment of MLflow's.")]
MetricOption = Annotated[list[str] | None, typer.Option(help="Show this metric; may be given several times.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write a report with learning curves to this file.")]
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
        _print_runs(_nested(runs), metric or _common_metrics(runs))
    else:
        typer.echo("MLflow holds no runs there.", err=True)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help='E.g. "learning_rate < 1e-3 order by log_loss limit 10".')],
    experiment: ExperimentOption = "",
    metric: MetricOption = None,
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """Find runs by attributes, parameters, metrics and tags; numbers compare as numbers. See docs/tracking.md."""
    wanted = parse(query)
    runs = list(_reader(store, uri, experiment).runs())
    found = wanted.select(runs)
    for name in wanted.names:
        if name not in ATTRIBUTES and all(lookup(run, name) is None for run in runs):
            typer.echo(_unknown(name, runs), err=True)
    if as_json:
        print_json([run.to_json() for run in found])
        return
    if found:
        named = [name for name in wanted.names if name not in ATTRIBUTES]
        _print_runs([(0, run) for run in found], [*named, *(each for each in metric or () if each not in named)])
    typer.echo(f"{len(found):,} of {len(runs):,} runs", err=True)


@app.command()
def show(
    run: RunArgument,
    html: HtmlOption = None,
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a run: how it was made, its metrics with their course, and the runs below it."""
    reader = _reader(store, uri)
    found = reader.find(run)
    histories = {found.id: reader.history(found, list(found.metrics))}
    children = reader.children(found)
    if html:
        _write(html, [found], histories)
    if as_json:
        points = {name: [each.to_json() for each in points] for name, points in histories[found.id].items()}
        print_json(found.to_json() | {"children": [child.id for child in children], "history": points})
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in [("id", found.id), ("name", found.name), ("experiment", found.experiment)]:
        table.add_row(Text(name, style="dim"), value)
    table.add_row(Text("status", style="dim"), Text(found.status, style=_STYLES.get(found.status, "")))
    for name, value in [("started", _time(found.started)), ("duration", _duration(found.duration))]:
        table.add_row(Text(name, style="dim"), value)
    for name, value in sorted(found.params.items()) + sorted(_own_tags(found).items()):
        table.add_row(Text(name, style="dim"), Text(value))
    print_table(table)
    if found.metrics:
        typer.echo()
        _print_metrics([found], histories)
    if children:
        typer.echo()
        _print_runs([(0, child) for child in children], _common_metrics(children))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs, their beginnings, or names.")],
    html: HtmlOption = None,
    store: StoreOption = "",
    uri: UriOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare runs: what differs in how they were made first, then their metrics and learning curves."""
    if len(runs) < 2:
        raise ConfigurationError(f"compare: expected two runs at least, found {len(runs)}.")
    reader = _reader(store, uri)
    found = [reader.find(each) for each in runs]
    different, same = differing(found)
    if as_json:
        body = {"differs": different, "same": {name: values[0] for name, values in same.items()}}
        print_json({"runs": [run.to_json() for run in found]} | body)
        return
    drawn = {name for run in found for name in run.metrics if html or not name.startswith(SYSTEM)}
    histories = {run.id: reader.history(run, sorted(drawn & run.metrics.keys())) for run in found}
    table = Table("differs" if different else "nothing differs", box=None, pad_edge=False)
    for label in labels_of(found):
        table.add_column(Text(label))
    for name, values in different.items():
        table.add_row(Text(name, style="dim"), *(Text(brief(value)) for value in values))
    print_table(table)
    typer.echo()
    _print_metrics(found, histories)
    typer.echo(f"\n{len(same)} parameters and tags are the same.")
    if html:
        _write(html, found, histories)


def _reader(store: str, uri: str, experiment: str = "") -> RunReader:
    """A reader of runs: at the given URI, else where the store's runs are tracked.

    Raises:
        ConfigurationError: if the store's runs are not tracked.
    """
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


def _nested(runs: Sequence[TrackedRun]) -> list[tuple[int, TrackedRun]]:
    """Runs with their depth, each below its parent if that is listed; newest first, children oldest first."""
    known = {run.id for run in runs}
    below: dict[str, list[TrackedRun]] = {}
    for run in runs:
        below.setdefault(run.parent if run.parent in known else "", []).append(run)
    ordered: list[tuple[int, TrackedRun]] = []
    pending = [(0, run) for run in reversed(below.get("", []))]
    while pending:
        depth, run = pending.pop()
        ordered.append((depth, run))
        pending.extend((depth + 1, child) for child in below.get(run.id, ()))
    return ordered


def _common_metrics(runs: Iterable[TrackedRun]) -> list[str]:
    """The few metrics that most of these runs have, without machine metrics."""
    counted = Counter(name for run in runs for name in sorted(run.metrics) if not name.startswith(SYSTEM))
    return [name for name, _ in counted.most_common(_COLUMNS)]


def _print_runs(runs: Sequence[tuple[int, TrackedRun]], columns: Sequence[str]) -> None:
    table = Table("id", "name", "experiment", "status", "started (UTC)", box=None, pad_edge=False)
    for name in ("duration", *columns):
        table.add_column(Text(name), justify="right")
    for depth, run in runs:
        values = [lookup(run, name) for name in columns]
        table.add_row(
            *(run.id[:8], Text("  " * depth + run.name), Text(run.experiment)),
            *(Text(run.status, style=_STYLES.get(run.status, "")), _time(run.started), _duration(run.duration)),
            *(Text(brief(value)) for value in values),
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


def _own_tags(run: TrackedRun) -> dict[str, str]:
    return {name: value for name, value in run.tags.items() if name.startswith("gatehouse.")}


def _initials(name: str) -> str:
    """Initials of the words in a name's last part: `lr` for `optimizer.learning_rate`."""
    return "".join(word[:1] for word in name.rpartition(".")[2].split("_"))


def _unknown(name: str, runs: Sequence[TrackedRun]) -> str:
    names = {each for run in runs for group in (run.params, run.metrics, run.tags) for each in group} | set(ATTRIBUTES)
    asked = name.rpartition(".")[2]
    short_for = [each for each in sorted(names) if _initials(each) == asked]
    near = short_for or difflib.get_close_matches(asked, sorted(names), n=3)
    meant = f"; did you mean {', '.join(near)}?" if near else "."
    return f"warning: none of {len(runs):,} runs has {name!r}{meant}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{seconds:.1f} s"
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _write(path: Path, runs: Sequence[TrackedRun], histories: Histories) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report(runs, histories))
    Console(soft_wrap=True, highlight=False, markup=False).print(f"report {path}")
