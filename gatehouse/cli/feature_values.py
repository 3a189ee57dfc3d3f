"""`gatehouse features retrieve`: feature values, point-in-time for entity rows or current for keys."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from gatehouse.cli.feature_project import FeatureProject, ProjectOption, open_features, store_of
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import OnDemand, View
from gatehouse.runtime.counting import counted
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa


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
        joined = _online(opened, artifacts, views, on_demand, table, _moment(at))
    else:
        joined = with_on_demand(on_demand, _offline(opened, artifacts, views, table, time, rows.name))
    write_rows([joined], to)
    _report(joined, read, to, as_json)


def _offline(
    opened: FeatureProject, store: ArtifactStore, views: list[View], rows: "pa.Table", time: str, name: str
) -> "pa.Table":
    """The rows with the features that were known at their times, from the newest feature tables."""
    from gatehouse.features.database import connect, rows_of
    from gatehouse.features.point_in_time.asof_join import asof_join, joined
    from gatehouse.features.point_in_time.entity_file import time_of

    tables = opened.tables(store, views)
    joins = [joined(view, rows_of(store.paths(tables.views[view.name]))) for view in views]
    with connect() as connection:
        return asof_join(connection, rows, time_of(rows, time, name), joins)


def _online(
    opened: FeatureProject,
    store: ArtifactStore,
    views: list[View],
    on_demand: list[OnDemand],
    asked: "pa.Table",
    now: datetime,
) -> "pa.Table":
    """The rows with the features that an online request would get at `now`."""
    from gatehouse.online.requests import with_online
    from gatehouse.online.store import online_view, open_online, require_materialized

    online = open_online(store, opened.project.name, opened.repository.folder)
    require_materialized(online, map(online_view, views))
    return with_online(online, views, on_demand, asked, now)


def _report(joined: "pa.Table", views: Sequence[View | OnDemand], to: Path, as_json: bool) -> None:
    """How many entity rows got a value, by view: a view without values often means a wrong key or time."""
    filled = [
        {
            "view": view.name,
            "features": len(view.spec.features),
            "rows": max(joined.num_rows - joined[feature].null_count for feature in view.spec.features),
        }
        for view in views
    ]
    if as_json:
        print_json({"file": str(to), "rows": joined.num_rows, "views": filled})
        return
    table = Table("view", box=None, pad_edge=False)
    for name in ("features", "rows with a value"):
        table.add_column(name, justify="right")
    for row in filled:
        table.add_row(str(row["view"]), str(row["features"]), f"{row['rows']:,} ({row['rows'] / joined.num_rows:.1%})")
    print_table(table)
    typer.echo(f"\n{to}: {counted(joined.num_rows, 'row')}, {counted(len(joined.column_names), 'column')}")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text) if text else datetime.now(UTC)
    except ValueError as error:
        raise ConfigurationError(f"--at: expected a time such as 2013-01-31T14:00:00+00:00, found {text!r}.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
