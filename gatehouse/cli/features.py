"""`gatehouse features`: lists feature views, shows their content and history, and retrieves values."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from gatehouse.cli import feature_values, online_features, push
from gatehouse.cli.feature_lineage import lineage
from gatehouse.cli.feature_project import (
    FeatureProject,
    ProjectOption,
    Tables,
    available,
    moment,
    open_features,
    span,
    store_if_there,
)
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_table
from gatehouse.features.definitions.declarations import LabelView
from gatehouse.features.definitions.repository import OnDemand, View
from gatehouse.runtime.counting import counted
from gatehouse.store.store import ArtifactStore

app = typer.Typer(no_args_is_help=True, help="Feature views: list, show, retrieve, materialize, push, skew, lineage.")
_SUMMARY = ("column_name", "null_percentage", "approx_unique", "min", "avg", "max")
"""What `show` takes from DuckDB's SUMMARIZE."""


@app.command("list")
def list_views(
    project: ProjectOption = None, store: StoreBesideProjectOption = "", as_json: JsonOption = False
) -> None:
    """List the project's feature views, with the newest table of each."""
    opened = open_features(project)
    artifacts = store_if_there(store, opened)
    views = opened.repository.views.values()
    # The tables with the newest time, and among these the ones with most views of the present definitions.
    newest = reversed(opened.newest(artifacts)) if artifacts else iter(())
    tables = max(newest, key=lambda tables: sum(not opened.misfit(tables, view) for view in views), default=None)
    rows = [_facts(view) | _stored(opened, tables, view) for view in views]
    rows += [_facts(view) | {"table": "", "rows": None, "differs": ""} for view in opened.repository.on_demand.values()]
    if as_json:
        print_json(rows)
        return
    table = Table("view", "entities", "features", "version", "ttl", "available", box=None, pad_edge=False)
    table.add_column("rows", justify="right")
    table.add_column("newest table")
    for row in rows:
        kinds = [*row["features"].values()]
        cells = [row["view"], ", ".join(row["entities"])]
        cells.append(", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)))
        cells += ["", "", "on demand"] if row["on_demand"] else []
        cells += [] if row["on_demand"] else [str(row["version"]), row["ttl"] or "for ever", row["available"]]
        differs = Text(f"  of another definition: {row['differs']}" if row["differs"] else "", style="yellow")
        reference = Text(row["table"] or ("" if row["on_demand"] else "none yet"), style="dim")
        table.add_row(*cells, f"{row['rows']:,}" if row["table"] else "", Text.assemble(reference, differs))
    print_table(table)
    if tables is not None:
        typer.echo(f"\n{tables.reference}, as of {moment(tables.as_of)}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="VIEW", help="The view: stored, on demand, or of the label.")],
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a view: its definition, its SQL, its versions with what changed, and what its newest table holds."""
    opened = open_features(project)
    repository = opened.repository
    artifacts = store_if_there(store, opened)
    versions: list[dict[str, Any]] = []
    statistics: list[dict[str, Any]] = []
    if name in repository.on_demand:
        on_demand = repository.on_demand[name]
        facts, file, query = _facts(on_demand), f"on_demand/{name}.sql", on_demand.query
    elif name == repository.label.name:
        facts, file, query = _label_facts(repository.label), f"labels/{name}.sql", repository.entity_rows
    else:
        view = opened.view(name, [*repository.on_demand, repository.label.name])
        facts, file, query = _facts(view), f"views/{name}.sql", view.query
        versions = _versions(opened.history(artifacts), view) if artifacts else []
        if artifacts and versions:
            statistics = _statistics(artifacts, versions[-1]["table"])
    if as_json:
        print_json(facts | {"sql": query, "versions": versions, "statistics": statistics})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(name, style="bold")
    for key, value in facts.items():
        if key not in ("view", "on_demand") and value:
            console.print(Text.assemble((f"  {key:<14}", "dim"), _text(value)))
    if name in repository.views:
        console.print("\nversions", style="bold")
        for version in versions:
            head = f"  {version['version']}  as of {moment(version['as_of'])}, {counted(version['rows'], 'row')}  "
            console.print(Text.assemble(head, (version["table"], "dim")))
            for line in version["changed"]:
                console.print(Text(f"     {line}", style="yellow"))
        if not versions:
            console.print("  no table yet; `gatehouse run` computes one", style="dim")
    if statistics:
        table = Table(*(heading.replace("_", " ") for heading in _SUMMARY), box=None, pad_edge=False)
        for row in statistics:
            table.add_row(*("" if row[heading] is None else str(row[heading]) for heading in _SUMMARY))
        console.print("\nnewest table", style="bold")
        print_table(table)
    console.print(f"\n{file}", style="bold")
    console.print(Syntax(query.rstrip(), "sql", theme="ansi_light", background_color="default"))


def _facts(view: View | OnDemand) -> dict[str, Any]:
    spec = view.spec
    facts: dict[str, Any] = {
        "view": view.name,
        "on_demand": isinstance(view, OnDemand),
        "description": spec.description,
    }
    if isinstance(view, OnDemand):
        facts |= {"entities": [], "reads": list(view.spec.views), "request": dict(view.spec.request)}
        return facts | {"features": dict(spec.features), "freshness": ""}
    return facts | {
        "entities": list(view.spec.entities),
        "features": dict(spec.features),
        "version": view.spec.version,
        "ttl": span(view.spec.ttl),
        "window": "" if view.spec.static else span(view.spec.window, "the whole past"),
        "available": available(view.spec),
        "freshness": span(view.spec.freshness),
    }


def _label_facts(spec: LabelView) -> dict[str, Any]:
    return {
        "view": spec.name,
        "description": spec.description,
        "entities": list(spec.entities),
        "decision_time": spec.decision_time,
        "label": spec.label,
        "arrives": f"{spec.arrives.column} + {span(spec.arrives.lag)}" if spec.arrives.lag else spec.arrives.column,
        "horizon": span(spec.horizon),
        "set_aside": spec.set_aside,
    }


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({kind})" for name, kind in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _stored(opened: FeatureProject, tables: Tables | None, view: View) -> dict[str, Any]:
    reference = tables.views.get(view.name, "") if tables else ""
    if tables is None or not reference:
        return {"table": "", "rows": None, "differs": ""}
    rows = tables.store.manifest(reference).rows
    return {"table": reference, "rows": rows, "differs": opened.misfit(tables, view)}


def _versions(history: list[Tables], view: View) -> list[dict[str, Any]]:
    """Every table of a view, newest last, with the changes of its definition since the table before."""
    versions: list[dict[str, Any]] = []
    for tables in history:
        reference = tables.views.get(view.name)
        if reference is None or (versions and versions[-1]["table"] == reference):
            continue
        manifest = tables.store.manifest(reference)
        versions.append(
            {
                "version": manifest.details["version"],
                "as_of": tables.as_of,
                "table": reference,
                "rows": manifest.rows,
                "changed": list(tables.changed.get(view.name, [])),
            }
        )
    return versions


def _statistics(store: ArtifactStore, table: str) -> list[dict[str, Any]]:
    """DuckDB's summary of the columns of a feature table."""
    from gatehouse.features.database import connect, rows_of

    with connect() as connection:
        summary = connection.sql(f"SUMMARIZE FROM {rows_of(store.paths(table))}").to_arrow_table().to_pylist()
    return [{heading: row[heading] for heading in _SUMMARY} for row in summary]


app.command("retrieve")(feature_values.retrieve)
app.command("materialize")(online_features.materialize)
app.command("skew")(online_features.skew)
app.command("lineage")(lineage)
app.command("push")(push.push)
