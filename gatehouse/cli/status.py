"""`gatehouse status`: how the runs of a store do: what runs, what failed, how long stages take, and what they cost."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, open_store, print_json, print_table
from gatehouse.operations.metrics.table import Row, read, update
from gatehouse.operations.metrics.totals import Totals, exposition, gate_outcomes, totals
from gatehouse.operations.report import NOT_MEASURED, page, span
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.reports.format import duration, percent
from gatehouse.store.run import END, events, recorded_runs
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import prices_here

_STYLES = {"succeeded": "green", "failed": "bold red", "stopped": "yellow"}
_DAY = 86400.0
_SILENT = 2 * _DAY


def status(
    html: Annotated[Path | None, typer.Option("--html", help="Write the dashboard to this file.")] = None,
    days: Annotated[float, typer.Option(min=0.01, help="Runs that began in the last so many days.")] = 30.0,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print the table in Prometheus's text format.")] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show how pipelines and stages do. What was not measured is said so, and never 0."""
    opened, now = open_store(store), time.time()
    update(opened)
    rows = read(opened, now - days * _DAY)
    champions, made = champion_ages(opened, now), totals(rows)
    if html:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(rows, champions, prices_here().currency, days))
        typer.echo(f"dashboard written to {html}", err=True)
    if metrics:
        typer.echo(exposition(rows), nl=False)
    elif as_json:
        body = {"days": days, "running": running(opened, now), "champion_age_seconds": champions}
        print_json(body | {"gate": gate_outcomes(rows), "totals": [one.to_json() for one in made]})
    elif not html:
        _print(rows, made, running(opened, now), champions)


def running(store: ArtifactStore, now: float) -> list[str]:
    """Runs without an end that gave a sign of life in the last two days; `reconcile` handles the others."""
    open_runs = [run for run, names in recorded_runs(store).items() if END not in names]
    heard = {run: max((float(event.body["at"]) for _, event in events(store, run)), default=0.0) for run in open_runs}
    return sorted(run for run, last in heard.items() if now - last < _SILENT)


def champion_ages(store: ArtifactStore, now: float) -> dict[str, float]:
    """Seconds since the present champion of each model was promoted, from the ledger."""
    ages = {}
    for name in model_names(store):
        ledger = Ledger(store, name)
        champion = ledger.state().champion
        since = [
            str(record.provenance.get("at", ""))
            for record in ledger.records()
            if record.version == champion
            and ((record.kind == "promoted" and record.alias == "champion") or record.kind == "rolled_back")
        ]
        if champion and since and since[-1]:
            ages[name] = now - _seconds(since[-1])
    return ages


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def _print(rows: list[Row], made: list[Totals], going: list[str], champions: dict[str, float]) -> None:
    if going:
        typer.echo(f"running: {', '.join(going)}")
    if not rows:
        typer.echo("No run has ended in this time.")
        return
    _print_totals([one for one in made if not one.stage], "pipeline", "runs")
    typer.echo()
    _print_totals([one for one in made if one.stage], "stage", "tasks")
    typer.echo()
    failed = [row for row in rows if not row.stage and row.state != "succeeded"][-5:]
    for row in failed:
        typer.echo(f"{row.state}: {row.project}-{row.pipeline} {row.run}: {row.error or 'no cause on record'}")
    for name, age in champions.items():
        typer.echo(f"champion of {name}: for {duration(age)}")
    decided = ", ".join(f"{count} {name}" for name, count in gate_outcomes(rows).items())
    typer.echo(f"gate: {decided or 'no candidate was judged'}")


def _print_totals(made: list[Totals], what: str, counted: str) -> None:
    table = Table(what, *(["pipeline"] if what == "stage" else []), box=None, pad_edge=False)
    trained = any(one.gpu_percent is not None for one in made)
    for name in (counted, "success", "memo", "retries", "median", "waited", "cost", *(["GPU"] if trained else [])):
        table.add_column(name, justify="right")
    table.add_column("last")
    for one in made:
        names = [one.stage, one.name] if what == "stage" else [one.name]
        table.add_row(
            *names,
            *(str(one.runs), percent(one.success), str(one.memo), str(one.retries)),
            *(span(one.median_seconds), span(one.queue_seconds)),
            NOT_MEASURED if one.cost is None else f"{one.cost:.2f}",
            *([NOT_MEASURED if one.gpu_percent is None else percent(one.gpu_percent / 100)] if trained else []),
            Text(one.last_state, style=_STYLES.get(one.last_state, "")),
        )
    print_table(table)
