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
    opened = open_features(project)
    found = store_of(store, opened)
    if to.resolve() == rows.resolve():
        raise ConfigurationError(f"{to}: expected another file to write than the entity rows, which would be lost.")
    views, computed = _chosen(opened, service, view or [])
    keys = {key: opened.repository.entities[key] for one in views for key in one.spec.entities}
    values = {name: kind for one in computed for name, kind in one.spec.request.items()}
    asked = read_entity_rows(rows, keys, values, "" if online else time or EVENT_TIMESTAMP)
    _check_names(asked.column_names, [*views, *computed], rows.name)
    if online:
        joined = _online(opened, found, views, computed, asked, _moment(at))
    else:
        joined = with_on_demand(computed, _offline(opened, found, views, asked, time, rows.name))
    write_rows([joined], to)
    _report(joined, [*views, *computed], to, as_json)


def _chosen(opened: FeatureProject, service: str, named: list[str]) -> tuple[list[View], list[OnDemand]]:
    """The views to join and the on-demand views to compute; an on-demand view adds the views that it reads."""
    if service or not named:
        views = opened.served(service, named)
        return views, opened.computed(service, [])[1]
    computed = [view for name, view in opened.repository.on_demand.items() if name in named]
    stored = [
        opened.view(name, [*opened.repository.on_demand]) for name in named if name not in opened.repository.on_demand
    ]
    read = [opened.view(name) for view in computed for name in view.spec.views]
    return list({view.name: view for view in [*stored, *read]}.values()), computed


def _offline(
    opened: FeatureProject, store: ArtifactStore, views: list[View], asked: "pa.Table", time: str, name: str
) -> "pa.Table":
    """The rows with the features that were known at their times, from the newest feature tables."""
    from gatehouse.features.database import connect, rows_of
    from gatehouse.features.point_in_time.asof_join import asof_join
    from gatehouse.features.point_in_time.entity_file import time_of
    from gatehouse.features.point_in_time.view_join import joined

    tables = opened.tables(store, views)
    joins = [joined(view, rows_of(store.paths(tables.views[view.name]))) for view in views]
    with connect() as connection:
        return asof_join(connection, asked, time_of(asked, time, name), joins)


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


def _check_names(found: list[str], views: Sequence[View | OnDemand], name: str) -> None:
    hidden = sorted({feature for view in views for feature in view.spec.features} & set(found))
    if hidden:
        raise ConfigurationError(
            f"{name}: the features {', '.join(hidden)} would hide columns of the same name. Rename the columns."
        )


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
    for each in filled:
        share = each["rows"] / joined.num_rows
        table.add_row(str(each["view"]), str(each["features"]), f"{each['rows']:,} ({share:.1%})")
    print_table(table)
    typer.echo(f"\n{to}: {counted(joined.num_rows, 'row')}, {counted(len(joined.column_names), 'column')}")


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text) if text else datetime.now(UTC)
    except ValueError as error:
        raise ConfigurationError(f"--at: expected a time such as 2013-01-31T14:00:00+00:00, found {text!r}.") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
