"""`gatehouse status`: the runs of a store: what runs, what failed, how long stages take, and what they cost."""

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, print_json, print_table
from gatehouse.operations.metrics import (
    NOT_MEASURED,
    Totals,
    exposition,
    gate_outcomes,
    page,
    read,
    span,
    totals,
    update,
)
from gatehouse.project.place import open_store
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.reports.format import duration, percent
from gatehouse.store.run import END, events, recorded_runs
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
    summary = totals(rows)
    champions = {}  # Seconds since the present champion of each model was promoted, from the ledger.
    for name in model_names(opened):
        ledger = Ledger(opened, name)
        champion = ledger.state().champion
        promoted = [
            str(record.provenance.get("at", ""))
            for record in ledger.records()
            if record.version == champion
            and ((record.kind == "promoted" and record.alias == "champion") or record.kind == "rolled_back")
        ]
        if champion and promoted and promoted[-1]:
            champions[name] = now - datetime.fromisoformat(promoted[-1]).timestamp()
    if html:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(rows, champions, prices_here().currency, days))
        typer.echo(f"dashboard written to {html}", err=True)
    if metrics:
        typer.echo(exposition(rows), nl=False)
        return
    if html and not as_json:
        return
    # Runs without an end that gave a sign of life in the last two days; `reconcile` handles the others.
    unfinished = [run for run, names in recorded_runs(opened).items() if END not in names]
    last_events = {
        run: max((float(event.body["at"]) for _, event in events(opened, run)), default=0.0) for run in unfinished
    }
    running = sorted(run for run, last in last_events.items() if now - last < _SILENT)
    if as_json:
        body = {"days": days, "running": running, "champion_age_seconds": champions}
        print_json(body | {"gate": gate_outcomes(rows), "totals": [total.to_json() for total in summary]})
        return
    if running:
        typer.echo(f"running: {', '.join(running)}")
    if not rows:
        typer.echo("No run has ended in this time.")
        return
    _print_totals([total for total in summary if not total.stage], "pipeline", "runs")
    typer.echo()
    _print_totals([total for total in summary if total.stage], "stage", "tasks")
    typer.echo()
    for row in [row for row in rows if not row.stage and row.state != "succeeded"][-5:]:
        typer.echo(f"{row.state}: {row.project}-{row.pipeline} {row.run}: {row.error or 'no cause on record'}")
    for name, age in champions.items():
        typer.echo(f"champion of {name}: for {duration(age)}")
    outcomes = ", ".join(f"{count} {name}" for name, count in gate_outcomes(rows).items())
    typer.echo(f"gate: {outcomes or 'no candidate was judged'}")


def _print_totals(summary: list[Totals], what: str, counted: str) -> None:
    table = Table(what, *(["pipeline"] if what == "stage" else []), box=None, pad_edge=False)
    with_gpu = any(total.gpu_percent is not None for total in summary)
    for name in (counted, "success", "memo", "retries", "median", "waited", "cost", *(["GPU"] if with_gpu else [])):
        table.add_column(name, justify="right")
    table.add_column("last")
    for total in summary:
        gpu = NOT_MEASURED if total.gpu_percent is None else percent(total.gpu_percent / 100)
        table.add_row(
            *([total.stage, total.name] if what == "stage" else [total.name]),
            *(str(total.runs), percent(total.success), str(total.memo), str(total.retries)),
            *(span(total.median_seconds), span(total.queue_seconds)),
            NOT_MEASURED if total.cost is None else f"{total.cost:.2f}",
            *([gpu] if with_gpu else []),
            Text(total.last_state, style=_STYLES.get(total.last_state, "")),
        )
    print_table(table)
