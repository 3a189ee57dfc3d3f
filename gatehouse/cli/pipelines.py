"""`gatehouse status` and `gatehouse why`: how runs of pipelines do, and why a stage ran again."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.api import pipelines
from gatehouse.cli.output import JsonOption, StoreOption, print_json, show, written
from gatehouse.operations.metrics import NOT_MEASURED, Totals, exposition
from gatehouse.project.place import open_store
from gatehouse.reports.format import percent
from gatehouse.store.records import flat

_NEWEST = 10


def status(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Show this run and its stages; default: all.")] = "",
    html: Annotated[Path | None, typer.Option("--html", help="Write the dashboard to this file.")] = None,
    days: Annotated[float, typer.Option(min=0.01, help="Runs that began in the last so many days.")] = 30.0,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print the table in Prometheus's text format.")] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show how pipelines and stages do, or one run. A figure that was not measured shows as such, never as 0."""
    opened = open_store(store)
    if run:
        show(pipelines.run(opened, run), as_json)
        return
    seen = pipelines.status(opened, days)
    if html:
        from gatehouse.operations.metrics import page
        from gatehouse.tracking.provenance import prices_here

        written(html, page(seen.rows, seen.champion_age_seconds, seen.champion_changes, prices_here().currency, days))
        typer.echo(f"dashboard written to {html}", err=True)
    if metrics:
        typer.echo(exposition(seen.rows, seen.champion_age_seconds, seen.champion_changes), nl=False)
    elif as_json:
        totals = [total.to_json() for total in seen.totals]
        body = {"days": days, "running": seen.running, "champion_age_seconds": seen.champion_age_seconds}
        body |= {"champion_changes": seen.champion_changes}
        print_json(body | {"gate": seen.gate, "totals": totals})
    elif not html:
        newest = [row for row in seen.rows if not row.stage][-_NEWEST:][::-1]
        ended = [
            {"run": row.run, "pipeline": f"{row.project}-{row.pipeline}", "ended": row.state}
            | {"began": datetime.fromtimestamp(row.began, UTC), "took": timedelta(seconds=row.seconds)}
            | {"error": row.error}
            for row in newest
        ]
        ages = {name: timedelta(seconds=age) for name, age in seen.champion_age_seconds.items()}
        show(
            {"running": seen.running, "the gate": seen.gate or "judged no candidate", "champions for": ages}
            | {"champions changed": seen.champion_changes}
            | {"newest runs": ended or f"no run has ended in the last {days:g} days"}
            | {"pipelines": [_total(total) for total in seen.totals if not total.stage]}
            | {"stages": [_total(total) for total in seen.totals if total.stage]}
        )


def _total(total: Totals) -> dict[str, Any]:
    spans = {"median": total.median_seconds, "waited": total.queue_seconds}
    measured: dict[str, Any] = {name: at if at is None else timedelta(seconds=at) for name, at in spans.items()}
    measured |= {"cost": total.cost, "GPU": total.gpu_percent and percent(total.gpu_percent / 100)}
    return (
        {"stage": total.stage, "pipeline": total.name, "runs": total.runs, "success": percent(total.success)}
        | {"memo": total.memo, "retries": total.retries}
        | {name: NOT_MEASURED if value is None else value for name, value in measured.items()}
        | {"last": total.last_state}
    )


def why(
    stage: Annotated[str, typer.Argument(help="A stage, such as train; or a part of one, such as validate:measure.")],
    first: Annotated[str, typer.Argument(help="A run; with a second one, they are compared.")] = "",
    second: Annotated[str, typer.Argument(help="Another run.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a stage's result depends on; with one run, what it depended on there; with two, what differs.

    A stage runs where its key is new. A key holds the code that decides, the versions of the packages that this code
    imports, and the request: references of inputs, and the configuration.
    """
    opened = open_store(store) if store or first else None  # A mistyped address is an error wherever it stands.
    if not first or opened is None:
        code = pipelines.code_of_stage(stage)
        # Modules are many: a folder says where they are.
        folders = Counter(name.rpartition(".")[0] or name for name in code["modules"])
        parts = {"fields": code["fields"], f"modules ({len(code['modules'])})": dict(folders)}
        parts |= {"distributions": code["distributions"], "fields that change no result": code["left_out"]}
        again = {"stage": f"{stage} runs again where one of these changes"} | parts
        show(code, as_json, view=again if code["memo"] else f"{stage} runs every time. {code['why']}")
        return
    ends = [pipelines.key_in(opened, stage, run) for run in filter(None, (first, second))]
    ended = pipelines.ENDINGS[ends[-1].event]
    if not second:
        body = {name: ends[0].body[name] for name in ("key", "code", "outside", "request")}
        request = {name: pipelines.text_of(value) for name, value in flat(body["request"]).items()}
        view = {f"{stage} in {first}": ended} | body | {"request": request}
        show({"event": ends[0].event} | body, as_json, view=view)
        return
    differing = pipelines.differences(opened, *ends)
    rows = [
        {"": difference.part, "name": difference.name}
        | {
            run: ("default" if difference.part in ("field", "input") else "") if value is None else value
            for run, value in ((first, _text(difference.first)), (second, _text(difference.second)))
        }
        for difference in differing
    ]
    show(differing, as_json, view=rows)
    if as_json:
        return
    if not differing:
        again_because = ended if ends[1].event == "hit" else "was forced, or an artifact of the first was gone"
        typer.echo(f"{stage} has the same key in both runs. In {second} it {again_because}.")
        return
    typer.echo(f"\n{stage} {ended} in {second}, under another key than in {first}.")
    for maker in pipelines.makers_of(opened, differing):  # The stages that made the inputs that differ.
        typer.echo(f"Why that input differs: gatehouse why {maker} {first} {second}")


def _text(value: Any) -> str | None:
    return None if value is None else pipelines.text_of(value)
