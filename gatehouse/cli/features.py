"""`gatehouse features`: feature views with their tables and lineage, retrieval, and the online store."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from gatehouse.cli.feature_project import (
    ProjectOption,
    available,
    moment,
    open_features,
    span,
    store_if_there,
    store_of,
)
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_rows, print_table
from gatehouse.configuration.times import in_utc
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import OnDemand, View
from gatehouse.features.lineage import lineage_of
from gatehouse.runtime.plural import counted

app = typer.Typer(no_args_is_help=True, help="Feature views: list, show, retrieve, materialize, skew, lineage.")


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
    rows = []
    shown: list[View | OnDemand] = [*views, *opened.repository.on_demand.values()]
    for view in shown:
        row = _facts(view) | {"table": "", "rows": None, "differs": ""}
        if tables is not None and (reference := tables.views.get(view.name, "")):
            stored = opened.repository.views[view.name]
            row |= {"table": reference, "rows": tables.store.manifest(reference).rows}
            row["differs"] = opened.misfit(tables, stored)
        rows.append(row)
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
        newest_table = Text(row["table"] or ("" if row["on_demand"] else "none yet"), style="dim")
        table.add_row(*cells, f"{row['rows']:,}" if row["table"] else "", Text.assemble(newest_table, differs))
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
    """Show a view: its definition, its SQL, and its versions with what changed."""
    opened = open_features(project)
    repository = opened.repository
    artifacts = store_if_there(store, opened)
    versions: list[dict[str, Any]] = []
    if name in repository.on_demand:
        on_demand = repository.on_demand[name]
        facts, file, query = _facts(on_demand), f"on_demand/{name}.sql", on_demand.query
    elif name == repository.label.name:
        label = repository.label
        arrives = f"{label.arrives.column} + {span(label.arrives.lag)}" if label.arrives.lag else label.arrives.column
        facts = {
            "view": label.name,
            "description": label.description,
            "entities": list(label.entities),
            "decision_time": label.decision_time,
            "label": label.label,
            "arrives": arrives,
            "horizon": span(label.horizon),
            "set_aside": label.set_aside,
        }
        file, query = f"labels/{name}.sql", repository.entity_rows
    else:
        view = opened.view(name, [*repository.on_demand, repository.label.name])
        facts, file, query = _facts(view), f"views/{name}.sql", view.query
        for tables in opened.history(artifacts) if artifacts else ():
            reference = tables.views.get(view.name)
            if reference is None or (versions and versions[-1]["table"] == reference):
                continue
            manifest = tables.store.manifest(reference)
            version = {"version": manifest.details["version"], "as_of": tables.as_of, "table": reference}
            versions.append(version | {"rows": manifest.rows, "changed": list(tables.changed.get(view.name, []))})
    if as_json:
        print_json(facts | {"sql": query, "versions": versions})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(name, style="bold")
    for key, value in facts.items():
        if key not in ("view", "on_demand") and value:
            parts = [f"{part} ({kind})" for part, kind in value.items()] if isinstance(value, Mapping) else value
            text = ", ".join(parts) if isinstance(parts, list) else str(parts)
            console.print(Text.assemble((f"  {key:<14}", "dim"), text))
    if name in repository.views:
        console.print("\nversions", style="bold")
        for version in versions:
            head = f"  {version['version']}  as of {moment(version['as_of'])}, {counted(version['rows'], 'row')}  "
            console.print(Text.assemble(head, (version["table"], "dim")))
            for line in version["changed"]:
                console.print(Text(f"     {line}", style="yellow"))
        if not versions:
            console.print("  no table yet; `gatehouse run` computes one", style="dim")
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


@app.command()
def lineage(
    name: Annotated[str, typer.Argument(metavar="FEATURE|VIEW[.FEATURE]", help="A feature, or all those of a view.")],
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the raw columns that a feature is computed from, and those that may decide which rows count."""
    opened = open_features(project)
    owner, _, feature = name.partition(".")
    repository = opened.repository
    if owner not in (*repository.views, *repository.on_demand) and not feature:
        # No two views give a feature with the same name.
        everything: list[View | OnDemand] = [*repository.views.values(), *repository.on_demand.values()]
        owner, feature = next(((view.name, name) for view in everything if name in view.spec.features), (owner, ""))
    view = repository.on_demand.get(owner) or opened.view(owner, repository.on_demand)
    if feature and feature not in view.spec.features:
        raise ConfigurationError(
            f"The view {owner} has no feature {feature!r}: expected one of {', '.join(view.spec.features)}."
        )
    features = [feature] if feature else list(view.spec.features)
    # The columns of the raw tables: from the newest snapshot, or as the source declares them.
    artifacts = store_if_there(store, opened)
    if artifacts and (history := opened.history(artifacts)):
        datasets = artifacts.manifest(history[-1].snapshot).derived_from
        columns = {
            table: [column.name for column in artifacts.manifest(dataset).columns]
            for table, dataset in datasets.items()
        }
    else:
        columns = {table: list(declared.columns) for table, declared in opened.project.file.source.tables.items()}
    known_from = "on demand" if isinstance(view, OnDemand) else available(view.spec)
    sources = {f"{view.name}.{feature}": lineage_of(opened.repository, view, feature, columns) for feature in features}
    if as_json:
        listed = {
            feature: {"values": columns_of.values, "others": columns_of.named, "exact": columns_of.exact}
            for feature, columns_of in sources.items()
        }
        print_json({"known_from": known_from, "features": listed})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for feature, columns_of in sources.items():
        console.print(f"{feature}  {view.spec.features[feature.partition('.')[2]]}", style="bold")
        title = (
            "values from"
            if columns_of.exact
            else "values from (sqlglot cannot follow this SQL: all columns of its tables)"
        )
        for heading, names in ((title, columns_of.values), ("rows may depend on", columns_of.named)):
            console.print(f"  {heading}", style="dim")
            tables = groupby((source.rpartition(".") for source in names), key=lambda parts: parts[0])
            for table, parts in tables:  # As `raw.flights: carrier, dest`.
                console.print(f"    {table}: {', '.join(column for _, _, column in parts)}")
            if not names:
                console.print("    none")
    console.print(f"\nknown from {known_from}")


@app.command()
def retrieve(
    rows: Annotated[Path, typer.Argument(help="Entity rows: CSV or Parquet, with the keys and a time.")],
    to: Annotated[Path, typer.Argument(help="Write them with their features here: CSV or Parquet.")],
    service: Annotated[str, typer.Option(help="Feature service; default: the project's.")] = "",
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
    from gatehouse.features.computing.on_demand import with_on_demand
    from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP
    from gatehouse.features.point_in_time.entity_file import read_entity_rows, write_rows

    if at and not online:
        raise ConfigurationError("--at is the moment of a read from the online store: expected --online with it.")
    if to.resolve() == rows.resolve():
        raise ConfigurationError(f"{to}: expected another file to write than the entity rows, which would be lost.")
    opened = open_features(project)
    artifacts = store_of(store, opened)
    repository, named = opened.repository, view or []
    if service or not named:
        views, on_demand = opened.served(service, named), opened.computed(service, [])[1]
    else:  # An on-demand view adds the views that it reads.
        on_demand = [repository.on_demand[name] for name in repository.on_demand if name in named]
        stored = [opened.view(name, [*repository.on_demand]) for name in named if name not in repository.on_demand]
        stored += [opened.view(name) for computed in on_demand for name in computed.spec.views]
        views = list({stored_view.name: stored_view for stored_view in stored}.values())
    keys = {key: repository.entities[key] for stored_view in views for key in stored_view.spec.entities}
    values = {name: kind for computed in on_demand for name, kind in computed.spec.request.items()}
    table = read_entity_rows(rows, keys, values, "" if online else time or EVENT_TIMESTAMP)
    read: list[View | OnDemand] = [*views, *on_demand]
    features = {feature for source_view in read for feature in source_view.spec.features}
    if hidden := sorted(features & {*table.column_names}):
        raise ConfigurationError(
            f"{rows.name}: the features {', '.join(hidden)} would hide columns of the same name. Rename the columns."
        )
    if online:
        from gatehouse.online.serving import open_online, with_online
        from gatehouse.online.store import online_view, require_materialized

        online_store = open_online(artifacts, opened.project.name, repository.folder)
        require_materialized(online_store, map(online_view, views))
        moment_of_read = in_utc("--at", at) if at else datetime.now(UTC)
        joined = with_online(online_store, views, on_demand, table, moment_of_read)
    else:
        from gatehouse.features.database import connect, rows_of
        from gatehouse.features.point_in_time.asof_join import asof_join
        from gatehouse.features.point_in_time.asof_join import joined as join_of
        from gatehouse.features.point_in_time.entity_file import time_of

        tables = opened.tables(artifacts, views)
        joins = [join_of(view, rows_of(artifacts.paths(tables.views[view.name]))) for view in views]
        with connect() as connection:
            joined = asof_join(connection, table, time_of(table, time, rows.name), joins)
        joined = with_on_demand(on_demand, joined)
    write_rows([joined], to)
    # A view without values often means a wrong key or time.
    filled = [
        (view.name, max(joined.num_rows - joined[feature].null_count for feature in view.spec.features))
        for view in read
    ]
    if as_json:
        views_with_values = [{"view": name, "rows": count} for name, count in filled]
        print_json({"file": str(to), "rows": joined.num_rows, "views": views_with_values})
        return
    print_rows(
        ("view", "rows with a value"), ((name, f"{count:,} ({count / joined.num_rows:.1%})") for name, count in filled)
    )
    typer.echo(f"\n{to}: {counted(joined.num_rows, 'row')}, {counted(len(joined.column_names), 'column')}")


ServiceOption = Annotated[str, typer.Option(help="Feature service; default: the project's.")]


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
    from gatehouse.online.stage import MaterializeRequest
    from gatehouse.online.stage import materialize as write

    opened = open_features(project)
    artifacts = store_of(store, opened)
    tables = opened.tables(artifacts, opened.served(service, []))
    # A time after that of the tables would move the watermark past rows of later tables.
    newest = datetime.fromisoformat(tables.as_of)
    until = in_utc("--as-of", as_of) if as_of else newest
    if until > newest:
        raise ConfigurationError(
            f"--as-of: {tables.reference} was computed up to {moment(tables.as_of)}; expected a time until then, "
            f"found {moment(until.isoformat())}. `gatehouse run` computes newer tables."
        )
    request = MaterializeRequest(
        snapshot=tables.snapshot,
        feature_tables=str(tables.reference),
        definitions=str(opened.project.definitions.publish(artifacts)),
        project=opened.project.name,
        service=service or opened.project.file.features.service,
        as_of=until.isoformat(),
        max_skew=opened.project.file.features.max_skew,
        rewrite=rewrite,
    )
    result = write(request, artifacts)
    if as_json:
        print_json(result.model_dump())
    else:
        print_rows(("view", "rows that changed"), ((view, f"{changed:,}") for view, changed in result.written.items()))
        typer.echo(
            f"\nas of {moment(request.as_of)}; skew {result.skew:.4%} of {result.values:,} values: {result.verdict}"
        )
        for reason in result.reasons:
            typer.echo(f"  {reason}")
        typer.echo(artifacts.address_of(result.report))
    raise typer.Exit(0 if result.verdict == "pass" else 1)


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
    from gatehouse.online.serving import open_online
    from gatehouse.online.skew import Skew, skew_reasons, present_skew

    opened = open_features(project)
    artifacts = store_of(store, opened)
    views = opened.served(service, [])
    newest = str(opened.tables(artifacts, views).reference)
    online = open_online(artifacts, opened.project.name, opened.repository.folder)
    results = list(present_skew(artifacts, online, views, newest))
    total = Skew(tuple(comparison for result in results for comparison in result.skew.compared))
    limit = opened.project.file.features.max_skew
    reasons = skew_reasons(total, [result.view for result in results], limit)
    reasons += [result.not_compared for result in results if result.not_compared]
    rows = [result.body() | {"newest": result.feature_tables == newest} for result in results]
    if as_json:
        print_json({"skew": total.share, "max_skew": limit, "views": rows})
    else:
        table = Table("view", "as of", box=None, pad_edge=False)
        for name in ("values compared", "differing"):
            table.add_column(name, justify="right")
        table.add_column("first that differ: key, online, offline")
        for row in rows:
            examples = "; ".join(
                f"{example['feature']} {example['key']}: {example['online']}, {example['offline']}"
                for example in row["examples"]
            )
            differing = Text(f"{row['differing']:,}", style="red" if row["differing"] else "")
            cells = [row["view"], moment(row["as_of"]), f"{row['values']:,}", differing, Text(examples, style="dim")]
            table.add_row(*cells)
        print_table(table)
        typer.echo(f"\nskew {total.share:.4%} of {total.values:,} values, {limit:.4%} allowed")
        notes = [
            *reasons,
            *(
                f"{row['view']}: there are newer feature tables. `gatehouse features materialize` writes them"
                for row in rows
                if not row["newest"]
            ),
        ]
        for note in notes:
            typer.echo(f"  {note}")
    raise typer.Exit(1 if reasons else 0)
