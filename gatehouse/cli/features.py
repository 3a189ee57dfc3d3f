"""`gatehouse features`: feature views with their tables and lineage, retrieval, and the online store."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import to_json

from gatehouse.api.features import Features
from gatehouse.cli.output import JsonOption, ProjectOption, StoreBesideProjectOption, show
from gatehouse.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True)
ServiceOption = Annotated[str, typer.Option(help="Feature service; default: the project's.")]


@app.command("list")
def list_views(
    project: ProjectOption = None, store: StoreBesideProjectOption = "", as_json: JsonOption = False
) -> None:
    """List the project's feature views, with the newest table of each."""
    show(Features.of(project, store).views(), as_json)


@app.command("show")
def show_view(
    name: Annotated[str, typer.Argument(metavar="VIEW", help="The view: stored, on demand, or of the label.")],
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a view: its definition, its SQL, and its versions with what changed."""
    show(Features.of(project, store).describe(name), as_json)


@app.command()
def lineage(
    name: Annotated[str, typer.Argument(metavar="FEATURE|VIEW[.FEATURE]", help="A feature, or all those of a view.")],
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the raw columns that a feature is computed from, and those that may decide which rows count."""
    known_from, sources = Features.of(project, store).lineage(name)
    features = {
        feature: {"values": columns.values, "others": columns.named, "exact": columns.exact}
        for feature, columns in sources.items()
    }
    view = [
        {"feature": feature, "values from": columns.values, "rows may depend on": columns.named}
        | {"note": "" if columns.exact else "sqlglot cannot follow this SQL: all columns of its tables"}
        for feature, columns in sources.items()
    ]
    show({"known_from": known_from, "features": features}, as_json, view={"known from": known_from, "features": view})


@app.command()
def retrieve(
    rows: Annotated[Path, typer.Argument(help="Entity rows: CSV or Parquet, with the keys and a time.")],
    to: Annotated[Path, typer.Argument(help="Write them with their features here: CSV or Parquet.")],
    service: ServiceOption = "",
    view: Annotated[
        list[str] | None, typer.Option(help="Only this view, stored or on demand; may be repeated.")
    ] = None,
    time: Annotated[
        str, typer.Option(help="Column with the time; default: event_timestamp, or in Parquet the only timestamp.")
    ] = "",
    online: Annotated[bool, typer.Option("--online", help="Current values from the online store; no time.")] = False,
    at: Annotated[str, typer.Option(help="With --online: the moment of the read, ISO 8601; default: now.")] = "",
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Join features to entity rows: each gets what was known at its time; null where nothing fresh was."""
    if at and not online:
        raise ConfigurationError("--at is the moment of a read from the online store: expected --online with it.")
    opened = Features.of(project, store, needed=True)
    count, columns, filled = opened.retrieve(rows, to, service, view or (), time, at if online else None)
    views = [{"view": name, "rows": with_value} for name, with_value in filled.items()]
    seen = [{"view": row["view"], "rows with a value": row["rows"]} for row in views]
    facts = {"file": str(to), "rows": count, "columns": columns}
    show(facts | {"views": views}, as_json, view=facts | {"views": seen})


@app.command()
def materialize(
    service: ServiceOption = "",
    as_of: Annotated[str, typer.Option(help="What was known then, ISO 8601; default: all that the tables hold.")] = "",
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Write all again, also to go back in time.")] = False,
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bring the project's online store up to its newest feature tables, and compare; ends with 1 above max_skew."""
    result = Features.of(project, store, needed=True).materialize(service, as_of, rewrite)
    show(result, as_json)
    raise typer.Exit(0 if result.verdict == "pass" else 1)


@app.command()
def stream(
    service: ServiceOption = "",
    every: Annotated[float, typer.Option(min=0, help="Least seconds between two looks at the source.")] = 5.0,
    batches: Annotated[int, typer.Option(min=0, help="End after so many batches; 0: go on until stopped.")] = 0,
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Keep the online store up to the source, in small batches; with --json, one line of JSON a batch.

    Ends with 1 where values read back differ by more than max_skew. Killed, it goes on where it was.
    """
    opened = Features.of(project, store, needed=True)
    for number, batch in enumerate(opened.stream(service, timedelta(seconds=every)), start=1):
        behind = "" if batch.behind is None else f", {batch.behind:,} behind"
        line = f"{batch.new:,} new rows in {batch.seconds:.1f} s ({batch.rows_a_second:,.0f}/s){behind}, newest of "
        line += f"{batch.age.total_seconds():,.0f} s ago, {batch.written:,} written online"
        typer.echo(to_json(batch, timedelta_mode="float").decode() if as_json else line)
        for warning in () if as_json else batch.warnings:
            typer.echo(f"  {warning}")
        if batch.verdict != "pass":
            raise typer.Exit(1)
        if number == batches:
            return


@app.command()
def skew(
    service: ServiceOption = "",
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Read a sample of the online store back and compare it with the offline values.

    Ends with 1 above max_skew, and where a view was not compared.

    Each view is compared at the moment up to which it was materialized, with the feature tables that were: later ones
    may say something else of their newest rows. Nothing is written.
    """
    result = Features.of(project, store, needed=True).skew(service)
    rows = [
        {name: row[name] for name in ("view", "as_of", "values", "differing", "examples")}
        | {"note": "" if row["newest"] else "there are newer feature tables: `gatehouse features materialize`"}
        for row in result.views
    ]
    facts = {"skew": f"{result.skew:.4%} of {result.values:,} values", "allowed": f"{result.max_skew:.4%}"}
    show(result, as_json, view=facts | {"why it fails": result.reasons, "views": rows})
    raise typer.Exit(1 if result.reasons else 0)
