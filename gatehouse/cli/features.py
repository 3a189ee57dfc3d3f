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


@app.command("list")
def list_views(
    project: ProjectOption = None, store: StoreBesideProjectOption = "", as_json: JsonOption = False
) -> None:
    """List the project's feature views, with the newest table of each."""
    opened = open_features(project)
    found = store_if_there(store, opened)
    tables = _newest(opened, found)
    rows = [_facts(view) | _held(opened, tables, view) for view in opened.repository.views.values()]
    rows += [
        _facts_on_demand(view) | {"table": "", "rows": None, "differs": ""}
        for view in opened.repository.on_demand.values()
    ]
    if as_json:
        print_json(rows)
        return
    table = Table("view", "entities", "features", "version", "ttl", "available", box=None, pad_edge=False)
    with_freshness = any(row["freshness"] for row in rows)
    if with_freshness:
        table.add_column("freshness")
    table.add_column("rows", justify="right")
    table.add_column("newest table")
    for row in rows:
        kinds = _kinds(row["features"])
        stored = not row["on_demand"]
        cells = [row["view"], ", ".join(row["entities"]), kinds]
        cells += [str(row["version"]), row["ttl"] or "for ever", row["available"]] if stored else ["", "", "on demand"]
        fresh = [row["freshness"]] if with_freshness else []
        held = f"{row['rows']:,}" if row["table"] else ""
        other = Text(f"  of another definition: {row['differs']}" if row["differs"] else "", style="yellow")
        newest = Text(row["table"] or ("none yet" if stored else ""), style="dim")
        table.add_row(*cells, *fresh, held, Text.assemble(newest, other))
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
    from gatehouse.features.computing.table_statistics import table_statistics

    opened = open_features(project)
    found = store_if_there(store, opened)
    if name in opened.repository.on_demand:
        _show_on_demand(opened.repository.on_demand[name], as_json)
        return
    label = opened.repository.label
    if name == label.name:
        _show_label(label, opened.repository.entity_rows, as_json)
        return
    view = opened.view(name, [*opened.repository.on_demand, label.name])
    versions = _versions(opened.history(found), view) if found else []
    statistics = None
    if found is not None and versions:
        statistics = table_statistics(view, found.paths(versions[-1]["table"]))
    if as_json:
        facts = _facts(view) | {"sql": view.query, "versions": versions}
        print_json(facts | {"statistics": statistics.as_dict() if statistics else None})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(view.name, style="bold")
    console.print(view.spec.description, markup=False)
    console.print(_definition(view))
    console.print("\nversions", style="bold")
    for version in versions:
        _print_version(console, version)
    if not versions:
        console.print("  no table yet; `gatehouse run` computes one", style="dim")
    if statistics is not None:
        console.print(
            f"\nnewest table: {counted(statistics.rows, 'row')}, {counted(statistics.keys, 'key')}", style="bold"
        )
        console.print(f"  events {statistics.first_event} to {statistics.last_event}", style="dim")
        print_table(_statistics(statistics.features))
    _print_query(console, f"views/{view.name}.sql", view.query)


def _show_on_demand(view: OnDemand, as_json: bool) -> None:
    facts = _facts_on_demand(view)
    if as_json:
        print_json(facts | {"sql": view.query})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(view.name, style="bold")
    console.print(view.spec.description, markup=False)
    listed = {"available": "on demand", "reads": ", ".join(facts["reads"])}
    listed |= {each: _with_kinds(facts[each]) for each in ("request", "features")}
    console.print(_lines(listed))
    _print_query(console, f"on_demand/{view.name}.sql", view.query)


def _show_label(spec: LabelView, query: str, as_json: bool) -> None:
    arrives = spec.arrives
    facts = {
        "view": spec.name,
        "description": spec.description,
        "entities": list(spec.entities),
        "decision_time": spec.decision_time,
        "label": spec.label,
        "arrives": f"{arrives.column} + {span(arrives.lag)}" if arrives.lag else arrives.column,
        "horizon": span(spec.horizon),
        "set_aside": spec.set_aside,
    }
    if as_json:
        print_json(facts | {"sql": query})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(spec.name, style="bold")
    console.print(spec.description or "The label.", markup=False)
    listed = {"entities": ", ".join(spec.entities), "decided": spec.decision_time, "horizon": facts["horizon"]}
    listed |= {"label": spec.label, "arrives": facts["arrives"], "set aside": spec.set_aside}
    console.print(_lines(listed))
    _print_query(console, f"labels/{spec.name}.sql", query)


def _print_query(console: Console, file: str, query: str) -> None:
    console.print(f"\n{file}", style="bold")
    console.print(Syntax(query.rstrip(), "sql", theme="ansi_light", background_color="default"))


def _newest(opened: FeatureProject, store: ArtifactStore | None) -> Tables | None:
    """The tables with the newest time, and among these the ones with most views of the present definitions."""
    views = opened.repository.views.values()
    found = opened.newest(store) if store else []
    return max(reversed(found), key=lambda one: sum(not opened.misfit(one, view) for view in views), default=None)


def _facts(view: View) -> dict[str, Any]:
    spec = view.spec
    return {
        "view": view.name,
        "on_demand": False,
        "description": spec.description,
        "entities": list(spec.entities),
        "features": dict(spec.features),
        "version": spec.version,
        "ttl": span(spec.ttl),
        "window": "" if spec.static else span(spec.window, "the whole past"),
        "available": available(spec),
        "freshness": span(spec.freshness),
    }


def _facts_on_demand(view: OnDemand) -> dict[str, Any]:
    spec = view.spec
    return {
        "view": view.name,
        "on_demand": True,
        "description": spec.description,
        "entities": [],
        "reads": list(spec.views),
        "request": dict(spec.request),
        "features": dict(spec.features),
        "freshness": "",
    }


def _held(opened: FeatureProject, tables: Tables | None, view: View) -> dict[str, Any]:
    reference = tables.views.get(view.name, "") if tables else ""
    rows = tables.store.manifest(reference).rows if tables and reference else None
    differs = opened.misfit(tables, view) if tables and reference else ""
    return {"table": reference, "rows": rows, "differs": differs}


def _kinds(features: dict[str, str]) -> str:
    counts = {kind: sum(each == kind for each in features.values()) for kind in ("numeric", "double", "categorical")}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _definition(view: View) -> Text:
    facts = _facts(view)
    listed = {name: facts[name] for name in ("version", "available", "ttl", "window", "freshness")}
    listed = {"entities": ", ".join(facts["entities"])} | listed | {"ttl": facts["ttl"] or "for ever"}
    return _lines(listed | {"features": _with_kinds(facts["features"])})


def _with_kinds(features: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in features.items())


def _lines(listed: Mapping[str, Any]) -> Text:
    lines = [Text.assemble((f"  {name:<10}", "dim"), str(value)) for name, value in listed.items() if value]
    return Text("\n").join(lines)


def _versions(history: list[Tables], view: View) -> list[dict[str, Any]]:
    """Every table of a view, newest last, with the changes of its definition since the table before."""
    found: list[dict[str, Any]] = []
    for tables in history:
        reference = tables.views.get(view.name)
        if reference is None or (found and found[-1]["table"] == reference):
            continue
        manifest = tables.store.manifest(reference)
        changed = tables.manifest.details.get("changed", {}).get(view.name, [])
        found.append(
            {
                "version": manifest.details["version"],
                "as_of": tables.as_of,
                "table": reference,
                "rows": manifest.rows,
                "changed": list(changed),
            }
        )
    return found


def _print_version(console: Console, version: dict[str, Any]) -> None:
    head = f"  {version['version']}  as of {moment(version['as_of'])}, {counted(version['rows'], 'row')}  "
    console.print(Text.assemble(head, (version["table"], "dim")))
    for line in version["changed"]:
        console.print(Text(f"     {line}", style="yellow"))


def _statistics(features: list[dict[str, Any]]) -> Table:
    table = Table("  feature", box=None, pad_edge=False)
    for name in ("null", "distinct", "least", "mean", "greatest"):
        table.add_column(name, justify="right")
    categories = any(each["frequent"] for each in features)
    if categories:
        table.add_column("most frequent")
    for each in features:
        numbers = [_number(each[name]) for name in ("least", "mean", "greatest")]
        top = ", ".join(f"{value} {share:.0%}" for value, share in each["frequent"])
        table.add_row(
            f"  {each['name']}",
            f"{each['null']:.1%}",
            f"{each['distinct']:,}",
            *numbers,
            *([Text(top)] if categories else []),
        )
    return table


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,.4g}"


app.command("retrieve")(feature_values.retrieve)
app.command("materialize")(online_features.materialize)
app.command("skew")(online_features.skew)
app.command("lineage")(lineage)
app.command("push")(push.push)
